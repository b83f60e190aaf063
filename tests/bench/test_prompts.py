from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pilotfish.bench.prompts import BUILT_IN, Prompt, read_prompts, take
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def prompt(name: str, category: str) -> Prompt:
    return Prompt(name, category, ("x",))


def test_a_limit_takes_round_robin_over_categories_in_file_order() -> None:
    prompts = [prompt(*pair) for pair in ("1b", "2b", "3a", "4b", "5a", "6c")]
    assert [p.id for p in take(prompts, 4)] == ["1", "3", "6", "2"]
    assert [p.id for p in take(prompts, 99)] == ["1", "3", "6", "2", "5", "4"]
    assert take(prompts, None) == prompts


def test_lines_have_turns_or_a_prompt_and_maybe_a_category_and_an_id(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text(
        '{"question_id": 81, "category": "writing", "turns": ["a", "b"], "more": 1}\r\n'
        '\n{"id": "x", "prompt": "c"}\n{"prompt": "d\u2028e"}'
    )
    assert read_prompts(file) == [
        Prompt("81", "writing", ("a", "b")),
        Prompt("x", "other", ("c",)),
        Prompt("4", "other", ("d\u2028e",)),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "neither turns nor prompt"),
        ('{"turns": []}', "is not text"),
        ('{"turns": "a"}', "is not text"),
        ('{"turns": ["a", 3]}', "is not text"),
        ('{"prompt": ""}', "is not text"),
        ('{"prompt": "a", "category": 3}', "category is 3"),
        ('{"prompt": "a", "id": []}', r"id is \[\]"),
    ],
)
def test_a_malformed_line_is_named_by_its_number(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "prompts"
    file.write_text(f'{{"prompt": "fine"}}\n\n{line}\n')
    with pytest.raises(UsageError, match=f"line 3 of .*{said}"):
        read_prompts(file)


def test_a_file_without_prompts_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text("\n\n")
    with pytest.raises(UsageError, match="has no prompts"):
        read_prompts(file)
    with pytest.raises(UsageError, match="can't read"):
        read_prompts(tmp_path)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_prompts(file)


def test_our_own_prompts_span_categories() -> None:
    assert 8 <= len(BUILT_IN) <= 12
    assert len({p.category for p in BUILT_IN}) >= 6
    assert len({p.id for p in BUILT_IN}) == len(BUILT_IN)
