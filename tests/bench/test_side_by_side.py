"""Answers made in turns are the same answers, and a slow moment of the machine is everyone's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from pilotfish.bench.side_by_side import TURN, Entrant, answer_side_by_side
from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import ScriptedEngine, copying
from pilotfish.errors import EngineError
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

PROMPT = [5, 6, 7, 8, 5, 6]


def entrants(
    engine: ScriptedEngine, clock: Callable[[], float] = lambda: 0.0, lengths: tuple[int, ...] = (0, 4, 0)
) -> list[Entrant]:
    return [
        Entrant(
            Decoder(engine, SuffixDrafter() if length else None, FixedLength(length), clock=clock),
            Sequence(list(PROMPT), Sampling(), 40),
        )
        for length in lengths
    ]


def engine_of(vocab: int = 20) -> ScriptedEngine:
    return ScriptedEngine(copying(vocab_size=vocab, back=4), vocab)


def test_answers_in_turns_are_those_made_alone() -> None:
    engine = engine_of()
    alone = entrants(engine, lengths=(0,))
    answer_side_by_side(alone)
    together = entrants(engine)
    answer_side_by_side(together)
    assert [one.ids for one in together] == [alone[0].ids] * 3
    assert together[1].sequence.stats.accepted > 20
    assert not engine.sequences


def test_the_prompt_is_read_once_and_counts_for_all() -> None:
    engine = engine_of()
    clock = itertools.count().__next__
    made = entrants(engine, lambda: float(clock()))
    answer_side_by_side(made)
    assert engine.tokens < len(PROMPT) + 3 * 40 + 3 + 200
    assert len({one.sequence.stats.prompt_s for one in made}) == 1


def slow_for_a_while(engine: ScriptedEngine) -> Callable[[], float]:
    """A second a pass, but five in the passes 30 to 60."""
    return lambda: engine.passes + 4.0 * min(max(engine.passes - 30, 0), 30)


@pytest.mark.parametrize(("turn", "apart"), [(2, False), (1000, True)])
def test_a_slow_moment_of_the_machine_is_shared(turn: int, apart: bool) -> None:
    """In turns, both take as long within a tenth; one after the other, they do not."""
    engine = engine_of()
    made = entrants(engine, slow_for_a_while(engine), (0, 0))
    answer_side_by_side(made, turn)
    first, second = (one.sequence.stats.decode_s for one in made)
    assert (abs(first / second - 1) > 0.1) == apart


def test_all_are_closed_when_one_fails() -> None:
    engine = engine_of()
    made = entrants(engine)
    passes: Iterator[int] = itertools.count()
    forward = engine.forward

    def failing(*args: object) -> object:
        if next(passes) == 2 * TURN:
            raise EngineError("no power", "plug it in")
        return forward(*args)  # type: ignore[arg-type]

    engine.forward = failing  # type: ignore[method-assign, assignment]
    with pytest.raises(EngineError, match="no power"):
        answer_side_by_side(made)
    assert not engine.sequences
