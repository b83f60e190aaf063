"""The Makefile: its targets, its syntax, and what it says when something fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

# What make learned after 3.81, as far as it can be told from the text.
NEWER_THAN_3_81 = {
    "shell assignment (4.0)": r"^[\w.-]+\s*!=",
    "POSIX immediate assignment (4.0)": r":::?=",
    "define with an operator (3.82)": r"^define\s+\S+\s*[:?+]?=",
    "undefine, private (3.82)": r"^(undefine|private)\s|:\s*private\s",
    "special targets (3.82 and later)": r"^\.(ONESHELL|SHELLFLAGS|RECIPEPREFIX|EXTRA_PREREQS|WAIT)\b",
    "functions (4.0 and later)": r"\$[({](file|guile|intcmp|let)\s",
    "grouped targets (4.3)": r"&:",
    "load (4.0)": r"^-?load\s",
}


def _make(*arguments: str, folder: Path = ROOT, path: str | None = None) -> subprocess.CompletedProcess[str]:
    # Nothing of a make that runs these tests may leak into the one that is tested.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    if path is not None:
        environment["PATH"] = path
    make = shutil.which("make")
    assert make is not None
    command = [make, "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _targets() -> list[str]:
    done = _make()
    assert done.returncode == 0, done.stderr
    return [line.split()[1] for line in done.stdout.splitlines()]


def _stub(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the Makefile, and `bin` with what it calls, but no Python."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("mkdir", "touch", "tail", "awk", "cat"):
        place = shutil.which(name)
        assert place is not None
        (tmp_path / "bin" / name).symlink_to(place)
    return tmp_path


def test_help_is_the_default_and_names_the_targets() -> None:
    assert {"demo", "test", "check", "format", "models", "verify", "clean"} <= set(_targets())


def test_every_target_in_the_help_exists() -> None:
    for target in _targets():
        done = _make("-n", target)
        assert done.returncode == 0, (target, done.stderr)


def test_every_target_in_the_help_is_phony() -> None:
    phony = re.findall(r"^\.PHONY:(.*)$", MAKEFILE, re.MULTILINE)
    assert set(_targets()) <= set(" ".join(phony).split())


@pytest.mark.parametrize("pattern", NEWER_THAN_3_81.values(), ids=NEWER_THAN_3_81.keys())
def test_the_syntax_is_known_to_make_3_81(pattern: str) -> None:
    assert re.search(pattern, MAKEFILE, re.MULTILINE) is None


def test_the_commands_of_the_readme_are_targets() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`|\$ )make ([a-z-]+)", readme, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= set(_targets())


def test_without_any_python_the_lines_to_type_are_shown(copy: Path) -> None:
    done = _make("demo", folder=_built(copy), path=str(copy / "bin"))
    assert done.returncode != 0
    assert "there is no python3 here" in done.stderr
    assert "sudo apt-get install -y g++ python3 python3-dev python3-venv" in done.stderr


def test_a_preflight_that_fails_stops_everything(copy: Path) -> None:
    _stub(copy / "bin", "python3", 'test "$1" = -c || { echo "the line to type" >&2; exit 1; }')
    done = _make("test", folder=_built(copy), path=str(copy / "bin"))
    assert done.returncode != 0
    assert "the line to type" in done.stderr
    assert done.stdout == ""


def test_a_failing_step_shows_its_end_and_its_log(copy: Path) -> None:
    """Here the step is the making of the virtual environment."""
    found = f"PYTHON={copy}/bin/python3\\nCXX=c++\\n"
    preflight = f"printf '{found}' >\"$3\""
    _stub(
        copy / "bin", "python3", f'case "$1" in -c) ;; -m) echo "no room"; exit 1 ;; *) {preflight} ;; esac'
    )
    done = _make("demo", folder=_built(copy), path=str(copy / "bin"))
    assert done.returncode != 0
    assert "==> making .venv with" in done.stdout
    assert "no room" in done.stderr
    assert "the whole log is in build/logs/venv.log" in done.stderr
    assert (copy / "build" / "logs" / "venv.log").read_text(encoding="utf-8") == "no room\n"
    assert not (copy / ".venv" / ".created").exists()


def test_verify_says_that_it_needs_prompts() -> None:
    done = _make("verify", "PROMPTS=no/such/file.jsonl")
    assert done.returncode != 0
    assert "make verify PROMPTS=path/to/prompts.jsonl" in done.stderr


def _built(folder: Path) -> Path:
    """Add the files that targets depend on."""
    for name in ("pyproject.toml", "CMakeLists.txt"):
        (folder / name).touch()
    return folder
