"""The check itself has to notice what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish.bench.prompts import Prompt
from pilotfish.bench.verify import Report, Settings, Verifier
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.scripted import ScriptedEngine, ScriptedRows, mistaken, ngrams
from tiny import VOCAB_SIZE, tiny_draft, tiny_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.engines.base import Chunk

PROMPT = Prompt("p", "other", ("once",))


class Inexact(ScriptedEngine):
    """An engine whose rows depend on how many tokens stand in the pass."""

    def __init__(self, shift: float, column: int | None = None) -> None:
        super().__init__(ngrams(VOCAB_SIZE), VOCAB_SIZE)
        self.shift, self.column = shift, column
        self.wide = False

    def forward(self, chunks: Sequence[Chunk]) -> ScriptedRows:
        """Move the rows of passes that verify something."""
        self.wide = any(chunk.wanted > 1 for chunk in chunks)
        rows = super().forward(chunks)
        if self.wide:
            computed = rows._computed

            def off(tokens: tuple[int, ...]) -> Any:
                logits = computed(tokens)
                logits[slice(None) if self.column is None else self.column] += np.float32(self.shift)
                return logits

            rows._computed = off  # type: ignore[method-assign]
        return rows


def report(engine: ScriptedEngine | None = None, **settings: Any) -> Report:
    target = tiny_model()
    if engine is not None:
        object.__setattr__(target, "engine", engine)
    drafting = Drafting(Wish.read("m"), tiny_draft(mistaken(ngrams(VOCAB_SIZE), 0.2)))
    chosen = Settings(**{"max_tokens": 20, "temperatures": (0.0,), "draft_lengths": (3,), **settings})
    verifier = Verifier(target, [drafting], chosen)
    verifier.check(PROMPT)
    return verifier.report


def test_an_exact_engine_passes() -> None:
    found = report(temperatures=(0.0, 0.8), draft_lengths=(1, 3, 8))
    assert found.failure == ""
    assert found.first_difference is None
    assert found.total("tokens_compared") == found.total("rows_compared") == 6 * 20


def test_rows_that_differ_are_found_though_the_tokens_agree() -> None:
    """A shift of all logits changes no token, but the bits."""
    found = report(Inexact(0.25))
    assert found.total("tokens_different") == 0
    assert found.total("rows_different") > 0
    assert "rows different" in found.failure
    first = found.first_difference
    assert first is not None
    assert first.plain == first.speculative
    assert first.max_abs_diff == pytest.approx(0.25, abs=1e-5)
    assert first.margin > 0
    assert first.position > len("once")


def test_tokens_that_differ_are_found_with_position_and_margin() -> None:
    found = report(Inexact(100.0, column=7))
    assert found.total("tokens_different") > 0
    first = found.first_difference
    assert first is not None
    assert (first.prompt_id, first.run, first.speculative) == ("p", 0, 7)
    assert first.plain != 7
    assert first.max_abs_diff == pytest.approx(100.0, abs=1e-4)
    # A logit moved by more than the margin explains the token, which is what a near-tie means.
    assert found.total("near_ties") == 1
    assert found.failure


def test_nothing_drafted_is_not_passed() -> None:
    verifier = Verifier(tiny_model(), [Drafting(Wish.read("suffix"))], Settings(4, (0.0,), (2,)))
    assert "rows compared: none" in verifier.report.failure
    verifier.check(PROMPT)
    assert "none, so nothing was verified" in verifier.report.failure


def test_plain_answers_are_computed_once_a_temperature() -> None:
    engine = ScriptedEngine(ngrams(VOCAB_SIZE), VOCAB_SIZE)
    alone = report(engine, draft_lengths=(1,))
    passes = engine.passes
    engine = ScriptedEngine(ngrams(VOCAB_SIZE), VOCAB_SIZE)
    twice = report(engine, draft_lengths=(1, 2))
    extra = twice.runs[1].passes + 1
    assert engine.passes == passes + extra
    assert alone.runs[0] == twice.runs[0]


def test_a_prompt_that_fills_the_context_is_skipped_and_said() -> None:
    verifier = Verifier(tiny_model(context=4), [Drafting(Wish.read("suffix"))], Settings(raw=True))
    verifier.check(PROMPT)
    assert verifier.report.skipped == ["p"]
    assert verifier.report.failure


def test_a_drafter_that_drafted_nothing_is_not_passed_though_another_did() -> None:
    """Else a drafter that always fails, and so costs only speed, would pass beside one that works."""
    works = Drafting(Wish.read("m"), tiny_draft(ngrams(VOCAB_SIZE)))
    idle = Drafting(Wish.read("suffix"))
    verifier = Verifier(tiny_model(), [works, idle], Settings(4, (0.0,), (2,)))
    verifier.check(PROMPT)
    assert [run.drafted > 0 for run in verifier.report.runs] == [True, False]
    assert verifier.report.failure == "suffix: drafted: none, so nothing was verified"
