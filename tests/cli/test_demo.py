from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cli_calls import call
from pilotfish.engines.scripted import copying, mistaken, ngrams
from tiny import VOCAB_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable


def test_demo_answers_twice_and_compares(tiny: Callable[..., Any]) -> None:
    tiny(draft_rule=mistaken(ngrams(VOCAB_SIZE), 0.2))
    done = call("demo", "-m", "x", "--max-tokens", "50")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("\nidentical: yes\n")
    for row in ("tokens", "passes", "tokens per pass", "acceptance", "ms per token", "ratio"):
        assert f"\n{row} " in done.out


def test_demo_as_json_is_one_line(tiny: Callable[..., Any]) -> None:
    tiny()
    report = call(
        "demo", "-m", "x", "--max-tokens", "40", "--json", "--temperature", "0.7", "--draft-length", "4"
    ).json
    assert (report["kind"], report["identical"]) == ("demo", True)
    assert report["plain"]["tokens"] == report["drafted"]["tokens"]
    assert report["plain"]["stats"]["drafted"] == 0
    assert report["drafted"]["stats"]["accepted"] > 0
    assert report["ratio"] > 0
    assert report["settings"]["seed"] is not None


def test_answers_that_are_not_identical_are_exit_code_1(
    tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pilotfish.answer import Answer

    tiny(copying(VOCAB_SIZE, 3))
    known = vars(Answer)["tokens"].fget
    monkeypatch.setattr(Answer, "tokens", property(lambda self: [*known(self), self.stats.drafted]))
    done = call("demo", "-m", "x", "--max-tokens", "20")
    assert done.code == 1
    assert done.out.endswith("\nidentical: no\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-d", "off"], "nothing to show"),
        (["--draft-length", "0"], "nothing to show"),
        (["--max-tokens", "-2"], "max_tokens is -2"),
        ([""], "the prompt is empty"),
    ],
)
def test_bad_input_is_one_clear_line(tiny: Callable[..., Any], args: Any, said: str) -> None:
    loaded = tiny()
    assert said in call("demo", "-m", "x", *args).error
    assert loaded.asked == ()
