"""The rules of the house: small files, and dependencies that point one way."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import pilotfish

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "pilotfish"
SUFFIXES = {".py", ".pyi", ".cpp", ".h", ".inl"}

SOURCES = sorted(file for file in PACKAGE.rglob("*") if file.suffix in SUFFIXES)
MODULES = [file for file in SOURCES if file.suffix == ".py"]

# What decode.py may know: token ids, and the protocols of what proposes and evaluates them.
DECODE_MAY_IMPORT = {
    "control",
    "drafters.base",
    "drafters.guard",
    "engines.base",
    "errors",
    "logprobs",
    "prompt",
    "sampling",
    "sequence",
    "stats",
    "verdict",
}

# Folder or module -> what it never imports.
ABOVE = ("answer", "bench", "cli", "drafting", "llm", "loading", "server", "serving")
NEVER = {
    "engines": ("decode", "drafters", "hub", "text", *ABOVE),
    "drafters": ("decode", "engines.native", "engines.scripted", "hub", "text", *ABOVE),
    "text": ("decode", "drafters", "engines", "hub", *ABOVE),
    "hub": ("decode", "drafters", "engines", "kernels", "text", *ABOVE),
    "corpus": ("decode", "drafters", "engines", "kernels", *ABOVE),
    "costs": ("decode", "drafters", "engines", "hub", "kernels", "text", *ABOVE),
    "calibration": ("decode", "drafters", "engines", "hub", "kernels", "text", *ABOVE),
    "sampling": ("decode", "drafters", "engines", "hub", "text", *ABOVE),
    "history": ("decode", "drafters", "engines", "hub", "kernels", "text", *ABOVE),
    "llm": ("bench", "cli", "server", "serving"),
    "bench": ("cli", "server"),
    "server": ("bench", "cli", "engines.native", "engines.scripted", "hub", "kernels", "loading"),
    "serving": (
        "answer",
        "bench",
        "cli",
        "drafting",
        "engines.native",
        "hub",
        "kernels",
        "llm",
        "loading",
        "text",
    ),
}
# Exceptions, in type hints only: the tokenizer is built from what a container holds.
IN_TYPE_HINTS = {("text", "engines")}


class Import(NamedTuple):
    """One import: the module below `pilotfish`, and whether it serves type hints only."""

    module: str
    types_only: bool


def _walk(node: ast.AST, *, types_only: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    yield node, types_only
    for child in ast.iter_child_nodes(node):
        guarded = (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and child in node.body
        )
        yield from _walk(child, types_only=types_only or guarded)


def _is_module(name: str) -> bool:
    place = SRC.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


def imports(source: str) -> set[Import]:
    """Return what a module imports from pilotfish, wherever in it the import stands."""
    found = set()
    for node, types_only in _walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            module = node.module or ""
            inner = [f"{module}.{alias.name}" for alias in node.names]
            names = [name if _is_module(name) else module for name in inner]
        found |= {
            Import(name.removeprefix("pilotfish").removeprefix("."), types_only)
            for name in names
            if name.split(".")[0] == "pilotfish"
        }
    return found


def _within(module: str, parent: str) -> bool:
    return module == parent or module.startswith(parent + ".")


def _name(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import numpy
import pilotfish.stats
from pilotfish import hub, load
if TYPE_CHECKING:
    from pilotfish.engines.base import Engine
else:
    from pilotfish.text import tokenizer
def function():
    from pilotfish.engines import base
"""
    assert imports(source) == {
        Import("stats", types_only=False),
        Import("hub", types_only=False),
        Import("", types_only=False),
        Import("engines.base", types_only=True),
        Import("text.tokenizer", types_only=False),
        Import("engines.base", types_only=False),
    }


@pytest.mark.parametrize("part", sorted(NEVER))
def test_dependencies_point_one_way(part: str) -> None:
    files = [file for file in MODULES if _within(_name(file), part)]
    assert files
    wrong = [
        f"{_name(file)} imports {found.module}"
        for file in files
        for found in imports(_read(file))
        for other in NEVER[part]
        if _within(found.module, other) and not (found.types_only and (part, other) in IN_TYPE_HINTS)
    ]
    assert wrong == []


def test_the_loop_knows_protocols_only() -> None:
    imported = {found.module for found in imports(_read(PACKAGE / "decode.py"))}
    assert imported <= DECODE_MAY_IMPORT


def test_only_the_command_line_imports_the_command_line() -> None:
    importers = {
        _name(file)
        for file in MODULES
        if any(_within(found.module, "cli") for found in imports(_read(file))) and _name(file) != "__main__"
    }
    assert all(_within(name, "cli") for name in importers)


def test_the_loop_fits_in_200_lines() -> None:
    assert len(_read(PACKAGE / "decode.py").splitlines()) < 200


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {_name(file): len(_read(file).splitlines()) for file in SOURCES}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_no_line_of_cpp_is_longer_than_110_columns() -> None:
    files = [file for file in SOURCES if file.suffix in {".cpp", ".h", ".inl"}]
    assert files
    long = [
        f"{file.name}:{number}"
        for file in files
        for number, line in enumerate(_read(file).splitlines(), start=1)
        if len(line) > 110
    ]
    assert long == []


def test_nothing_is_left_to_be_done_in_a_comment() -> None:
    pattern = re.compile(r"\b(TODO|FIXME|XXX)\b")
    assert [_name(file) for file in SOURCES if pattern.search(_read(file))] == []


def test_the_public_names_are_sorted_and_exist() -> None:
    """Sorted as the linter does it: constants, classes, functions."""

    def group(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2), name

    assert sorted(pilotfish.__all__, key=group) == pilotfish.__all__
    assert len(set(pilotfish.__all__)) == len(pilotfish.__all__)
    for name in pilotfish.__all__:
        assert getattr(pilotfish, name) is not None
