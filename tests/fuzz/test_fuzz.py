"""A short run of the fuzzer (`make fuzz` is the long one), and files that are large for what they say."""

from __future__ import annotations

import struct
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from fuzz.children import examined
from fuzz.examine import examine
from fuzz.mutations import damaged
from fuzz.seeds import seeds
from gguf_files import string
from pilotfish.engines.native.container import Container
from pilotfish.errors import FormatError, TemplateError
from pilotfish.text.template import ChatTemplate
from text.small_vocabulary import TOKENS, metadata, tokenizer

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 250

HEADER_BYTES = 128 << 20
"""What any header may take beside four times the file's size."""


def test_the_files_before_damage_answer(tmp_path: Path) -> None:
    """Otherwise most of what is fuzzed would end at the first error."""
    for number, file in enumerate(seeds()):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(file.build())
        outcome = examine(path)
        assert outcome.endswith("answer: ok") or file is seeds()[-1]


def test_a_damaged_file_is_a_function_of_seed_and_index() -> None:
    assert damaged(1, 7) == damaged(1, 7)
    assert len({damaged(1, index) for index in range(20)}) > 15


def test_damaged_files_give_answers_or_errors_of_the_tree_soon_and_in_little_memory() -> None:
    found = list(examined(0, range(COUNT), processes=2))
    assert {finding.index: finding.fault for finding in found if finding.fault} == {}
    assert len({finding.index for finding in found}) == COUNT
    outcomes = {finding.outcome for finding in found}
    assert any(outcome.endswith("answer: ok") for outcome in outcomes)
    assert len(outcomes) > 5


def test_a_child_that_dies_hangs_or_raises_is_a_finding_and_the_next_file_is_examined() -> None:
    found = list(examined(0, [-1, -2, -3, 0], processes=1, most_s=1.0))
    assert [finding.index for finding in found] == [-1, -2, -3, 0]
    for finding, fault in zip(found, ["dies: SIGSEGV", "hangs: too much", "Traceback", ""], strict=True):
        assert finding.fault.startswith(fault)
    assert found[-1].outcome
    assert not found[-1].fault


def array(code: int, count: int, body: bytes) -> bytes:
    return struct.pack("<IIQ", 9, code, count) + body


COUNT_ITEMS = 20_000
LARGE = {
    "small numbers": array(0, COUNT_ITEMS, b"\7" * COUNT_ITEMS),
    "numbers": array(2, COUNT_ITEMS, b"\1\xfe" * COUNT_ITEMS),
    "bools": array(7, COUNT_ITEMS, b"\1" * COUNT_ITEMS),
    "strings": array(8, COUNT_ITEMS, string("Ġa") * COUNT_ITEMS),
    "bad strings": array(8, COUNT_ITEMS, string(b"\xff") * COUNT_ITEMS),
    "one wide letter": struct.pack("<I", 8) + string("a" * 1_000_000 + "🐟"),
}


def write(path: Path, *values: bytes) -> Path:
    entries = b"".join(string(f"a{number}") + value for number, value in enumerate(values))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + entries)
    return path


@pytest.mark.parametrize("name", LARGE)
def test_a_large_header_takes_memory_by_the_size_of_the_file(name: str, tmp_path: Path) -> None:
    """At a fiftieth of the strings that are accepted, so a fiftieth of the fixed part is allowed."""
    path = write(tmp_path / "m.gguf", LARGE[name])
    tracemalloc.start()
    try:
        Container.open(path).close()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * path.stat().st_size + HEADER_BYTES // 50


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (array(8, (1 << 20) + 1, bytes(8 * ((1 << 20) + 1))), "strings in arrays"),
        (array(9, 5000, struct.pack("<IQ", 0, 0) * 5000), "arrays within arrays"),
    ],
)
def test_more_than_any_vocabulary_holds_is_refused(value: bytes, what: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=what):
        Container.open(write(tmp_path / "m.gguf", value))


def test_a_message_about_a_huge_name_or_value_stays_short(tmp_path: Path) -> None:
    key = "\x1b[2J" + "k" * 60_000
    raw = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string(key) + struct.pack("<I", 99)
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with pytest.raises(FormatError) as caught:
        Container.open(path)
    assert len(caught.value.message) < 300 + len(str(path))
    assert caught.value.message.isprintable()


def test_many_whole_tokens_cost_a_text_no_time() -> None:
    """20,000 of them, which as one pattern would be tried at each character."""
    more = [f"<{number}>" for number in range(20_000)]
    changed = metadata(tokens=[*TOKENS, *more], token_type=[1] * len(TOKENS) + [4] * len(more))
    calm = tokenizer(**{key.removeprefix("tokenizer.ggml."): value for key, value in changed.items()})
    ids = calm.encode("<" * 5000 + "<19999>" + "<" * 5000)
    assert ids[5000] == len(TOKENS) + 19_999
    assert len(ids) == 10_001


def test_a_whole_token_of_endless_length_is_refused() -> None:
    with pytest.raises(FormatError, match="has 513 characters"):
        tokenizer(tokens=[*TOKENS, "x" * 513], token_type=[1] * len(TOKENS) + [4])


@pytest.mark.parametrize("piece", ["{{a}}", "{% set x = [x, x] %}", "{{a<a<a<a<a<a<a}}", "{{[a,a,a,a,a]}}"])
def test_a_template_that_would_take_long_to_compile_is_refused(piece: str) -> None:
    with pytest.raises(TemplateError, match="words of code"):
        ChatTemplate(piece * (100_000 // len(piece)))
