"""Free memory of the machine and of the control group."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pilotfish import memory
from pilotfish.errors import OutOfMemory

if TYPE_CHECKING:
    from pathlib import Path

GB = 1 << 30


def machine(root: Path, available: int, cgroup: str, files: dict[str, str]) -> Path:
    """Lay out `proc` and `sys` as Linux does."""
    texts = {
        "proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable:   {available // 1024} kB\n",
        "proc/self/cgroup": cgroup,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    assert memory.free_bytes(machine(tmp_path, 3 * GB, "0::/\n", {})) == 3 * GB


def test_the_container_limit_counts_less_what_is_used_but_not_the_file_cache(tmp_path: Path) -> None:
    files = {
        "memory.max": str(2 * GB),
        "memory.current": str(GB),
        "memory.stat": f"anon 5\ninactive_file {GB // 2}\n",
    }
    assert memory.free_bytes(machine(tmp_path, 9 * GB, "0::/\n", files)) == GB + GB // 2


def test_the_tightest_of_nested_groups_counts(tmp_path: Path) -> None:
    files = {
        "a/memory.max": str(GB),
        "a/memory.current": "0",
        "a/memory.stat": "inactive_file 0\n",
        "a/b/memory.max": "max",
        "a/b/memory.current": "0",
        "a/b/memory.stat": "inactive_file 0\n",
    }
    assert memory.free_bytes(machine(tmp_path, 9 * GB, "0::/a/b\n", files)) == GB


def test_version_1_groups_count_too(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": str(GB),
        "memory/memory.usage_in_bytes": str(GB // 4),
        "memory/memory.stat": "total_inactive_file 0\n",
    }
    root = machine(tmp_path, 9 * GB, "5:cpu:/x\n4:memory:/docker/abc\n", files)
    assert memory.free_bytes(root) == GB - GB // 4


def test_a_system_that_tells_nothing_is_unknown_and_refuses_nothing(tmp_path: Path) -> None:
    assert memory.free_bytes(tmp_path) is None
    memory.check_room("x", 10**15, None)


@pytest.mark.skipif(sys.platform not in {"linux", "darwin"}, reason="other systems tell nothing")
def test_this_machine_tells() -> None:
    free = memory.free_bytes()
    assert free is not None
    assert 0 < free < 1 << 50


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(OutOfMemory, match=r"big needs 5,000 MB of memory and 2,000 MB are free"):
        memory.check_room("big", 5 * 10**9, 2 * 10**9)
