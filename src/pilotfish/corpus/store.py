"""Where an index lies in the cache, and whether what lies there can be used.

Below `corpus/` each pair of folder and tokenizer has a folder with the arrays as ``.npy`` and a manifest that
is written last. It has a fingerprint of all that the arrays were made from (names, sizes and times of the
files) and their checksums: whatever differs, is damaged or was only half written is built anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.corpus.files import File, list_files, read_texts
from pilotfish.corpus.index import DEPTH, SEPARATOR, Index
from pilotfish.corpus.suffix_array import sort_suffixes
from pilotfish.errors import CacheError, UsageError
from pilotfish.hub.cache import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pilotfish.text.tokenizer import Tokenizer

FORMAT = 1
"""Changes with what the files mean: an index of another format is built anew."""

MANIFEST = "manifest.json"
ARRAYS = {"tokens": np.dtype(">u4"), "suffixes": np.dtype(np.int32)}

_PROBE = "Don't  stop:\t1234567 + x_y == 'é中文🐟';\r\n\n    return self.values[0:10]  # IT'S\u00a0done…"


def open_index(
    folder: str | os.PathLike[str], tokenizer: Tokenizer, notice: Callable[[str], None] | None = None
) -> Index:
    """Return the index of a folder, from the cache if it is there and nothing has changed.

    Parameters
    ----------
    folder
        Its text files, and those of the folders below, are indexed.
    tokenizer
        The target's.
    notice
        Takes one line before something that takes seconds.

    Raises
    ------
    UsageError
        No folder, no text in it, or too much.
    CacheError
        The cache folder can't be written.
    """
    root = check_folder(folder)
    files = list_files(root)
    checksum = tokenizer_checksum(tokenizer)
    name = hashlib.sha256(f"{root}\0{checksum}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    place = _Place(cache_dir() / "corpus" / name, _fingerprint(root, files, checksum))
    try:
        with place.locked():
            index = place.load()
            if index is None:
                if notice is not None:
                    notice(f"indexing {root} ({sum(file.size for file in files):,} bytes), once")
                place.write(_build(root, files, tokenizer))
                index = place.load()
    except OSError as error:
        raise CacheError(
            f"the index of {root} can't be kept in {place.folder}: {error.strerror or error}",
            "free some space or set PILOTFISH_CACHE to a writable folder",
        ) from error
    if index is None:
        raise CacheError(f"the index in {place.folder} changes while it is read", "try again")
    return index


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the whole path of a folder, or raise UsageError if it is none."""
    root = Path(os.path.expanduser(folder)).resolve()  # noqa: PTH111 - pathlib's raises on an unknown user
    if not root.is_dir():
        raise UsageError(f"the corpus {os.fspath(folder)!r} is no folder", "name a folder of text or code")
    return root


def tokenizer_checksum(tokenizer: Tokenizer) -> str:
    """Return 64 hex digits that differ where a tokenizer's tokens, or how it cuts text, differ."""
    digest = hashlib.sha256()
    for token in tokenizer.vocabulary.tokens:
        digest.update(token.encode("utf-8", "surrogatepass") + b"\0")
    digest.update(repr(tokenizer.encode(_PROBE, bos=False)).encode())
    return digest.hexdigest()


def _fingerprint(root: Path, files: list[File], checksum: str) -> str:
    said = json.dumps([FORMAT, DEPTH, os.fspath(root), checksum, files])  # escapes whatever is no UTF-8
    return hashlib.sha256(said.encode()).hexdigest()


def _build(root: Path, files: list[File], tokenizer: Tokenizer) -> dict[str, NDArray[Any]]:
    """Return the arrays of an index."""
    parts: list[NDArray[np.uint32]] = []
    end = np.array([SEPARATOR], np.uint32)
    for text in read_texts(root, files):
        parts += [np.array(tokenizer.encode(text, bos=False), np.uint32), end]
    if not parts:
        raise UsageError(f"the corpus {root} has no text", "name a folder with files in UTF-8")
    tokens = np.concatenate(parts)
    return {"tokens": tokens.astype(ARRAYS["tokens"]), "suffixes": sort_suffixes(tokens, DEPTH)}


@dataclass(frozen=True, slots=True)
class _Place:
    """The folder of one index.

    Attributes
    ----------
    folder
        Need not exist.
    fingerprint
        What an index there must have been made from.
    """

    folder: Path
    fingerprint: str

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from building the same index; the lock ends with its holder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def load(self) -> Index | None:
        """Map the index that lies here; None unless it is whole and was made from what there is now."""
        try:
            manifest = json.loads((self.folder / MANIFEST).read_bytes())
            if manifest["fingerprint"] != self.fingerprint:
                return None
            arrays = {name: self._load(name, dtype, manifest[name]) for name, dtype in ARRAYS.items()}
        except (FileNotFoundError, ValueError, TypeError, KeyError, EOFError, RecursionError):
            return None
        tokens, suffixes = arrays["tokens"], arrays["suffixes"]
        return None if tokens is None or suffixes is None else Index(tokens, suffixes)

    def _load(self, name: str, dtype: np.dtype[Any], checksum: object) -> NDArray[Any] | None:
        path = self._path(name)
        if _sha256(path) != checksum:
            return None
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return array if array.dtype == dtype and array.ndim == 1 else None

    def write(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Put an index here. Processes that have an older one mapped keep that."""
        checksums = {}
        for name, array in arrays.items():
            with self._replacing(self._path(name)) as new:
                with new.open("wb") as file:
                    np.save(file, array, allow_pickle=False)
                checksums[name] = _sha256(new)
        with self._replacing(self.folder / MANIFEST) as new:
            new.write_text(json.dumps({"fingerprint": self.fingerprint, **checksums}))

    @contextlib.contextmanager
    def _replacing(self, path: Path) -> Iterator[Path]:
        """Give a path beside the file's own, which takes its name once it is written."""
        new = path.with_suffix(".new")
        try:
            yield new
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
