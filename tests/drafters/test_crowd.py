"""A crowd: which steps go without drafts."""

from __future__ import annotations

import pytest

from pilotfish.control import EXPLORE, ByGain, Step
from pilotfish.costs import Costs
from pilotfish.drafters.base import NO_DRAFT
from pilotfish.drafters.crowd import MOST_LEFT_OUT, VAIN, Crowd
from pilotfish.drafters.plan import LOOKS, Chooser, Plan, Reading
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from simulation import AVX2, FLAT, VNNI, cost


def learned(table: dict[int, float]) -> Costs:
    costs, true = Costs(), cost(table, 0.05, 0.0)
    for _ in range(40):
        for rows in (1, 2, 4, 8, 16, 32):
            costs.target.learn(rows, 0, true(rows, 0))
    return costs


def batch(count: int) -> list[Sequence]:
    return [Sequence([1, 2], Sampling(), 100) for _ in range(count)]


def left_out(crowd: Crowd, sequences: list[Sequence], steps: int) -> list[bool]:
    """Return which of the steps are left out if no draft ever comes of them."""
    found = []
    for _ in range(steps):
        found.append(crowd.leaves_out(sequences))
        if not found[-1]:
            crowd.decided(drafted=False)
    return found


@pytest.mark.parametrize(
    ("table", "count", "expected"),
    [(AVX2, 1, False), (AVX2, 2, False), (AVX2, 8, True), (VNNI, 4, False), (FLAT, 8, False)],
)
def test_a_batch_is_a_crowd_where_rows_are_dear(table: dict[int, float], count: int, expected: bool) -> None:
    assert learned(table).crowded(count) is expected


def test_the_longer_nothing_pays_the_more_steps_are_left_out_but_never_many() -> None:
    steps = left_out(Crowd(learned(AVX2)), batch(8), 100)
    assert steps[: VAIN + 3] == [False] * VAIN + [True, False, True]
    assert steps[-(MOST_LEFT_OUT + 1) :].count(True) == MOST_LEFT_OUT
    assert "".join("x" if out else "." for out in steps).count("x" * (MOST_LEFT_OUT + 1)) == 0


def test_a_draft_ends_that() -> None:
    crowd, eight = Crowd(learned(AVX2)), batch(8)
    left_out(crowd, eight, 50)
    while crowd.leaves_out(eight):
        pass
    crowd.decided(drafted=True)
    assert left_out(crowd, eight, VAIN) == [False] * VAIN


def test_whoever_joins_is_looked_at() -> None:
    crowd, eight = Crowd(learned(AVX2)), batch(8)
    left_out(crowd, eight, 50)
    assert crowd.leaves_out(eight)
    assert not crowd.leaves_out([*eight[1:], *batch(1)])


def test_few_that_are_left_of_a_crowd_are_looked_at() -> None:
    crowd, eight = Crowd(learned(AVX2)), batch(8)
    left_out(crowd, eight, 50)
    assert crowd.leaves_out(eight)
    assert not crowd.leaves_out(eight[:2])
    assert left_out(crowd, eight[:1], 30) == [False] * 30


@pytest.mark.parametrize(("table", "share"), [(AVX2, 8), (FLAT, 1)])
def test_a_crowd_saves_up_less_for_trials(table: dict[int, float], share: int) -> None:
    """As much as one of it would alone, for all together."""
    control, eight = ByGain(learned(table)), batch(8)
    control.limits(eight)
    for one in eight:
        control.observe(one, NO_DRAFT, 0, lambda: 1.0)
    seconds = control.costs.pass_s(8, 16)
    control.timed(Step(8, 16, 0.0, seconds))
    assert control.purse == pytest.approx(EXPLORE * seconds / share)


def test_the_more_share_a_pass_the_rarer_each_is_looked_at() -> None:
    """A look at the target's certainty of one sequence costs the same, however many there are."""
    chooser = Chooser(ByGain(learned(FLAT)))
    for count in (1, 2, 8):
        plans = [Plan(s, 8, 90, NO_DRAFT, [], [Reading(2, 0, 0.9, 0.9)]) for s in batch(count)]
        chooser.choose(plans)
        assert chooser.control.curious == LOOKS * count
