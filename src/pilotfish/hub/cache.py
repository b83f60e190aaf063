"""The one folder that models are kept in.

A file has its own name there only if all its bytes were checked; until then its bytes are in a *partial* (see
`partial.py`). So a name and a size are enough to know that a model is there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pilotfish.errors import CacheError
from pilotfish.hub.registry import REGISTRY, find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pilotfish.hub.progress import Progress
    from pilotfish.hub.wanted import Wanted

MARGIN_BYTES = 64 << 20
"""What must stay free on the disk beyond the bytes to be written."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Cached(NamedTuple):
    """A model in the cache: its registry name, its file, and the file's size in bytes."""

    name: str
    path: Path
    size: int


def cache_dir() -> Path:
    """Return the cache folder, which need not exist.

    `PILOTFISH_CACHE` if set, else the platform's: `~/Library/Caches/pilotfish` on macOS, elsewhere
    `pilotfish` in `XDG_CACHE_HOME` (by the XDG Base Directory Specification ignored unless absolute)
    or in `~/.cache`.
    """
    chosen = os.environ.get("PILOTFISH_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()  # noqa: PTH111 - pathlib's raises on an unknown user
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pilotfish"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "pilotfish"


def final_path(wanted: Wanted) -> Path:
    """Return where the file is, or will be."""
    return cache_dir() / wanted.file


def cached_path(name: str) -> Path | None:
    """Return the file of a registry name, or None if it is not in the cache.

    Raises
    ------
    UnknownModel
        No entry has this name.
    """
    entry = find(name)
    path = final_path(entry)
    try:
        there = path.is_file() and path.stat().st_size == entry.size
    except OSError:
        there = False
    return path if there else None


def list_cached() -> list[Cached]:
    """Return the models that are in the cache, in the registry's order."""
    found = ((entry, cached_path(entry.name)) for entry in REGISTRY.values())
    return [Cached(entry.name, path, entry.size) for entry, path in found if path is not None]


def as_cache_error(error: OSError, path: Path) -> CacheError:
    """Say what the system refused to do at `path`, as one clear line."""
    if error.errno in _NO_ROOM:
        try:
            free = f"{shutil.disk_usage(path.parent).free:,} bytes are free"
        except OSError:
            free = "free bytes unknown"
        return CacheError(
            f"the disk is full: no room to write {path} ({free})",
            "free some space or set PILOTFISH_CACHE to a folder elsewhere; the next pull goes on from here",
        )
    reason = error.strerror or str(error)
    return CacheError(
        f"the cache can't be written: {path}: {reason}", "set PILOTFISH_CACHE to a writable folder"
    )


def make_cache_dir() -> Path:
    """Create the cache folder if need be, and return it.

    Raises
    ------
    CacheError
        It can't be created or is no folder.
    """
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise as_cache_error(error, folder) from error
    return folder


def check_room(wanted: Wanted, done_bytes: int, spare_bytes: int) -> None:
    """Check that the disk has room for what is missing of the file.

    Parameters
    ----------
    wanted
        The file.
    done_bytes
        What is on the disk already.
    spare_bytes
        What is needed for a while besides the file.

    Raises
    ------
    CacheError
        It has not; both numbers are named.
    """
    folder = cache_dir()
    need = wanted.size - done_bytes + spare_bytes + MARGIN_BYTES
    free = shutil.disk_usage(folder).free
    if free < need:
        raise CacheError(
            f"{wanted.name} needs {need:,} bytes on the disk of {folder}, {free:,} are free",
            "free some space or set PILOTFISH_CACHE to a folder elsewhere",
        )


@contextlib.contextmanager
def locked(wanted: Wanted, progress: Progress | None) -> Iterator[None]:
    """Hold the file's lock; wait, saying so, while another process holds it. Without `progress` don't wait.

    The system releases the lock when its holder dies, so a killed pull blocks nobody.

    Raises
    ------
    CacheError
        The lock file can't be written, the file system has no locks, or another process holds it.
    """
    with locked_path(make_cache_dir() / f"{wanted.file}.lock", wanted.name, progress):
        yield


@contextlib.contextmanager
def locked_path(path: Path, name: str, progress: Progress | None) -> Iterator[None]:
    """Hold a lock file; as `locked`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Left in place: removing it would let two processes hold locks on different files of this name.
        handle = path.open("ab")
    except OSError as error:
        raise as_cache_error(error, path) from error
    with handle:
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if progress is None:
                    raise CacheError(f"a pull of {name} is running", "wait for it, or end it") from None
                progress.message(f"another pull of {name} is running; waiting for it")
                fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise as_cache_error(error, path) from error
        yield
