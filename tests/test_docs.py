"""The README and docs/: examples run, and what is named exists."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import pytest

import pilotfish
from pilotfish.cli import COMMANDS, cli
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.native.families import FAMILIES
from pilotfish.engines.native.kernel_types import KERNEL_TYPES
from pilotfish.engines.native.tensor_types import TENSOR_TYPES
from pilotfish.hub.registry import REGISTRY
from pilotfish.kernels import _kernels
from pilotfish.llm import LLM
from pilotfish.text.pre_tokenizers import PRE_TOKENIZERS
from tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OURS = ("src/", "tests/", "scripts/", "benchmarks/", "deploy/", "docs/")


class Block(NamedTuple):
    """A fenced block: the words behind the fence, and the text."""

    kind: str
    text: str


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks, indented ones too."""
    found = re.findall(r"^ *```(\S[^\n]*|)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [Block(kind, body) for kind, body in found]


def code(text: str) -> Iterator[str]:
    """Yield what is written as code: lines of blocks, but for Python and comments, and spans."""
    for block in blocks(text):
        if not block.kind.startswith("python"):
            yield from (re.sub(r"(^|\s)#.*", "", line) for line in block.text.splitlines())
    outside = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", outside))


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `pilotfish COMMAND …` written as code."""
    for line in code(text):
        for found in re.finditer(r"\bpilotfish (?=[a-z-])([^|;&]*)", line):
            yield re.sub(r'"[^"]*"', "QUOTED", found[1]).split()


def options_of(words: list[str]) -> set[str]:
    found = cli.get_command(click.Context(cli), words[0])
    assert found is not None, words
    if isinstance(found, click.Group):
        if not words[1:]:
            return set().union(*(options_of([*words, name]) for name in found.commands))
        found = found.commands["speed" if words[1].startswith("-") else words[1]]
    return {"-h", "--help"}.union(*(set(p.opts) | set(p.secondary_opts) for p in found.params))


def everywhere(text: str, pattern: str) -> set[str]:
    return {found for line in code(text) for found in re.findall(pattern, line)}


def run_examples(name: str, *, with_models: bool) -> dict[str, object]:
    """Run a page's Python blocks in order and compare what they print with the text block behind each."""
    found = blocks(page(name))
    names: dict[str, object] = {"__name__": "example"}
    for block, after in zip(found, [*found[1:], Block("", "")], strict=True):
        if block.kind == "python" or (block.kind == "python models" and with_models):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(block.text, name, "exec"), names)  # noqa: S102 - our own documentation
            if after.kind == "text":
                assert said.getvalue() == after.text
    return names


each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


@pytest.mark.parametrize("name", ["adding-a-drafter.md", "adding-an-engine.md", "sampling.md"])
def test_the_examples_run_and_print_what_is_shown(name: str) -> None:
    assert any(block.kind == "python" for block in blocks(page(name)))
    run_examples(name, with_models=False)


@pytest.mark.models
@pytest.mark.usefixtures("smollm2")
@pytest.mark.parametrize("name", ["adding-a-drafter.md", "sampling.md"])
def test_the_examples_with_a_model_run(name: str) -> None:
    run_examples(name, with_models=True)


def test_the_examples_of_the_readme_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a model without weights: what they check is the interface."""
    found = [block for block in blocks(PAGES[0].read_text(encoding="utf-8")) if block.kind == "python"]
    assert found
    monkeypatch.setattr(pilotfish, "load", lambda _model: LLM(tiny_model(), Drafting(Wish(suffix=True))))
    for block in found:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block.text, "README.md", "exec"), {})  # noqa: S102 - our own documentation
        assert said.getvalue()


def test_every_block_of_python_in_docs_is_run_by_a_test() -> None:
    run = {
        "adding-a-drafter.md",
        "adding-an-engine.md",
        "serving.md",
        "sampling.md",
        "server.md",
        "clients.md",
    }
    with_python = {p.name for p in PAGES[1:] for b in blocks(page(p.name)) if b.kind.startswith("python")}
    assert with_python == run


@each_page
def test_python_blocks_compile(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.kind.startswith("python"):
            compile(block.text, path.name, "exec")


@each_page
def test_every_command_and_option_named_exists(path: Path) -> None:
    for words in commands(path.read_text(encoding="utf-8")):
        if words[0] == "--version":
            continue
        assert words[0] in COMMANDS, words
        named = {word.split("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
        assert named <= options_of(words), words


@each_page
def test_options_named_alone_belong_to_some_command(path: Path) -> None:
    known = {"--version"}.union(*(options_of([command]) for command in COMMANDS))
    for line in code(path.read_text(encoding="utf-8")):
        if re.match(r"--?[a-z][a-z-]*( |$)", line):
            assert line.split()[0] in known, line


@each_page
def test_every_target_of_make_named_exists(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert everywhere(path.read_text(encoding="utf-8"), r"\bmake ([a-z][a-z-]*)") <= targets


@each_page
def test_every_test_named_exists(path: Path) -> None:
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    named = everywhere(path.read_text(encoding="utf-8"), r"(?<![\w/])test_\w+(?![\w.])")
    assert {name for name in named if f"def {name}(" not in tests} == set()


@each_page
def test_every_path_named_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text):
        assert (path.parent / link).exists(), link
    for word in (word.strip(",.;\"'") for line in code(text) for word in re.split(r"[\s=]", line)):
        name = word.split("::")[0]
        if name.removeprefix('"').startswith(OURS) and "FOLDER" not in name:
            assert list(ROOT.glob(name.rstrip("/"))), name


@each_page
def test_anchors_are_headings(path: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", path.read_text(encoding="utf-8")):
        target = (path.parent / link if link else path).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", target, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}, anchor


@each_page
def test_every_variable_named_is_read(path: Path) -> None:
    sources = [
        f for suffix in ("py", "sh") for d in ("src", "scripts") for f in (ROOT / d).rglob(f"*.{suffix}")
    ]
    read = "\n".join(file.read_text(encoding="utf-8") for file in sources)
    options = {"PILOTFISH_" + o[2:].replace("-", "_").upper() for c in COMMANDS for o in options_of([c])}
    named = everywhere(path.read_text(encoding="utf-8"), r"PILOTFISH_\w+")
    assert {name for name in named if name not in read} - options == set()


def test_the_tables_of_models_are_the_registry() -> None:
    text = page("models.md")
    for entry in REGISTRY.values():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{entry.name}`"))
        assert f"{entry.title} | {entry.size:,} | {entry.licence} |" in row
        assert (f"`{entry.draft}`" in row) == (entry.draft is not None)
        source = next(
            line
            for line in text.splitlines()
            if line.startswith(f"| `{entry.name}`") and entry.hub.repo in line
        )
        packages = entry.packages
        assert f"`{packages.pattern.format(n=1)}`" in source
        assert source.rstrip(" |").endswith(packages.version)
        assert packages.parts == 1 or f"to `part{packages.parts}`" in source


def test_the_table_of_tensor_types_says_what_they_take() -> None:
    """In the file and packed, rounded to a hundredth unless three decimals are given."""
    rows = re.findall(r"^\| ([\w, ]+) \| ([\d.]+) \| ([\d.]+) \|$", page("models.md"), re.MULTILINE)
    listed = {kind: bits for kinds, *bits in rows for kind in kinds.split(", ")}
    assert listed.keys() == KERNEL_TYPES.keys() - {"F32", "F16", "BF16"}
    sizes = {kind.name: kind for kind in TENSOR_TYPES.values()}
    for kind, bits in listed.items():
        packed = _kernels.packed_bytes(KERNEL_TYPES[kind], 1600, 2560) / (1600 * 2560)
        for said, is_ in zip(bits, (sizes[kind].nbytes / sizes[kind].block, packed), strict=True):
            assert abs(float(said) - 8 * is_) <= 0.005


def test_what_is_supported_is_listed_in_full() -> None:
    text = page("models.md")
    listed = re.search(r"^Matrices: ([\w, ]+)\.", text, re.MULTILINE)
    assert listed is not None
    assert set(listed[1].split(", ")) == set(KERNEL_TYPES)
    families = text[text.index("## Families") : text.index("## Tensor types")]
    assert set(re.findall(r"^\| `(\w+)` \|", families, re.MULTILINE)) == set(FAMILIES)
    listed = re.search(r"`tokenizer\.ggml\.pre`\):\n(.*?)\.\n", text, re.DOTALL)
    assert listed is not None
    assert re.findall(r"`([^`]+)`", listed[1]) == list(PRE_TOKENIZERS)
