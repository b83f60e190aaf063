"""The fake engine: what it adds to the contract, and its ready-made rules."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.decode import Decoder
from pilotfish.engines.base import Chunk
from pilotfish.engines.scripted import ScriptedEngine, answers, copying, mistaken, ngrams, uniform
from pilotfish.errors import EngineError, NumericsError
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence


def said(engine: ScriptedEngine, prompt: list[int], count: int, sampling: Sampling = Sampling()) -> list[int]:  # noqa: B008
    sequence = Sequence(prompt, sampling, count)
    return [token.id for token in Decoder(engine).run(sequence)]


def test_each_prompt_gets_its_own_answer_then_the_end() -> None:
    engine = ScriptedEngine(answers({(1,): [2, 3], (1, 4): [5]}, 8, end=7), 8)
    assert said(engine, [1], 4) == [2, 3, 7, 7]
    assert said(engine, [1, 4], 2) == [5, 7]
    assert said(engine, [6], 1) == [7]


def test_uniform_logits_are_greedily_0_and_sampled_anything() -> None:
    engine = ScriptedEngine(uniform(5), 5)
    assert said(engine, [1], 3) == [0, 0, 0]
    assert set(said(engine, [1], 60, Sampling(temperature=1.0, seed=1))) == set(range(5))


def test_copying_repeats_what_stood_before() -> None:
    assert said(ScriptedEngine(copying(9, back=3), 9), [4, 5, 6], 5) == [4, 5, 6, 4, 5]


def test_ngrams_depend_on_the_last_tokens_only_and_on_the_seed() -> None:
    rule = ngrams(16, order=2, seed=1)
    assert np.array_equal(rule((1, 2, 3)), rule((9, 2, 3)))
    assert not np.array_equal(rule((2, 3)), rule((3, 2)))
    assert not np.array_equal(rule((2, 3)), ngrams(16, order=2, seed=2)((2, 3)))
    assert np.argmax(rule((2, 3))) == 14  # the same on every machine


def test_ngrams_are_sure_of_few_tokens() -> None:
    """So that sampled answers repeat themselves as text does."""
    rule = ngrams(16, order=2)
    logits = np.array([rule((a, b)) for a in range(16) for b in range(16)], np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert 0.4 < (weights.max(axis=1) / weights.sum(axis=1)).mean() < 0.9


def test_mistaken_is_wrong_for_its_share_of_contexts() -> None:
    right = copying(9, 1)
    wrong = mistaken(right, 0.25)
    differ = [np.argmax(right((i, 3))) != np.argmax(wrong((i, 3))) for i in range(400)]
    assert 0.18 < np.mean(differ) < 0.32
    assert not any(np.argmax(mistaken(right, 0)((i, 3))) != 3 for i in range(50))


def test_a_failure_is_raised_once_and_nothing_changes() -> None:
    engine = ScriptedEngine(uniform(4), 4)
    handle = engine.open()
    engine.failures[1] = KeyboardInterrupt()
    engine.forward([Chunk(handle, [1], wanted=1)])
    with pytest.raises(KeyboardInterrupt):
        engine.forward([Chunk(handle, [2], wanted=1)])
    assert engine.sequences == {handle: (1,)}
    engine.forward([Chunk(handle, [3], wanted=1)])
    assert engine.sequences == {handle: (1, 3)}


def test_passes_rows_and_tokens_are_counted() -> None:
    engine = ScriptedEngine(uniform(4), 4)
    first, second = engine.open(), engine.open()
    engine.forward([Chunk(first, [1, 2, 3], wanted=2), Chunk(second, [1], wanted=1)])
    engine.forward([Chunk(first, [1], wanted=0)])
    assert (engine.passes, engine.rows, engine.tokens) == (2, 3, 5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_every_look_at_a_row_that_is_not_finite_is_an_error(bad: float) -> None:
    engine = ScriptedEngine(lambda _tokens: [0.0, bad, 0.0, 0.0], 4)
    rows = engine.forward([Chunk(engine.open(), [1], wanted=1)])
    for look in (rows.argmax, rows.margin, rows.digest, rows.logits):
        with pytest.raises(NumericsError, match="position 1"):
            look(0)
    with pytest.raises(NumericsError):
        rows.choose(0, Sampling(), 1)
    with pytest.raises(NumericsError):
        rows.probability(0, 1)


def test_only_the_positions_named_are_not_a_number() -> None:
    engine = ScriptedEngine(uniform(4), 4)
    engine.nan_at.add(2)
    rows = engine.forward([Chunk(engine.open(), [1, 1, 1], wanted=3)])
    assert (rows.argmax(0), rows.argmax(2)) == (0, 0)
    with pytest.raises(NumericsError):
        rows.argmax(1)


def test_rows_are_not_read_after_the_next_pass() -> None:
    engine = ScriptedEngine(uniform(4), 4)
    handle = engine.open()
    rows = engine.forward([Chunk(handle, [1], wanted=1)])
    engine.forward([Chunk(handle, [1], wanted=1)])
    with pytest.raises(EngineError, match="next pass"):
        rows.argmax(0)


@pytest.mark.parametrize("row", [-1, 1])
def test_a_row_that_was_not_wanted_is_refused(row: int) -> None:
    engine = ScriptedEngine(uniform(4), 4)
    rows = engine.forward([Chunk(engine.open(), [1, 2], wanted=1)])
    with pytest.raises(EngineError, match=f"row {row} "):
        rows.argmax(row)


def test_a_rule_of_the_wrong_width_is_named() -> None:
    engine = ScriptedEngine(uniform(3), 4)
    rows = engine.forward([Chunk(engine.open(), [1], wanted=1)])
    with pytest.raises(EngineError, match=r"shape \(3,\) for 4 tokens"):
        rows.argmax(0)
