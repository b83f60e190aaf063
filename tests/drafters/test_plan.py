"""Whose text the draft model reads while others wait: one at a time, to its end."""

from __future__ import annotations

import itertools
import operator

from pilotfish.control import ByGain
from pilotfish.costs import Costs
from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.model import READ_SLICE, WHOLE
from pilotfish.drafters.plan import Chooser, Plan, Reading
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

LONG = 5 * READ_SLICE


def chooser() -> Chooser:
    """Return one for a machine on which rows are nearly free, with a small draft model."""
    costs = Costs()
    costs.draft_ratio = costs.read = 0.05
    for _ in range(20):
        for rows in (1, 4, 16, 32):
            costs.target.learn(rows, 0, 1.0)
    return Chooser(ByGain(costs), patience=0.0)


def plan(behind: int, found: float = 0.0, *, begun: bool) -> Plan:
    """Return the plan of a sequence of which the model lacks `behind` tokens; 8 were looked up, so likely."""
    view = Sequence([1] * 700, Sampling(), 1000)
    view.tokens.append(1)
    draft = Draft((2,) * 8, (found,) * 8, ("lookup",) * 8) if found else NO_DRAFT
    survival = list(itertools.accumulate(draft.confidence, operator.mul))
    return Plan(view, 16, 1000, draft, survival, [Reading(behind, WHOLE, 0.9, 0.9, begun=begun)])


def test_a_text_that_is_being_read_keeps_its_turn_while_what_was_looked_up_is_sent() -> None:
    """The draft that was found gains more than reading; but it is sent anyway."""
    reading, other = plan(LONG, 0.95, begun=True), plan(LONG, begun=False)
    chooser().choose([reading, other], paced=True)
    assert reading.asks
    assert reading.reads_on
    assert reading.take == 8
    assert not other.asks


def test_of_texts_that_are_being_read_the_one_with_least_left_goes_first() -> None:
    """Whatever else a step promises."""
    more, less = plan(LONG + 1, 0.3, begun=True), plan(LONG, begun=True)
    chooser().choose([more, less], paced=True)
    assert less.asks
    assert not more.asks


def test_a_long_text_has_no_turn_where_short_ones_leave_no_room() -> None:
    short, long = plan(READ_SLICE, begun=False), plan(LONG, begun=False)
    chooser().choose([long, short], paced=True)
    assert [one.asks is not None for one in (short, long)].count(True) == 1


def test_the_model_is_out_of_the_question_where_even_right_guesses_would_not_pay() -> None:
    """Eight share a pass in which each row costs four fifths of what it brings; alone it costs a tenth."""
    costs = Costs(draft_ratio=0.25)
    for _ in range(40):
        for rows in (1, 2, 4, 8, 12, 16, 24, 32):
            costs.target.learn(rows, 0, 0.9 + 0.1 * rows if rows <= 8 else 1.7 * rows / 8)
    views = [Sequence([1, 2], Sampling(), 100) for _ in range(8)]
    chooser = Chooser(ByGain(costs))
    assert chooser.could_pay(views[:1], 8, looked_up=False)
    assert not chooser.could_pay(views, 8, looked_up=False)
    assert not chooser.could_pay(views[:1], 0, looked_up=True)


def test_where_something_was_looked_up_the_model_confirms_all_of_it_in_one_pass() -> None:
    """A model nearly as slow as the target: too slow to draft eight tokens, not to read them."""
    costs = Costs(draft_ratio=0.95)
    for _ in range(40):
        for rows in (1, 2, 4, 8, 16):
            costs.target.learn(rows, 0, 0.9 + 0.1 * rows)
    chooser, views = Chooser(ByGain(costs)), [Sequence([1, 2], Sampling(), 100)]
    assert not chooser.could_pay(views, 8, looked_up=False)
    assert chooser.could_pay(views, 8, looked_up=True)
