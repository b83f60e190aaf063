"""How much to draft at a step; the text does not depend on it.

Either a fixed length, or what pays. Over a long time, the most tokens per second come from taking at each
step the option with the largest *gain*, expected tokens less rate times expected seconds, where the rate is
the tokens per second that are to be had anyway (the renewal-reward theorem; see docs/control.md).
"""

from __future__ import annotations

import collections.abc
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pilotfish.calibration import Average
from pilotfish.costs import READ_ROWS, Costs

if TYPE_CHECKING:
    from pilotfish.drafters.base import Draft, View

NO_LIMIT = 1 << 30

LONGEST = 32
"""Most tokens of a draft that is left to control."""

EXPLORE = 0.006
"""Share of the time that may be lost on finding out what is not known; of a crowd of n an nth of it."""

SAVED = 4.0
"""Passes over one row that can be saved up for it."""

EARNED, MOST_EARNED = 0.1, 8.0
"""Share of the time saved that may be lost on it too, and passes over one row that this can add up to; alone:
in a batch a row costs more of what it brings."""

PACE_MEMORY = 0.9
"""Weight that a step loses with each later one in the rate achieved: about the last ten count."""

LIKE_NOW = 8.0
"""Steps like the one ahead that count with them."""

CERTAINTY_MEMORY = 0.75
"""The same for the target's probability of its own tokens."""

LOOK_MEMORY = 0.97
"""The same for lengths of answers, each later answer."""

SOON = 1 << 10
"""More steps than are ever waited before the certainty is asked for."""

USUAL_ANSWER = 160
"""Tokens that an answer is expected to have before any has ended."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step took.

    Attributes
    ----------
    rows, context
        Rows of the target's pass, and the tokens that they attended to in all.
    draft_s, pass_s
        Seconds of drafting and of the pass.
    """

    rows: int
    context: int
    draft_s: float
    pass_s: float

    @classmethod
    def of(
        cls,
        rows: collections.abc.Sequence[int],
        lengths: collections.abc.Sequence[int],
        times: collections.abc.Sequence[float],
    ) -> Step:
        """Make it of each sequence's rows and tokens, and of times.

        These are when the step began, when drafting began, when it ended and when the pass ended.
        """
        context = sum(map(operator.mul, rows, lengths))
        return cls(sum(rows), context, times[2] - times[1], times[3] - times[2])


class Control(Protocol):
    """Sets the limits before a step, and hears afterwards what came of it."""

    def limits(self, sequences: collections.abc.Sequence[View]) -> list[int]:
        """Return for each sequence the largest number of tokens to draft, 0 for plain decoding."""
        ...

    def observe(self, sequence: View, draft: Draft, accepted: int, certainty: Callable[[], float]) -> None:
        """Learn what became of a draft.

        `certainty` returns the probability that the target gave to its own last token, at temperature 1; it
        costs a look at a row of logits, and can be asked until the engine's next pass.
        """
        ...

    def timed(self, step: Step) -> None:
        """Learn what the step took, after all its drafts were observed."""
        ...

    def why(self, sequence: View) -> str | None:
        """Return why nothing is being drafted for a sequence, None if something is."""
        ...


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Always the same limit; drafters may still propose less."""

    length: int

    def limits(self, sequences: collections.abc.Sequence[View]) -> list[int]:
        """Return the same limit for every sequence."""
        return [self.length] * len(sequences)

    def observe(self, sequence: View, draft: Draft, accepted: int, certainty: Callable[[], float]) -> None:
        """Learn nothing."""

    def timed(self, step: Step) -> None:
        """Learn nothing."""

    def why(self, sequence: View) -> str | None:
        """Return what was asked for, if that is nothing."""
        del sequence
        return None if self.length else "no drafts were asked for"


@dataclass(slots=True)
class Pace:
    """What control knows of one sequence.

    Attributes
    ----------
    begun
        Tokens it had when control first met it.
    tokens, seconds
        Emitted by its last steps, and what these took; decayed. Seconds are those of the whole batch.
    certainty
        Average probability of the target's own last tokens.
    asked
        Steps since the certainty was asked for; at first many.
    missed
        Seconds that were expected to be lost by not asking the draft model, which would have to read first;
        by how much.
    reason
        Why nothing is drafted.
    """

    begun: int
    tokens: float = 0.0
    seconds: float = 0.0
    certainty: Average = field(default_factory=lambda: Average(CERTAINTY_MEMORY, 0.0))
    certain: bool = False
    asked: int = SOON
    missed: dict[int, float] = field(default_factory=dict)
    reason: str | None = None


class ByGain:
    """Leaves the length to a drafter that asks what pays; keeps what it needs to know for that.

    All it knows comes from `observe`, `timed` and what the drafter tells: it looks at no clock.

    Parameters
    ----------
    costs
        What passes cost; learned here, and possibly shared with others.

    Attributes
    ----------
    draft_passes
        Told by the drafter: passes of the draft model in this step, (tokens, context) each.
    trial
        Told by the drafter if a sequence gets a draft only to learn from it: its key, and the seconds that
        this loses if no guess is right; what came of it is settled in `timed`.
    curious
        Told by the drafter: ask for the certainty every so many steps; 0 is never.
    """

    def __init__(self, costs: Costs | None = None) -> None:
        self.costs = costs or Costs()
        self.draft_passes: list[tuple[int, int]] = []
        self.trial: tuple[int, float] | None = None
        self.curious = 0
        self.purse = 0.0
        self.since_plain = 0
        self._earned = 0.0
        self._paces: dict[int, Pace] = {}
        self._stepped: list[tuple[int, int]] = []
        self._rate = 0.0
        self._answer = Average(LOOK_MEMORY, 2.0)

    @property
    def longest(self) -> int:
        """Most tokens of a draft: passes of unknown cost are approached in few strides."""
        return min(LONGEST, 2 * self.costs.target.most + 1)

    def limits(self, sequences: collections.abc.Sequence[View]) -> list[int]:
        """Set no limit: what is left of the budget is the drafter's business."""
        self.draft_passes, self.trial, self._stepped = [], None, []
        return [NO_LIMIT] * len(sequences)

    def observe(self, sequence: View, draft: Draft, accepted: int, certainty: Callable[[], float]) -> None:
        """Learn how far a sequence came, and how sure the target was."""
        del draft
        pace = self.pace(sequence)
        self._stepped.append((sequence.key, accepted + 1))
        pace.asked += 1
        if self.curious and pace.asked >= self.curious:
            pace.asked, pace.certain = 0, True
            pace.certainty.add(certainty())

    def timed(self, step: Step) -> None:
        """Learn what the step cost."""
        costs = self.costs
        costs.target.learn(step.rows, step.context, step.pass_s)
        if self.draft_passes:
            costs.learn_draft(self.draft_passes, step.draft_s)
        else:
            costs.relax()
        one = costs.pass_s(len(self._stepped))
        # Reading is an investment: it says nothing about the rate that steps have.
        spent = step.pass_s + min(step.draft_s, self._drafting_s())
        for key, tokens in self._stepped:
            if (pace := self._paces.get(key)) is not None:
                pace.tokens = pace.tokens * PACE_MEMORY + tokens
                pace.seconds = pace.seconds * PACE_MEMORY + spent
        if len(self._stepped) == 1 and (step.rows > 1 or self.draft_passes):
            plain = costs.pass_s(1, step.context / step.rows)
            self._earned += EARNED * (plain * self._stepped[0][1] - step.pass_s - step.draft_s)
        count = len(self._stepped)
        self.purse += EXPLORE * (step.pass_s + step.draft_s) / (count if costs.crowded(count) else 1)
        self.purse = min(self.purse, SAVED * one)
        if self.trial is not None and self._rate > 0:
            key, seconds = self.trial
            self.purse -= seconds - sum(n - 1 for k, n in self._stepped if k == key) / self._rate
        self.since_plain = 0 if step.rows == len(self._stepped) else self.since_plain + 1

    def earned(self, before: float) -> float:
        """Return the seconds that may be ventured: `before`, and a share of what was saved since then."""
        earned, self._earned = before + self._earned, 0.0
        return min(max(0.0, earned), MOST_EARNED * self.costs.pass_s(1))

    def why(self, sequence: View) -> str | None:
        """Return the reason of the last step, None if something was drafted."""
        pace = self._paces.get(sequence.key)
        return None if pace is None else pace.reason

    def pace(self, view: View) -> Pace:
        """Return what is known of a sequence."""
        pace = self._paces.get(view.key)
        if pace is None:
            pace = self._paces[view.key] = Pace(len(view.tokens))
        return pace

    def forget(self, key: int, length: int | None = None) -> None:
        """Free what is kept for a sequence, which had `length` tokens in the end."""
        pace = self._paces.pop(key, None)
        if pace is not None and length is not None and length > pace.begun:
            self._answer.add(length - pace.begun)

    def certainty(self, view: View) -> float | None:
        """Return how certain the target was of its last tokens, 0..1; None if it was never asked for."""
        pace = self.pace(view)
        return pace.certainty.value(0.0) if pace.certain else None

    def rate(self, batch: collections.abc.Sequence[View], tokens: float, seconds: float) -> float:
        """Return the rate of the batch's last steps, and of some more like the best one now.

        `tokens` in `seconds` is what that best one is expected to yield.
        """
        tokens, seconds = tokens * LIKE_NOW, seconds * LIKE_NOW
        paces = [self.pace(view) for view in batch]
        tokens += sum(pace.tokens for pace in paces)
        return tokens / (seconds + sum(pace.seconds for pace in paces) / len(paces))

    def settle(self, rate: float) -> None:
        """Hear which rate the step was decided by."""
        self._rate = rate

    def left(self, view: View, most: int) -> float:
        """Return how many tokens of an answer, at most `most`, are likely still to come."""
        said = len(view.tokens) - self.pace(view).begun
        return min(float(most), max(self._answer.value(USUAL_ANSWER) - said, 24 + said / 2))

    def _drafting_s(self) -> float:
        return sum(self.costs.draft_s(*each) for each in self.draft_passes if each[0] < READ_ROWS)
