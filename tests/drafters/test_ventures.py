"""Asking the model where it has only been wrong so far: what it may cost, and who pays."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.control import EARNED, MOST_EARNED, ByGain, Step
from pilotfish.costs import Costs
from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafters.model import WHOLE
from pilotfish.drafters.plan import Chooser, Plan, Reading
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from simulation import AVX2, PROMPT, Machine, Text, cost

PASS_S = 0.05


def known() -> Costs:
    """Return the costs of a machine on which a pass takes 0.05 s, of up to 4 rows too."""
    costs = Costs(0.3)
    for _ in range(30):
        for rows in (1, 2, 4):
            costs.target.learn(rows, 0, PASS_S)
    return costs


def sequence() -> Sequence:
    return Sequence([1, 2, 3], Sampling(), 200)


def asks(fund: float, useful: float, usual: float = 0.8, first: float = 0.05) -> Plan:
    """Return the plan of a sequence on which the model was wrong so far."""
    reading = Reading(2, WHOLE, first, first, (usual, usual), useful)
    plan = Plan(sequence(), 8, 150, NO_DRAFT, [], [reading])
    Chooser(ByGain(known()), patience=0.0).choose([plan], fund=fund)
    return plan


def test_it_is_asked_where_it_promises_more_than_asking_costs_and_the_fund_has_that() -> None:
    assert not asks(fund=0.0, useful=0.5).asks
    venture = asks(fund=1.0, useful=0.5)
    assert venture.asks
    assert 0 < venture.venture <= PASS_S
    assert not asks(fund=venture.venture * 0.99, useful=0.5).asks
    assert asks(fund=venture.venture * 1.01, useful=0.5).asks


def test_it_is_not_asked_where_it_hardly_can_be_of_use_or_would_not_pay_if_it_were() -> None:
    assert not asks(fund=10.0, useful=0.001).asks
    assert not asks(fund=10.0, useful=0.9, usual=0.2).asks


def test_nothing_is_ventured_nor_earned_in_a_batch() -> None:
    """There a row may cost most of what its guess brings."""
    plans = [
        Plan(sequence(), 8, 150, NO_DRAFT, [], [Reading(2, WHOLE, 0.05, 0.05, (0.8, 0.8), 0.5)])
        for _ in range(2)
    ]
    control = ByGain(known())
    Chooser(control, patience=0.0).choose(plans, fund=10.0)
    assert not any(plan.asks for plan in plans)
    views = [plan.view for plan in plans]
    control.limits(views)
    for view in views:
        control.observe(view, NO_DRAFT, 3, lambda: 0.5)
    control.timed(Step(8, 0, 0.0, PASS_S))
    assert control.earned(0.0) == 0


def test_what_was_looked_up_and_is_given_up_counts_as_a_loss() -> None:
    """The usual model would do better; but it is the likely gain of these guesses that is at stake too."""
    draft = Draft((5, 6), (0.5, 0.5), ("suffix",) * 2)
    plan = Plan(sequence(), 8, 150, draft, [0.5, 0.25], [Reading(2, WHOLE, 0.05, 0.05, (0.95, 0.95), 0.5)])
    Chooser(ByGain(known()), patience=0.0).choose([plan], fund=1.0)
    assert plan.asks
    assert plan.venture > asks(fund=1.0, useful=0.5).venture + 0.2 * PASS_S


def test_nothing_is_ventured_where_it_is_expected_to_pay_anyway() -> None:
    expected = asks(fund=10.0, useful=0.9, first=0.8)
    assert expected.asks
    assert expected.venture == 0


@pytest.mark.parametrize(
    ("tokens", "saved"), [((1,), 0.0), ((3,), 1.5), ((1, 3), 1.0), ((3, 1, 1, 1, 1), 0.0)]
)
def test_a_tenth_of_what_drafts_save_is_earned_of_the_good_and_the_bad_together(
    tokens: tuple[int, ...], saved: float
) -> None:
    """Steps of 1.5 passes each: three tokens save as many, one loses half of a pass."""
    control, s = ByGain(known()), sequence()
    for count in tokens:
        control.limits([s])
        control.observe(s, NO_DRAFT, count - 1, lambda: 0.5)
        control.timed(Step(4, 0, 0.5 * PASS_S, PASS_S))
    assert control.earned(0.0) == pytest.approx(EARNED * saved * PASS_S, rel=0.05, abs=1e-9)
    assert control.earned(0.0) == 0
    assert control.earned(100.0) == pytest.approx(MOST_EARNED * PASS_S, rel=0.05)


@given(confidence=st.floats(0.1, 0.9), more=st.floats(0.01, 0.09))
def test_a_wrong_guess_makes_a_model_less_likely_of_use_the_surer_it_was(
    confidence: float, more: float
) -> None:
    def after(confidence: float, *, right: bool) -> float:
        beliefs, s = Beliefs(), sequence()
        text = beliefs.text(s)
        before = text.useful
        beliefs.claim(s, Draft((1,), (confidence,), ("m",)), [text.model], level=WHOLE, certainty=0.1)
        s.tokens.append(1 if right else 2)
        beliefs.learn(s)
        return text.useful / before

    assert after(confidence + more, right=False) < after(confidence, right=False) < 1
    assert after(confidence, right=True) > 1


def test_a_bad_start_does_not_keep_the_model_away_where_drafts_have_helped_before() -> None:
    """A process that has earned something asks again; one that has not may leave the model alone for long."""
    costs, beliefs = Costs(0.4), Beliefs()
    machine = Machine(cost(AVX2), cost(AVX2, 0.018))
    machine.answers([Text(lambda _: 0.7, lambda _: 0.7)], 150, "model", costs=costs, beliefs=beliefs)
    new = copy.deepcopy(beliefs)
    new.earned = 0.0
    assert beliefs.earned > 0

    def ratio(claim: float, known: Beliefs) -> float:
        """Return how much faster a text is on which the model is wrong for its first 12 tokens."""
        known, well = copy.deepcopy(known), PROMPT + 12
        late = Text(lambda p: 0.9 * (p >= well), lambda p: 0.9 if p >= well else claim, id=1)
        [answer] = machine.answers([late], 200, "model", costs=copy.deepcopy(costs), beliefs=known)
        return machine.answer(late, 200, "off").seconds / answer.seconds

    claims = (0.3, 0.5, 0.7)
    assert min(ratio(claim, beliefs) for claim in claims) >= 1.3
    assert min(ratio(claim, new) for claim in claims) <= 1.1


def test_a_model_that_is_of_no_use_costs_no_more_than_was_earned_beside_the_two_percent() -> None:
    """Though it is good on other texts, and unsure of its guesses on this one."""
    machine, costs, beliefs = Machine(cost(AVX2), cost(AVX2, 0.015)), Costs(0.4), Beliefs()
    machine.answers([Text(lambda _: 0.7, lambda _: 0.7)], 150, "model", costs=costs, beliefs=beliefs)
    wrong = Text(lambda _: 0.0, lambda _: 0.3, id=1)
    plain, earned = machine.answer(wrong, 200, "off").seconds, beliefs.earned
    [answer] = machine.answers([wrong], 200, "model", costs=costs, beliefs=beliefs)
    assert answer.seconds <= plain * 1.02 + earned
