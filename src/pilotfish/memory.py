"""How much memory is free: of the machine, and within the limits of the container."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

from pilotfish.errors import OutOfMemory

ADVICE = "take a smaller model or context, or end other programs"


def check_room(what: str, need: int, free: int | None, hint: str = ADVICE) -> None:
    """Refuse what does not fit.

    Parameters
    ----------
    what
        Named in the message.
    need, free
        Bytes; `free` is None if unknown, and then nothing is refused.
    hint
        How to mend it.

    Raises
    ------
    OutOfMemory
        Need is larger; the message has both numbers.
    """
    if free is not None and need > free:
        raise OutOfMemory(f"{what} needs {in_mb(need)} of memory and {in_mb(free)} are free", hint)


def in_mb(size: int) -> str:
    """Write bytes in megabytes of 10^6."""
    return f"{size / 1e6:,.0f} MB"


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that can be taken without swapping, None if the system does not tell.

    Parameters
    ----------
    root
        Where `proc` and `sys` are; another folder in tests.
    """
    machine = _of_macos() if sys.platform == "darwin" and root == Path("/") else _of_linux(root)
    known = [free for free in (machine, _of_cgroup(root)) if free is not None]
    return min(known, default=None)


def _of_linux(root: Path) -> int | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", (root / "proc/meminfo").read_text(), re.MULTILINE)
        return int(found[1]) * 1024 if found else None
    return None


def _of_macos() -> int | None:
    """Free, speculative and file-backed pages: what the system gives up without swapping."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["/usr/bin/vm_stat"], check=True, capture_output=True, text=True, timeout=5)
        text = done.stdout
        page = re.search(r"page size of (\d+) bytes", text)
        counts = re.findall(
            r"^(?:Pages free|Pages speculative|File-backed pages):\s+(\d+)", text, re.MULTILINE
        )
        return int(page[1]) * sum(map(int, counts)) if page and counts else None
    return None


def _of_cgroup(root: Path) -> int | None:
    """Return the least room in this process's control groups, outer groups included, version 2 or 1."""
    with contextlib.suppress(OSError):
        rooms = []
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                top = root / "sys/fs/cgroup/memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            else:
                continue
            group = top / path.lstrip("/")
            # Inside a container the path may be the host's, unknown here: then only the top is there.
            folders = [group, *group.parents] if group != top else [top]
            rooms += [_room(f, *names) for f in folders if f == top or top in f.parents]
        return min((room for room in rooms if room is not None), default=None)
    return None


def _room(folder: Path, limit: str, usage: str, reclaimable: str) -> int | None:
    try:
        most, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
        if most == "max":
            return None
        stat = (folder / "memory.stat").read_text()
    except (OSError, ValueError):
        return None
    cache = re.search(rf"^{reclaimable} (\d+)$", stat, re.MULTILINE)
    return max(0, int(most) - used + (int(cache[1]) if cache else 0))
