"""Hugging Face's own cache, read only: models that `hf download` or other programs fetched.

`models--ORGANISATION--NAME/snapshots/COMMIT/FILE`, where a file is most often a link to `blobs/SHA256`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hub.found import HUGGING_FACE, Found, read_small
from pilotfish.hub.names import HubName, is_plain, is_repo
from pilotfish.hub.offered import Offered, RepoFile, models_among
from pilotfish.hub.quants import tag_of

_MOST_FILES = 10_000
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HfModel:
    """A model in a snapshot.

    Attributes
    ----------
    repo, tag
        `organisation/name`, and the model's name in there.
    snapshot
        The folder.
    offered
        Its files.
    """

    repo: str
    tag: str
    snapshot: Path
    offered: Offered

    @property
    def file(self) -> str:
        """The path of its first file in the repository."""
        return self.offered.file

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return self.offered.size

    def found(self) -> Found:
        """Return it as what is on this machine."""
        name, path = str(HubName(self.repo, self.tag)), self.snapshot / self.file
        sha256 = self.offered.parts[0].sha256 if len(self.offered.parts) == 1 else ""
        return Found(name, HUGGING_FACE, path, self.size, sha256)


def folder() -> Path:
    """Return where the cache is, by the variables of `huggingface_hub`; it need not exist."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expanduser(os.path.expandvars(chosen)))  # noqa: PTH111 - never raises
    home = os.environ.get("HF_HOME")
    if not home:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")  # noqa: PTH118
    return Path(os.path.expanduser(os.path.expandvars(home))) / "hub"  # noqa: PTH111


def models(repo: str | None = None) -> list[HfModel]:
    """Return the models of one repository, or of all, that are in that cache."""
    name = "*" if repo is None else repo.replace("/", "--")
    found = []
    for place in sorted(folder().glob(f"models--{name}")):
        this = place.name.removeprefix("models--").replace("--", "/", 1)
        snapshot = _snapshot(place)
        if snapshot is not None and is_repo(this):
            offers = models_among(_files(snapshot))
            found += [HfModel(this, tag_of(offer, offers), snapshot, offer) for offer in offers]
    return found


def _snapshot(place: Path) -> Path | None:
    """Return the folder of the commit that `main` is, else that of the newest."""
    try:
        commit = read_small(place / "refs" / "main", 100).decode("ascii").strip()
        if commit.isalnum() and (place / "snapshots" / commit).is_dir():
            return place / "snapshots" / commit
    except (OSError, UnicodeDecodeError):
        pass
    try:
        folders = [path for path in (place / "snapshots").iterdir() if path.is_dir()]
        return max(folders, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)
    except OSError:
        return None


def _files(snapshot: Path) -> list[RepoFile]:
    files: list[RepoFile] = []
    for place, _, names in os.walk(snapshot):
        for name in names:
            path = Path(place) / name
            relative = path.relative_to(snapshot).as_posix()
            if not name.endswith(".gguf") or not is_plain(relative) or len(files) >= _MOST_FILES:
                continue
            try:
                if path.is_file():
                    blob = path.resolve().name
                    sha256 = blob if path.is_symlink() and _SHA256.fullmatch(blob) else ""
                    files.append(RepoFile(relative, path.stat().st_size, sha256))
            except OSError:  # a link to nowhere, or in a circle
                continue
    return files
