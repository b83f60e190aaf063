"""The prompt sets that ship."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pilotfish.bench import sets
from pilotfish.bench.sets import NAMES, read_set
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from pilotfish.bench.prompts import Prompt

EDITS, HARD = (read_set(name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_has_its_own_id_a_category_and_one_text_that_no_other_has(name: str) -> None:
    lines = Path(sets.__file__).with_name(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    assert {frozenset(item) for item in items} == {frozenset({"id", "category", "prompt"})}
    assert len({item["id"] for item in items}) == len({item["prompt"] for item in items}) == len(items)


def test_edits_span_code_data_and_prose() -> None:
    count = {name: sum(p.category == name for p in EDITS) for name in ("code", "data", "prose")}
    assert sum(count.values()) == len(EDITS) >= 24
    assert min(count.values()) >= 8


@pytest.mark.parametrize("prompt", EDITS, ids=lambda p: p.id)
def test_an_edit_asks_for_a_text_back_whole(prompt: Prompt) -> None:
    """40 to 120 lines of code or data, or 150 to 500 words, and the copy is to begin at once."""
    (text,) = prompt.turns
    fenced = re.search(r"^```(\w+)\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    if prompt.category == "prose":
        assert 150 <= len(text.split()) <= 500
    else:
        assert fenced is not None
        assert 40 <= len(fenced[2].splitlines()) <= 120
    assert text.endswith(("Answer with the whole file only.", "Answer with the whole text only."))


def test_edits_are_over_texts_of_many_kinds() -> None:
    kinds = {kind for p in EDITS for kind in re.findall(r"^```(\w+)$", p.turns[0], re.MULTILINE)}
    assert {"python", "cpp", "javascript", "sql", "json", "yaml", "csv", "markdown"} <= kinds


def test_what_is_to_be_changed_stands_in_the_text() -> None:
    """The first name in backquotes of each task; an edit of what isn't there would be no copy."""
    checked = 0
    for prompt in EDITS:
        task, _, body = prompt.turns[0].partition("\n\n")
        if task.startswith("```"):
            body, _, task = prompt.turns[0].rpartition("\n\n")
        for name in re.findall(r"`(\w+)`", task)[:1]:
            checked += 1
            assert re.search(rf"\b{name}\b", body), prompt.id
    assert checked >= 8


def test_hard_prompts_are_short_and_of_several_kinds() -> None:
    assert len(HARD) == 12
    assert len({p.category for p in HARD}) >= 5
    assert all(len(p.turns[0].split()) < 60 for p in HARD)


def test_the_sets_have_no_id_in_common() -> None:
    assert not {p.id for p in EDITS} & {p.id for p in HARD}


def test_any_other_name_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text('{"prompt": "x"}')
    assert [p.turns for p in read_set(str(file))] == [("x",)]
    with pytest.raises(UsageError, match="can't read the prompts file edit"):
        read_set("edit")
