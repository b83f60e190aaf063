"""The names that `import pilotfish` promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pilotfish


def test_public_names_are_sorted_and_there() -> None:
    assert pilotfish.__all__ == sorted(
        pilotfish.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
    for name in pilotfish.__all__:
        assert getattr(pilotfish, name).__name__ == name


def test_dir_lists_the_public_names() -> None:
    assert set(pilotfish.__all__) <= set(dir(pilotfish))


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        pilotfish.lod  # noqa: B018


def test_importing_imports_nothing_heavy() -> None:
    """Nor do `pilotfish --help` and `--version`; what a command needs is imported when it runs."""
    heavy = "numpy rich tokenizers jinja2 huggingface_hub"
    code = (
        "import sys, pilotfish, pilotfish.cli\n"
        "for name in pilotfish.cli.COMMANDS: pilotfish.cli.cli.get_command(None, name)\n"
        f"print([name for name in {heavy.split()} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
