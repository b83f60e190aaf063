"""A file that is still being fetched: a good beginning of it, and a note of how long that is.

`FILE.part` holds the bytes, `FILE.part.json` how many of them are known to be on the disk. Bytes are
appended, flushed, and only then noted; what a kill or a power cut leaves beyond the noted length is cut off
at the next start. Sources can take turns, since whichever is used the bytes are to be the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING, Self

from pilotfish.errors import ChecksumError
from pilotfish.hub.cache import as_cache_error, final_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pilotfish.hub.progress import Progress
    from pilotfish.hub.wanted import Wanted

_CHUNK = 1 << 20


class Partial:
    """The beginning of a file, opened for appending.

    Needs the file's lock (`cache.locked`). A context manager: leaving it notes nothing, so bytes appended
    after the last `commit` are forgotten.

    Parameters
    ----------
    wanted
        The file.

    Raises
    ------
    CacheError
        Here and in every method: the disk is full or the cache can't be written.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._final = final_path(wanted)
        self.path = self._final.with_name(f"{self._final.name}.part")
        self._note = self._final.with_name(f"{self._final.name}.part.json")
        good = self._noted()
        with self._refusals(self.path):
            self._file = self.path.open("r+b" if good else "wb")
            self._file.truncate(good)
            self._file.seek(good)
        self.size = good
        """Bytes of the beginning, those not yet noted included."""

    def append(self, data: bytes) -> None:
        """Write the next bytes."""
        with self._refusals(self.path):
            self._file.write(data)
        self.size += len(data)

    def commit(self) -> None:
        """Bring all bytes to the disk, then note their number."""
        with self._refusals(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        draft = self._note.with_name(f"{self._note.name}.new")
        with self._refusals(self._note):
            draft.write_text(json.dumps({"sha256": self.wanted.sha256, "good_bytes": self.size}))
            draft.replace(self._note)

    def restart(self) -> None:
        """Throw away what is there."""
        with self._refusals(self.path):
            self._note.unlink(missing_ok=True)
            self._file.seek(0)
            self._file.truncate(0)
        self.size = 0

    def finish(self, progress: Progress) -> Path:
        """Check the whole file and give it its name; nothing is left of the partial, whether good or bad.

        Raises
        ------
        ChecksumError
            The bytes are not those promised; they were removed.
        """
        self.commit()
        with self._refusals(self.path):
            got = sha256_of(self.path, self.wanted, progress)
        if got != self.wanted.sha256:
            self.restart()
            with self._refusals(self.path):
                self.path.unlink()
            raise ChecksumError(
                f"{self.wanted.file}: expected sha256 {self.wanted.sha256}, got {got}; the file was removed",
                "pull again, or from another source",
            )
        with self._refusals(self._final):
            self.path.replace(self._final)
            self._note.unlink(missing_ok=True)
            _sync_folder(self._final.parent)
        return self._final

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # closing flushes what is not noted anyway
            self._file.close()
        if not self._note.exists():
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _noted(self) -> int:
        """Return how many bytes are good; 0 where the note is missing, damaged or about another file."""
        try:
            note = json.loads(self._note.read_text())
            good = note["good_bytes"]
            there = self.path.stat().st_size
            fits = (
                note["sha256"] == self.wanted.sha256 and isinstance(good, int) and not isinstance(good, bool)
            )
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return good if fits and 0 <= good <= min(there, self.wanted.size) else 0

    @contextlib.contextmanager
    def _refusals(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise as_cache_error(error, path) from error


def sha256_of(path: Path, wanted: Wanted, progress: Progress) -> str:
    """Return the SHA-256 of a file as 64 hex digits; raises OSError if it can't be read."""
    digest = hashlib.sha256()
    progress.start(f"checking {wanted.name}", path.stat().st_size, 0)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                progress.advance(len(chunk))
    finally:
        progress.finish()
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Bring a rename to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
