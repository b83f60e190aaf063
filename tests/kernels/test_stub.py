"""The type stub says what the module has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_stub_is_the_modules_own(tmp_path: Path) -> None:
    """`make stubs` writes it anew."""
    fresh = tmp_path / "_kernels.pyi"
    command = [
        sys.executable,
        "-m",
        "nanobind.stubgen",
        "-q",
        "-m",
        "pilotfish.kernels._kernels",
        "-o",
        str(fresh),
    ]
    subprocess.run(command, check=True, capture_output=True)
    committed = Path(__file__).parents[2] / "src/pilotfish/kernels/_kernels.pyi"
    assert fresh.read_text() == committed.read_text()
