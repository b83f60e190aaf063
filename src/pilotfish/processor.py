"""The processor's name: in reports, and where what was measured on it is remembered."""

from __future__ import annotations

import contextlib
import platform
import re
import subprocess
import sys
from pathlib import Path


def cpu_name() -> str:
    """Return what the processor calls itself."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=5)  # noqa: S603
            return done.stdout.strip()
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found[1]
    return platform.processor() or platform.machine()
