"""The default drafter: who serves which sequence."""

from __future__ import annotations

import itertools

import pytest

from pilotfish.control import ByGain
from pilotfish.costs import Costs
from pilotfish.drafters.auto import GLANCE, AutoDrafter
from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafters.model import WHOLE
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import ScriptedEngine, copying, sure_of, uniform
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import VOCAB, Fake, draft_model, measured

SURE = lambda _tokens: sure_of(3, VOCAB)  # noqa: E731


def sequence(*tokens: int) -> Sequence:
    return Sequence(list(tokens), Sampling(), 100)


def auto(rule: object = SURE) -> tuple[AutoDrafter, ScriptedEngine]:
    model = draft_model(rule)  # type: ignore[arg-type]
    assert isinstance(model.engine, ScriptedEngine)
    return AutoDrafter(SuffixDrafter(), model, measured(), proven()), model.engine


def proven() -> Beliefs:
    """Return beliefs of a process in which something looked up was right once."""
    beliefs = Beliefs()
    beliefs.text(sequence(1)).lookup.calibration.learn(0.97, 0, right=True)
    beliefs.texts.clear()
    return beliefs


REPEATING = (1, 2, 4, 5, 6, 7, 8) * 3


def test_a_sequence_that_repeats_itself_is_served_by_the_suffix_for_nothing() -> None:
    drafter, engine = auto()
    draft = drafter.propose([sequence(*REPEATING)], [6])[0]
    assert draft.tokens == REPEATING[:6]
    assert draft.drafters == ("suffix",) * 6
    assert engine.passes == 0


def test_a_sequence_that_does_not_is_served_by_the_model() -> None:
    drafter, engine = auto()
    s = sequence(1, 2, 3, 4)
    drafter._beliefs.text(s).right = 1
    draft = drafter.propose([s], [6])[0]
    assert draft.tokens == (3,) * 6
    assert draft.drafters == ("model",) * 6
    assert engine.passes == 6


def test_in_a_batch_each_sequence_has_its_own_and_the_model_runs_for_all_together() -> None:
    drafter, engine = auto()
    batch = [sequence(1, 2), sequence(*REPEATING), sequence(5), sequence(6, 7)]
    drafts = drafter.propose(batch, [3, 3, 0, 3])
    assert drafts[1].drafters == ("suffix",) * 3
    assert drafts[2] == NO_DRAFT
    assert {name for d in drafts for name in d.drafters} <= {"suffix", "model"}
    assert engine.passes <= 3


def test_the_model_stops_where_it_is_not_sure() -> None:
    drafter, engine = auto(uniform(VOCAB))
    assert len(drafter.propose([sequence(1, 2)], [6])[0].tokens) == 1
    assert engine.passes == 1


def test_a_suffix_that_keeps_being_wrong_is_no_longer_taken() -> None:
    """And is taken again when it has been right for a while, though it was not asked for."""
    drafter, _ = auto()
    s = sequence(*REPEATING)
    served: list[str] = []

    def steps(count: int, *, right: bool) -> None:
        for _ in range(count):
            draft = drafter.propose([s], [2])[0]
            served.append(draft.drafters[0] if draft.tokens else "")
            assert isinstance(drafter.lookup, SuffixDrafter)
            guess = drafter.lookup.readers[s.key].automaton.walk(1, 2)[0][0]
            s.tokens.append(guess if right else (guess + 1) % VOCAB)
            s.tokens += REPEATING  # a long match again
            drafter.observe(s, draft, 0)

    steps(20, right=False)
    assert served[0] == "suffix"
    assert served[-1] != "suffix"
    steps(40, right=True)
    assert served[-1] == "suffix"


def test_what_was_found_and_the_model_agrees_with_is_extended_by_the_rest_of_it() -> None:
    """A model that is nearly free verifies what was found; the target checks all of it."""
    costs = Costs(draft_ratio=0.01)
    for rows in (2, 3, 4, 6, 8):
        costs.target.learn(1, 0, 1.0)
        costs.target.learn(rows, 0, 1.0 + 0.3 * rows)
    model = draft_model(copying(VOCAB, 4))
    drafter = AutoDrafter(SuffixDrafter(), model, ByGain(costs), proven())
    s = sequence(3, 1, 2, 7, 3, 1)
    text = drafter._beliefs.text(s)
    for _ in range(40):
        text.first.add(1.0)
        text.later.add(1.0)
    draft = drafter.propose([s], [8])[0]
    assert draft.tokens[:4] == (2, 7, 3, 1)
    assert draft.drafters[0] == "model"
    assert isinstance(model.engine, ScriptedEngine)
    assert model.engine.passes < len(draft.tokens)


def test_the_model_guesses_one_token_at_a_time_until_it_has_been_right_on_a_text() -> None:
    drafter, _ = auto()
    s, other = sequence(1, 2, 3, 4), sequence(4, 3, 2, 1)
    first = drafter.propose([s], [6])[0]
    assert len(first.tokens) == 1
    s.tokens += [first.tokens[0], 9]
    drafter.observe(s, first, 1)
    assert len(drafter.propose([s], [6])[0].tokens) > 1
    assert len(drafter.propose([other], [6])[0].tokens) == 1


def test_each_wrong_guess_makes_a_model_doubtful_that_was_never_right_on_a_text() -> None:
    """However sure it is of its guesses, and however good it is on other texts."""
    beliefs, s = Beliefs(), sequence(1, 2, 3)
    text = beliefs.text(s)
    expected = [beliefs.expected(s, None, WHOLE)[0]]
    for _ in range(3):
        text.wrong += 1
        expected.append(beliefs.expected(s, None, WHOLE)[0])
    assert all(later < 0.9 * earlier for earlier, later in itertools.pairwise(expected))
    text.right = 1
    assert beliefs.expected(s, None, WHOLE)[0] == expected[0]


def test_two_tokens_are_sent_of_what_is_looked_up_until_any_was_right() -> None:
    drafter = AutoDrafter(SuffixDrafter(), None, measured())
    s = sequence(*REPEATING)
    first = drafter.propose([s], [6])[0]
    assert first.tokens == REPEATING[:2]
    s.tokens += [*first.tokens, REPEATING[2]]
    drafter.observe(s, first, 2)
    assert drafter.propose([s], [6])[0].tokens == (*REPEATING[3:7], *REPEATING[:2])
    assert len(drafter.propose([sequence(*REPEATING)], [6])[0].tokens) == 6


def test_without_a_model_every_suffix_draft_is_taken_up_to_its_floor() -> None:
    drafter = AutoDrafter(SuffixDrafter(), None, measured())
    doubtful = drafter.propose([sequence(1, 2, 4, 1, 2, 5, 1, 2, 6, 1, 2)], [16])[0]
    assert doubtful.tokens[0] == 6
    assert 0 < len(doubtful.tokens) < 4
    assert drafter.propose([sequence(1, 2, 3)], [16]) == [NO_DRAFT]


def test_a_step_that_emitted_nothing_teaches_nothing() -> None:
    drafter, _ = auto()
    s = sequence(*REPEATING)
    drafter.propose([s], [4])
    drafter.observe(s, NO_DRAFT, 0)
    text = drafter._beliefs.texts[s.key]
    assert text.lookup.right(0.5, 0) == pytest.approx(0.5)
    assert text.first.value(0.25) == pytest.approx(0.25)


def test_forgetting_frees_all_three() -> None:
    drafter, engine = auto()
    s = sequence(1, 2)
    drafter.propose([s], [2])
    drafter.forget(s.key)
    drafter.forget(s.key)
    assert not engine.sequences
    assert isinstance(drafter.lookup, SuffixDrafter)
    assert not drafter.lookup.readers
    assert not drafter._beliefs.texts
    assert not drafter.control._paces


def test_the_model_hears_what_became_of_the_suffix_drafts() -> None:
    drafter, engine = auto(copying(VOCAB, 1))
    s = sequence(1, 2, 3)
    drafter._beliefs.text(s).right = 1
    draft = drafter.propose([s], [3])[0]
    s.tokens += [*draft.tokens[:1], 9]
    drafter.observe(s, Draft(draft.tokens[:1]), 1)
    assert list(engine.sequences.values()) == [(1, 2, 3, *draft.tokens[:1])]


def test_a_short_limit_of_drafts_does_not_make_the_answer_seem_short() -> None:
    """What the model reads now is paid for by all tokens still to come."""
    drafter, _ = auto()
    [plan] = drafter._plans([sequence(1, 2)], [3])
    assert (plan.limit, plan.left) == (3, 99)


def dear(costs: Costs) -> Costs:
    """Let a row cost nearly what a token does, beside three rows and more."""
    for _ in range(40):
        for rows in (1, 2, 3, 4, 6, 8, 12, 16, 32):
            costs.target.learn(rows, 0, max(1.0, rows / 4))
    return costs


def in_a_batch(confidence: float, count: int, steps: int) -> tuple[int, list[int]]:
    """Return how many steps had a draft, where all find guesses so likely, and the limits that were set."""
    limits: list[int] = []

    def guess(_: object, limit: int) -> Draft:
        limits.append(limit)
        return Draft((3,) * limit, (confidence,) * limit, ("lookup",) * limit)

    drafter = AutoDrafter(Fake(guess), None, ByGain(dear(Costs())), proven())
    batch = [sequence(1, 2) for _ in range(count)]
    drafted = sum(any(d.tokens for d in drafter.propose(batch, [40] * count)) for _ in range(steps))
    return drafted, limits


@pytest.mark.parametrize(("count", "asked"), [(1, 40), (2, 40), (4, 16), (8, 16)])
def test_a_crowd_that_gets_no_drafts_is_looked_at_less_often(count: int, asked: int) -> None:
    drafted, limits = in_a_batch(0.01, count, 40)
    assert drafted == 0
    assert len(limits) == asked * count


def test_a_crowd_that_gets_drafts_is_looked_at_in_each_step() -> None:
    drafted, limits = in_a_batch(0.98, 3, 20)
    assert drafted == 20
    assert len(limits) == 20 * 3


@pytest.mark.parametrize(("count", "most"), [(1, 32), (4, 16), (16, 4), (100, 1)])
def test_a_crowd_shares_out_how_much_is_drafted(count: int, most: int) -> None:
    _, limits = in_a_batch(0.9, count, 1)
    assert set(limits) == {most}


def test_a_model_that_was_ruled_out_by_what_is_assumed_of_it_gets_a_chance() -> None:
    """It is assumed to be slower than the target; but it costs nothing."""
    control = ByGain(Costs(draft_ratio=1.5))
    control.costs.target.learn(1, 0, 1.0)
    model = draft_model(SURE)
    drafter, s = AutoDrafter(None, model, control), sequence(1, 2, 3)
    for step in range(GLANCE + 3):
        [plan] = drafter._plans([s], [4])
        assert bool(plan.readings) == (step == GLANCE)
        assert plan.ruled_out == (step != GLANCE)
