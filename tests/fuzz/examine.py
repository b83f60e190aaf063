"""Uses a file as a user would: it ends in success or an error of our tree, and takes little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pilotfish
from pilotfish.engines.native.container import Container
from pilotfish.errors import ModelError, PilotfishError, TemplateError
from pilotfish.text.template import ChatTemplate
from pilotfish.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIMES_SIZE = 4
"""A file may take this many times its size in memory…"""

BASE_BYTES = 8 << 20
"""…and this much more, whatever its size, for its header and tokenizer…"""

TEMPLATE_BYTES = 64 << 20
"""…or this much more while its template runs, whose budget is fixed."""

LONGEST_MESSAGE = 1000
"""Characters of an error's message and hint."""

TEXT = "hello <|im_start|>user\nhello\n\n<tool_call>é 鱼🐟 [PAD267] \x00  123"
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief, a."},
    {"role": "user", "content": "hello\n<|im_end|>"},
    {"role": "assistant", "content": "hell"},
    {"role": "user", "content": "oé 🐟"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"x": [1, None, "y"]}}}]


class Broken(Exception):
    """What a file must not bring about."""


def examine(path: Path, *, threads: int = 1) -> str:
    """Read a file, use its tokenizer and its template, and answer with it; return how it ended.

    Raises
    ------
    Broken
        An error whose message is too long.
    Exception
        Whatever the code under test raises that is not of its tree.
    """
    read: dict[str, Any] = {}
    header = _ended(lambda: read.update(_read(path)), ModelError)
    if header:
        return f"header: {header}"
    tokens = _ended(lambda: _tokenize(read["metadata"]), ModelError)
    chat = _ended(lambda: _render(read["metadata"]), TemplateError)
    answer = _ended(lambda: _answer(path, threads), PilotfishError)
    return f"tokenizer: {tokens or 'ok'}, template: {chat or 'ok'}, answer: {answer or 'ok'}"


def measure(path: Path) -> int:
    """Return the most bytes that reading a file and using its tokenizer and template took at a time.

    Raises
    ------
    Broken
        More than a file of this size may take.
    """
    size = path.stat().st_size
    tracemalloc.start()
    try:
        read: dict[str, Any] = {}
        _ended(lambda: read.update(_read(path)), ModelError)
        if not read:
            return _peak("header", TIMES_SIZE * size + BASE_BYTES)
        _ended(lambda: _tokenize(read["metadata"]), ModelError)
        peak = _peak("header and tokenizer", TIMES_SIZE * size + BASE_BYTES)
        _ended(lambda: _render(read["metadata"]), TemplateError)
        return max(peak, _peak("template", TIMES_SIZE * size + TEMPLATE_BYTES))
    finally:
        tracemalloc.stop()


def _peak(what: str, most: int) -> int:
    """Return the peak since the last one, which is forgotten."""
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    if peak > most:
        raise Broken(f"{what}: {peak} bytes of memory, {most} are allowed")
    return peak


def _ended(action: Callable[[], object], expected: type[PilotfishError]) -> str:
    """Return the name of the error that an action ended with, empty if with none."""
    try:
        action()
    except expected as error:
        if not error.message or len(str(error)) > LONGEST_MESSAGE:
            raise Broken(f"a message of {len(str(error))} characters: {str(error)[:300]}") from error
        return type(error).__name__
    return ""


def _read(path: Path) -> dict[str, Any]:
    with Container.open(path) as container:
        for name, info in container.tensors.items():
            assert len(container.data(name)) == info.nbytes
            container.read_ahead(name)
            container.release(name)
        return {"metadata": container.metadata}


def _tokenize(metadata: Mapping[str, object]) -> None:
    tokenizer = Tokenizer.from_metadata(metadata)
    for special in (False, True):
        ids = tokenizer.encode(TEXT, special=special)
        assert all(0 <= token < tokenizer.vocab_size for token in ids)
        tokenizer.decode(ids, special=special)
    tokenizer.decode(range(tokenizer.vocab_size))
    assert 0 <= tokenizer.token_count <= tokenizer.vocab_size


def _render(metadata: Mapping[str, object]) -> None:
    template = ChatTemplate.from_metadata(metadata)
    template.render(MESSAGES, tools=TOOLS)


def _answer(path: Path, threads: int) -> None:
    llm = pilotfish.load(str(path), draft="suffix", threads=threads, offline=True, notice=lambda _text: None)
    with llm:
        result = llm.generate(TEXT, max_tokens=3, draft_length=2, seed=1, temperature=0.5)
        assert len(result.tokens) <= 3
        if llm.has_template:
            llm.chat(MESSAGES, max_tokens=2, draft_length=2)
