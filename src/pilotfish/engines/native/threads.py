"""How many threads a pass may use: what affinity and the container's limit leave."""

from __future__ import annotations

import math
import os
from pathlib import Path

MOST_THREADS = 1024


def default_threads(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of usable cores, at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count() or 1
    return max(1, min(cores, _container_limit(cgroup) or cores, MOST_THREADS))


def _container_limit(cgroup: Path) -> int | None:
    """Return the cores that a cgroup's quota amounts to, rounded up (version 2, then 1)."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        cores = math.ceil(int(quota) / int(period))
    except (ValueError, ZeroDivisionError):
        return None  # "max": no limit
    return cores if cores > 0 else None
