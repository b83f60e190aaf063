"""Models of the hub's repositories in our cache: their files, and a record of what they are.

They are in `hf/ORGANISATION--NAME/`. A record, `FILE.gguf.json`, is written when all files of a model were
checked, so a model is there if it has a record and its files have the sizes that it states.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hub.cache import as_cache_error, cache_dir
from pilotfish.hub.found import OURS, Found, read_small
from pilotfish.hub.names import HubName, is_plain, is_repo
from pilotfish.hub.offered import Offered, RepoFile

_FOLDER = "hf"
_MOST_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubPart:
    """A file of a repository as the cache sees it.

    Attributes
    ----------
    repo
        Where it is from.
    remote
        What the hub says of it.
    """

    repo: str
    remote: RepoFile

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.remote.path

    @property
    def file(self) -> str:
        """Where it is in the cache: folders of the repository become parts of the name."""
        return f"{_folder_of(self.repo)}/{self.remote.path.replace('/', '--')}"

    @property
    def size(self) -> int:
        """Bytes."""
        return self.remote.size

    @property
    def sha256(self) -> str:
        """Of the whole file."""
        return self.remote.sha256


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model of a repository that was pulled.

    Attributes
    ----------
    repo
        `organisation/name`.
    tag
        Its name in the repository: a quantization, or a file.
    revision
        The commit that it is from.
    licence
        As the publisher states it; may be empty.
    offered
        Its files.
    """

    repo: str
    tag: str
    revision: str
    licence: str
    offered: Offered

    @property
    def name(self) -> str:
        """What `-m` takes."""
        return str(HubName(self.repo, self.tag))

    @property
    def file(self) -> str:
        """The path of its first file in the repository."""
        return self.offered.file

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return self.offered.size

    @property
    def parts(self) -> tuple[HubPart, ...]:
        """Its files."""
        return tuple(HubPart(self.repo, part) for part in self.offered.parts)

    @property
    def path(self) -> Path:
        """Its first file in the cache."""
        return cache_dir() / self.parts[0].file

    @property
    def sha256(self) -> str:
        """Of its one file; empty if it has several."""
        return self.parts[0].sha256 if len(self.parts) == 1 else ""

    @property
    def record(self) -> Path:
        """The file that says that it is there."""
        return self.path.with_name(f"{self.path.name}.json")

    def found(self) -> Found:
        """Return it as what is on this machine."""
        return Found(self.name, OURS, self.path, self.size, self.sha256)

    def is_there(self) -> bool:
        """Tell whether all files have the sizes that they should have."""
        try:
            return all((cache_dir() / part.file).stat().st_size == part.size for part in self.parts)
        except OSError:
            return False

    def write_record(self) -> None:
        """Note that it is there.

        Raises
        ------
        CacheError
            The cache can't be written.
        """
        parts = [{"file": p.path, "size": p.size, "sha256": p.sha256} for p in self.offered.parts]
        head = {"schema": 1, "repo": self.repo, "tag": self.tag, "revision": self.revision}
        draft = self.record.with_name(f"{self.record.name}.new")
        try:
            draft.write_text(json.dumps(head | {"licence": self.licence, "parts": parts}), encoding="utf-8")
            draft.replace(self.record)
        except OSError as error:
            raise as_cache_error(error, self.record) from error


def pulled(repo: str | None = None) -> list[Pulled]:
    """Return the models of one repository, or of all, that are in the cache, by name."""
    folder = cache_dir() / (_folder_of(repo) if repo is not None else f"{_FOLDER}/*")
    found = []
    for path in sorted(folder.parent.glob(f"{folder.name}/*.gguf.json")):
        model = _read(path)
        if model is not None and model.record == path and model.is_there():
            found.append(model)
    return found


def leftovers(repo: str) -> list[Path]:
    """Return what pulls that broke off left: files of a repository's folder that belong to no model there."""
    known = {cache_dir() / part.file for model in pulled(repo) for part in model.parts}
    known |= {model.record for model in pulled(repo)}
    try:
        paths = sorted((cache_dir() / _folder_of(repo)).iterdir())
    except OSError:
        return []
    return [path for path in paths if path not in known and path.suffix != ".lock" and path.is_file()]


def locks(repo: str) -> list[Path]:
    """Return the lock files of a repository's folder."""
    return sorted((cache_dir() / _folder_of(repo)).glob("*.lock"))


def _folder_of(repo: str) -> str:
    return f"{_FOLDER}/{repo.replace('/', '--')}"


def _read(path: Path) -> Pulled | None:
    """Read a record; None if it is damaged. Names in it become paths to be deleted, so they are checked."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        record = json.loads(read_small(path, _MOST_BYTES))
        parts = [RepoFile(str(p["file"]), p["size"], str(p["sha256"])) for p in record["parts"]]
        texts = [record[key] for key in ("repo", "tag", "revision", "licence")]
        if all(isinstance(text, str) for text in texts) and is_repo(texts[0]) and _plausible(parts):
            repo, tag, revision, licence = texts
            return Pulled(repo, tag, revision, licence, Offered(tuple(parts)))
    return None


def _plausible(parts: Sequence[RepoFile]) -> bool:
    return bool(parts) and all(
        is_plain(part.path) and type(part.size) is int and part.size > 0 and _SHA256.fullmatch(part.sha256)
        for part in parts
    )
