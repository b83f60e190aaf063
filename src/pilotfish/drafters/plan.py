"""What to draft for each sequence at a step: the options, what they are expected to gain, the choice."""

from __future__ import annotations

import collections.abc
import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.drafters.model import READ_SLICE, READY

if TYPE_CHECKING:
    from pilotfish.control import ByGain
    from pilotfish.costs import Costs
    from pilotfish.drafters.base import Draft, View

MARGIN = 0.05
"""Tokens that a draft must be expected to gain: less is within the errors of what is known."""

STAYS = 0.7
"""Share of the rest of an answer for which the model, once it has read the text, is expected to be of use."""

AHEAD = 4
"""Further tokens that are looked at before drafting ends: passes may cost the same up to some number."""

PLAIN_EVERY = 64
"""Steps with drafts after which a plain one shows what that costs now."""

PATIENCE = 0.3
"""Share of the seconds of reading that must have been missed by not asking the model before it reads: often
what is looked up will do, once the answer is under way."""

LONG_PATIENCE = 1.5
"""The same before it reads more of a text of which it knows the end."""

HOPELESS = 0.9
"""Cost of the model's pass, in the target's, from which on nothing is done to find out how good it is."""

LOOKS = 4
"""Steps between looks at the target's certainty, for each sequence of the batch: a look takes 0.3 ms."""


@dataclass(slots=True)
class Reading:
    """One way to ask the draft model.

    Attributes
    ----------
    behind
        Tokens that it would read before its first guess.
    level
        How much of the text it knows then; see `pilotfish.drafters.model.REACHES`.
    first, later
        Expected probabilities that its first guess is right, and each later one.
    usual
        The same on other texts.
    useful
        Probability that this text is like these, while that is not known; 0 if there is nothing to find out.
    begun
        Whether it has begun to read, in earlier steps.
    """

    behind: int
    level: int
    first: float = 0.0
    later: float = 0.0
    usual: tuple[float, float] = (0.0, 0.0)
    useful: float = 0.0
    begun: bool = False


@dataclass(slots=True)
class Plan:
    """One sequence at one step.

    Attributes
    ----------
    view
        The sequence.
    limit, left
        Most tokens of its draft, and of its answer after this step.
    draft, survival
        What was looked up, and the probability that it holds up to and including each token.
    readings
        The ways to ask the model, the one that reads least first; none if it can't draft.
    hints
        Tokens of what was looked up that the model would read along.
    take, asks
        Chosen: tokens of what was looked up to send, or how to ask the model.
    reads_on
        Whether the model, if it is asked, only reads in this step: what was looked up is sent meanwhile.
    gain
        Expected of the choice: tokens less rate times seconds, beyond those of plain decoding.
    idle_gain
        The same of one guess of the model that pays for all that it has to read.
    tokens, seconds
        Expected of the choice: tokens, and seconds beyond plain decoding.
    missed
        Seconds that are expected to be lost by not asking the model yet, by `Reading.level`.
    venture
        Seconds that asking the model loses if it is of no use, where that is asked to find out.
    marginal
        Rows of a pass, and seconds that 1, 2 and more rows of this sequence cost beside them.
    ruled_out
        Whether there is a model, which is not considered in this step.
    """

    view: View
    limit: int
    left: int
    draft: Draft
    survival: list[float]
    readings: list[Reading] = field(default_factory=list)
    hints: int = 0
    take: int = 0
    asks: Reading | None = None
    reads_on: bool = False
    gain: float = 0.0
    idle_gain: float = -math.inf
    tokens: float = 1.0
    seconds: float = 0.0
    missed: dict[int, float] = field(default_factory=dict)
    venture: float = 0.0
    marginal: tuple[int, list[float]] = (0, [])
    ruled_out: bool = False

    @property
    def first(self) -> float:
        """Expected probability that the model's first guess is right; 0 if it can't draft."""
        return self.readings[0].first if self.readings else 0.0

    @property
    def turn(self) -> tuple[float, float]:
        """Who is served first, the least: whose text is being read, with least left; then what promises most.

        A text that is being read keeps its turn whatever a step promises: there is no draft before its end.
        """
        left = min((reading.behind for reading in self.readings if reading.begun), default=math.inf)
        return left, -(sum(self.survival) + self.first)


class Chooser:
    """Chooses for the sequences of a batch, by what `control` knows."""

    def __init__(self, control: ByGain, patience: float = PATIENCE) -> None:
        self.control = control
        self.patience = patience
        self._paced = False
        self._room = 0  # tokens that the model may still read in this step
        self._turn = False  # whether someone has a long text read
        self._fund = 0.0

    def choose(self, plans: list[Plan], *, paced: bool = False, fund: float = 0.0) -> float:
        """Choose for each sequence, and return the rate that it was decided by.

        If it is `paced`, the model reads one slice at most in this step. A `fund` of seconds may be ventured
        on asking the model where it is not expected to pay, but promises more if it is of use after all; not
        in a batch.

        First the best ratio of tokens to seconds that is to be had now, by Dinkelbach's iteration (1967, "On
        nonlinear fractional programming"): the rate is set to what the best option yields until they agree.
        Then the choice by the rate of the last steps, but not a higher one: better steps are over.
        """
        self._paced, self._fund = paced, fund if len(plans) == 1 else 0.0
        control, costs = self.control, self.control.costs
        views, context = [plan.view for plan in plans], sum(len(plan.view.tokens) for plan in plans)
        start = costs.pass_s(len(plans), context)
        plain = rate = len(plans) / start
        tokens, seconds = float(len(plans)), start
        for _ in range(4):
            self._choose_all(plans, rate)
            tokens = sum(plan.tokens for plan in plans)
            seconds = start + sum(plan.seconds for plan in plans)
            if tokens <= rate * seconds * 1.01:
                break
            rate = tokens / seconds
        best, rate = rate, max(plain, min(control.rate(views, tokens, seconds), rate))
        if rate < best:
            self._choose_all(plans, rate)
        if costs.target.measured:
            for plan in plans:
                self._wait(plan)
        hopeless = costs.draft_s(1) > HOPELESS * start or not any(plan.readings for plan in plans)
        control.curious = 0 if hopeless else LOOKS * len(plans)
        if not costs.target.measured:
            _leave_off(plans)  # all else is compared with a plain step
        else:
            self._try_something(plans, rate)
        control.settle(rate)
        return rate

    def could_pay(self, views: collections.abc.Sequence[View], most: int, *, looked_up: bool) -> bool:
        """Whether drafts of the model, of at most `most` tokens, would pay if all guesses were right.

        In a large batch a row can cost nearly what its token brings, and drafting it more: then nothing is
        spent on finding out what the model would be worth. What was looked up takes it one pass to confirm.
        """
        costs, count, context = self.control.costs, len(views), sum(len(view.tokens) for view in views)
        plain = costs.pass_s(count, context)
        one = costs.draft_s(count, context)
        for k in range(1, most + 1):
            together = costs.pass_s(count * (k + 1), context * (k + 1)) - plain
            alone = costs.pass_s(count + k, context + context // count * k) - plain
            drafting = one if looked_up else k * one
            if k * plain - drafting > min(together, count * alone):
                return True
        return False

    def pays(self, plan: Plan, tokens: int, survival: float, rate: float, rows: int) -> bool:
        """Whether the model should draft one more token, or several, behind `tokens` that hold so likely.

        `rows` are those of the pass without this draft.
        """
        costs, own = self.control.costs, len(plan.view.tokens)
        rows += tokens
        one, start = costs.draft_s(1, own), costs.pass_s(rows, rows * own)
        gain, later = 0.0, plan.asks.later if plan.asks else 0.0
        for more in range(1, min(AHEAD, plan.limit - tokens) + 1):
            survival *= later
            gain += survival - rate * one
            if gain > rate * (costs.pass_s(rows + more, (rows + more) * own) - start):
                return True
        return False

    def reason(self, plan: Plan, rate: float) -> str | None:
        """Return why nothing is drafted for a sequence; None if there is no room for a draft."""
        if plan.asks and plan.reads_on:
            return f"the draft model has {plan.asks.behind} tokens left to read"
        if plan.limit < 1 or plan.asks:
            return None
        costs, own = self.control.costs, len(plan.view.tokens)
        row = costs.pass_s(2, 2 * own) - costs.pass_s(1, own)
        if plan.readings:
            needed, expected = rate * (row + costs.draft_s(1, own)), plan.first
            if needed < expected:
                return f"the draft model would have to read {plan.readings[0].behind} tokens first"
        elif plan.survival:
            needed, expected = rate * row + MARGIN, plan.survival[0]
        elif plan.ruled_out:
            needed, expected = 1.0, 0.0
        else:
            return "nothing like the end of the text has occurred before"
        if needed >= 1:
            return "even right guesses would not pay"
        return f"a guess would have to be right {needed:.0%} of the time to pay, it is {expected:.0%}"

    def _choose_all(self, plans: list[Plan], rate: float) -> None:
        """Choose for each, the most promising first; who shares passes of the model shares their cost."""
        drafting = max(1, sum(bool(plan.readings) for plan in plans))
        while True:
            rows, self._room, self._turn = len(plans), READ_SLICE, False
            for plan in sorted(plans, key=lambda plan: plan.turn):
                rows += self._choose_one(plan, rate, rows, drafting)
            asking = sum(plan.asks is not None for plan in plans)
            if not asking or asking >= drafting:
                return
            drafting = asking

    def _choose_one(self, plan: Plan, rate: float, rows: int, drafting: int) -> int:
        """Choose for one sequence where others take `rows` rows already; return the rows it adds."""
        if plan.marginal[0] != rows:
            most = plan.limit if plan.readings else len(plan.survival)
            plan.marginal = rows, self.control.costs.target.more(rows, most, len(plan.view.tokens))
        marginal = plan.marginal[1]
        plan.take, plan.asks, plan.gain, plan.tokens, plan.seconds = 0, None, MARGIN, 1.0, 0.0
        plan.idle_gain, plan.missed, plan.venture = -math.inf, {}, 0.0
        tokens = 1.0
        for k, (survival, cost) in enumerate(zip(plan.survival, marginal, strict=False), start=1):
            tokens += survival
            if (gain := tokens - 1 - rate * cost) > plan.gain:
                plan.take, plan.gain, plan.tokens, plan.seconds = k, gain, tokens, cost
        added, plan.reads_on = plan.take, False
        looked_up = plan.gain, plan.tokens, plan.seconds
        for reading in plan.readings:
            if self._has_room(reading):
                added = self._consider(plan, reading, rate, marginal, drafting, added)
        if self._paced and plan.asks and plan.asks.behind > READY:
            if plan.asks.behind > READ_SLICE:
                self._turn = plan.reads_on = True
                plan.gain, plan.tokens, plan.seconds = looked_up
                return plan.take
            self._room -= plan.asks.behind
        return added

    def _has_room(self, reading: Reading) -> bool:
        """Whether it can be read now, or begun: of long texts one at a time, with the room that is left.

        A token at least stays for a long text that has the turn: else it would have it for nothing.
        """
        if not self._paced or reading.behind <= READY:
            return True
        if reading.behind > READ_SLICE:
            return not self._turn and self._room > 0
        return reading.behind <= self._room - int(self._turn)

    def _consider(
        self,
        plan: Plan,
        reading: Reading,
        rate: float,
        marginal: collections.abc.Sequence[float],
        drafting: int,
        added: int,
    ) -> int:
        """Ask the model if that is expected to gain more; return the rows of the choice, so far `added`."""
        one = self.control.costs.draft_s(drafting, len(plan.view.tokens)) / drafting
        hints = self._hints(plan, reading)
        entry, reading_s = self._entry(plan, reading, hints, drafting)
        agreed = sum(plan.survival[:hints])
        left = self.control.left(plan.view, plan.left)
        if self._paced:
            left -= (reading.behind - 1) // READ_SLICE  # as many steps bring no draft of it
        # What was looked up is sent while the model only reads: there is nothing to choose between.
        beside = self._paced and reading.begun and reading.behind > READ_SLICE
        most, best, rows = MARGIN if beside else plan.gain, None, added
        for k, tokens, cost in _lengths(reading.first, reading.later, marginal, entry, one, agreed):
            gain = tokens - 1 - rate * cost
            if k == 1 and reading is plan.readings[0]:
                plan.idle_gain = gain - rate * reading_s
            # What is read now serves the steps to come.
            uses = max(1.0, STAYS * left / tokens)
            gain -= rate * reading_s / uses
            if gain > most:
                most, rows, best = gain, k, (tokens, cost)
                missed = (gain - plan.gain) / rate + reading_s / uses
            elif gain < most - 1:
                break
        loss = self._loss(plan, rate, marginal, entry + reading_s)
        venture = best is None and reading.useful > 0 and loss <= self._fund
        if venture:
            lengths = _lengths(*reading.usual, marginal, entry, one, agreed)
            promise = reading.useful * _promise(lengths, rate, plan.gain, STAYS * left)
            if promise > rate * loss:
                most, rows, best = plan.gain, 1, (1 + reading.first, marginal[0] + entry)
        if best is None or (not venture and self._waits(plan, reading, reading_s, missed)):
            return added
        plan.venture = loss if venture else 0.0
        plan.asks, plan.hints, plan.gain = reading, hints, most
        plan.tokens, plan.seconds = best
        return rows

    @staticmethod
    def _loss(plan: Plan, rate: float, marginal: collections.abc.Sequence[float], drafting_s: float) -> float:
        """Return the seconds that asking the model loses if it is wrong, what was looked up included."""
        if not marginal:
            return math.inf
        return marginal[0] + drafting_s + (plan.gain / rate if plan.take else 0.0)

    def _waits(self, plan: Plan, reading: Reading, reading_s: float, missed: float) -> bool:
        """Whether it is too early to read: then it is noted what that misses, in seconds."""
        if reading.behind <= READY or reading.begun:
            return False
        patience = self.patience if reading is plan.readings[0] else LONG_PATIENCE
        if self.control.pace(plan.view).missed.get(reading.level, 0.0) >= patience * reading_s:
            return False
        plan.missed[reading.level] = missed
        return True

    def _wait(self, plan: Plan) -> None:
        """Count what is missed by waiting: only for who reads least of those that would be asked."""
        missed = self.control.pace(plan.view).missed
        if plan.missed:
            level = min(plan.missed)
            missed[level] = missed.get(level, 0.0) + plan.missed[level]
        if plan.asks:
            for level in range(plan.asks.level + 1):
                missed.pop(level, None)

    def _can_draft(self, reading: Reading) -> bool:
        """Whether a draft comes of it in this step."""
        return not self._paced or reading.behind <= max(READY, self._room)

    def _hints(self, plan: Plan, reading: Reading) -> int:
        """Return how many tokens of what was looked up to read in the model's first pass."""
        costs, rows, count = self.control.costs, reading.behind, 0
        if rows > READY:
            return 0
        one = costs.draft_s(1)
        for survival in plan.survival[: plan.limit - 1]:
            rows += 1
            if survival * one < costs.draft_s(rows) - costs.draft_s(rows - 1):
                break
            count += 1
        return count

    def _entry(self, plan: Plan, reading: Reading, hints: int, drafting: int) -> tuple[float, float]:
        """Return seconds of the model's first pass, and of the reading that will serve later steps too."""
        costs, behind, own = self.control.costs, reading.behind, len(plan.view.tokens)
        usual = min(behind, 2)
        rows = drafting * (usual + hints)
        entry = costs.draft_s(rows, own * rows) / drafting
        before = own - behind / 2 if reading.begun else own / 2
        read = costs.draft_s(behind, before * behind) - costs.draft_s(usual, own * usual)
        return entry, max(0.0, read)

    def _try_something(self, plans: list[Plan], rate: float) -> None:
        """Decode plainly, or ask the model, to learn what it is worth now, if that can be afforded."""
        control = self.control
        if control.since_plain >= PLAIN_EVERY:
            loss = sum(plan.gain for plan in plans) / rate
            if 0 < loss <= control.purse:
                control.purse -= loss
                _leave_off(plans)
                return
        if not control.curious:
            return
        for plan in plans:
            loss = (plan.gain - plan.idle_gain) / rate
            if not plan.asks and 0 < loss <= control.purse and self._can_draft(plan.readings[0]):
                control.trial = plan.view.key, loss + plan.first / rate
                plan.asks, plan.take = plan.readings[0], 0
                return


def share_rows(
    survivals: collections.abc.Sequence[collections.abc.Sequence[float]],
    contexts: collections.abc.Sequence[int],
    costs: Costs,
    rate: float,
) -> list[int]:
    """Return how many tokens of each draft to verify: rows go where they pay most.

    Parameters
    ----------
    survivals
        For each sequence of the batch the probabilities that its draft holds up to and including each token,
        falling.
    contexts
        The tokens that each sequence has.
    costs
        Of the target's passes.
    rate
        Tokens a second must bring.
    """
    rows, context = len(survivals), sum(contexts)
    wanted = sorted(
        (-survival, depth, i) for i, line in enumerate(survivals) for depth, survival in enumerate(line)
    )
    # A pass may cost the same up to some number of rows: the best total counts, not the next row alone.
    gains = [0.0]
    start = costs.pass_s(rows, context)
    tokens = 0.0
    for extra, (negative, _, i) in enumerate(wanted, start=1):
        tokens -= negative
        context += contexts[i]
        gains.append(tokens - rate * (costs.pass_s(rows + extra, context) - start))
    best = max(range(len(gains)), key=gains.__getitem__)
    taken = [0] * len(survivals)
    for _, _, i in itertools.islice(wanted, best):
        taken[i] += 1
    return taken


def _lengths(
    first: float,
    later: float,
    marginal: collections.abc.Sequence[float],
    entry: float,
    one: float,
    agreed: float,
) -> collections.abc.Iterator[tuple[int, float, float]]:
    """Go through the lengths of a draft of the model: with each, expected tokens and seconds beyond plain.

    The first of the model's passes takes `entry` seconds, each later one `one`; `agreed` guesses more are
    expected of the first one.
    """
    tokens, survival, drafting = 1.0, first, entry
    for k, cost in enumerate(marginal, start=1):
        drafting += one if k > 1 + agreed else 0.0
        tokens += survival
        yield k, tokens, cost + drafting
        survival *= later


def _promise(
    lengths: collections.abc.Iterable[tuple[int, float, float]], rate: float, other: float, left: float
) -> float:
    """Return what the best of these lengths gains over `other` in each step, until `left` tokens are out."""
    best = promise = 0.0
    for _, tokens, seconds in lengths:
        gain = tokens - 1 - rate * seconds - other
        if gain > best:
            best, promise = gain, gain * left / tokens
        elif gain < best - 1:
            break
    return promise


def _leave_off(plans: list[Plan]) -> None:
    for plan in plans:
        plan.asks, plan.take = None, 0
