from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cli_calls import call
from pilotfish.engines.scripted import copying, mistaken, ngrams
from tiny import VOCAB_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = ("verify", "-m", "x", "--limit", "3", "--max-tokens", "12")
HEAD = ["kind", "schema", "version", "model", "drafts", "machine", "settings"]


def test_verify_passes_and_reports_every_run(tiny: Callable[..., Any]) -> None:
    tiny(copying(VOCAB_SIZE, 3), draft_rule=mistaken(copying(VOCAB_SIZE, 3), 0.3))
    done = call(*SMALL, "-d", "model", "-d", "suffix", "--draft-lengths", "1,4", "--json")
    report = done.json
    assert done.code == 0
    assert list(report) == [*HEAD, "promise", "ok", "totals", "runs", "first_difference", "skipped"]
    assert (report["promise"], report["ok"], report["first_difference"]) == ("bits", True, None)
    found = [(run["drafter"], run["draft_length"], run["temperature"]) for run in report["runs"]]
    assert found == [(d, n, t) for d in ("tiny-draft", "suffix") for n in (1, 4) for t in (0.0, 0.8)]
    assert report["totals"]["runs"] == 8
    assert report["totals"]["tokens_different"] == report["totals"]["rows_different"] == 0
    for counter in ("tokens_compared", "rows_compared", "drafted", "accepted", "passes"):
        assert report["totals"][counter] == sum(run[counter] for run in report["runs"]) > 0
    assert all(run["prompts"] == 3 for run in report["runs"])
    assert "passed" in done.err


def test_a_drafter_that_is_never_right_is_not_passed(tiny: Callable[..., Any]) -> None:
    tiny(draft_rule=mistaken(ngrams(VOCAB_SIZE), 1.0))
    done = call(*SMALL, "-d", "model", "--temperatures", "0")
    assert done.code == 1
    assert "not passed: tiny-draft: accepted: none" in done.out


def test_prompts_come_from_a_file(tiny: Callable[..., Any], tmp_path: Path) -> None:
    loaded = tiny()
    file = tmp_path / "prompts.jsonl"
    lines: list[dict[str, Any]] = [
        {"id": "a", "turns": ["one", "two"]},
        {"id": "b", "category": "c", "prompt": "long " * 1200},
        {"id": "c", "prompt": "three"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    args = (
        "verify", "-m", "x", "--prompts", str(file), "--max-tokens", "8", "--temperatures", "0", "--json",
    )  # fmt: skip
    first = call(*args).json
    assert first["skipped"] == ["b"]
    assert first["runs"][0]["prompts"] == 2
    assert call(*args, "--turns", "all").json["runs"][0]["prompts"] == 3
    assert call(*args, "--limit", "2").json["runs"][0]["prompts"] == 1
    assert loaded.target.engine.sequences == {}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-d", "off"], "nothing to verify"),
        (["--limit", "0"], "limit is 0"),
        (["--temperatures", "0,warm"], "temperatures has 'warm'"),
        (["--temperatures", "-1"], "temperature -1.0"),
        (["--draft-lengths", "0"], "draft_lengths has 0"),
        (["--draft-lengths", "99"], "draft_length is 99"),
        (["--draft-lengths", ""], "draft_lengths has ''"),
        (["--max-tokens", "0"], "max_tokens is 0"),
        (["--prompts", ""], "can't read the prompts file"),
        (["--prompts", "/nowhere"], "can't read the prompts file /nowhere"),
        (["--turns", "some"], "'some' is not one of"),
    ],
)
def test_bad_input_is_one_clear_line(tiny: Callable[..., Any], args: Any, said: str) -> None:
    tiny()
    assert said in call("verify", "-m", "x", *args).error


def test_names_from_outside_are_shown_as_they_are(tiny: Callable[..., Any], tmp_path: Path) -> None:
    """A tag of rich's markup in an id is text."""
    tiny()
    file = tmp_path / "prompts.jsonl"
    lines = [{"id": "[/red]", "prompt": "long " * 1200}, {"prompt": "short"}]
    file.write_text("\n".join(map(json.dumps, lines)))
    done = call(*SMALL[:3], "--prompts", str(file), "--max-tokens", "8", "--temperatures", "0")
    assert done.code == 0
    assert "skipped: ['[/red]']" in done.out
