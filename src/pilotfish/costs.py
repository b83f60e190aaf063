"""What passes cost, learned while they are made: seconds by number of rows and by context.

Timings are noisy, and what they are needed for is comparing: is a pass over five rows worth its time beside
one over one row? So all passes of an engine share one *unit*, the seconds of a pass over one row, which
follows the machine as it gets slower or faster; what more rows cost is learned relative to it, and changes
slowly. Both are estimated together, each taking the share of a surprise that its uncertainty explains
(a Kalman filter on logarithms that ignores covariances).
"""

from __future__ import annotations

import collections.abc
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pilotfish.calibration import number

SHAPE = {1: 1.0, 2: 1.02, 3: 1.07, 4: 1.25, 6: 1.6, 8: 1.95, 12: 2.7, 16: 3.5, 32: 6.8, 64: 13.4}
"""By rows, how many passes over one row a pass costs: what is assumed until it is measured."""

ROWS = max(SHAPE)
"""Most rows that have an entry of their own; beyond, costs rise as they do up to here."""

SLOPE = 2e-5
"""Assumed cost of attending to one more token of context, for one row, in units."""

NOISE = 0.08
"""Standard deviation of a timing's logarithm."""

SHAPE_DOUBT, SLOPE_DOUBT = 0.3, 1e-5
"""Standard deviations of what is assumed: of an entry's logarithm, and of the slope."""

FIRST_DOUBT = 0.3
"""The same of the unit after the first pass, which may have been slow to start."""

RATIO_DOUBT = 0.5
"""The same of the draft model's unit before its first pass, and the most that this one moves it."""

UNIT_DRIFT, SHAPE_DRIFT = 1e-4, 1e-5
"""Variance that each pass adds: the machine changes soon, what rows cost hardly."""

OUTLIER = 2.5
"""A timing counts as at most this many standard deviations too long: a page fault, a pass interrupted."""

LUCKY = 3.0
"""The same for one too short, in logarithms: nothing makes a pass faster than it is, so it is believed."""

READ = 0.2
"""Assumed seconds per token of reading a long text, in passes over one row."""

STIR = 0.01
"""Entries are brought in line when they have moved by so much together: it takes 0.1 ms."""

SOFT = 0.15
"""Units added to what rows cost more than one row, where that is compared with what was assumed."""

TENDER, RELAX = 4, 0.96
"""What was measured less often is believed less with each pass: it may have been measured in a bad moment."""

FIXED = 1e9
"""Weight of the entry for one row, which is 1 by definition."""

CROWDED = 1 / 3
"""Share of the time that a guess must be right to be worth its row, from which on a batch is a crowd."""

READ_ROWS = 33
"""From here on a pass counts as reading: its cost is learned per token."""

LEAST_READ = 0.01
"""To read a token costs no less, in passes over one row, whatever is taken off for attention."""


class PassCosts:
    """Seconds of an engine's passes.

    A pass over n rows that attend to c tokens in all takes ``unit * (shape[n] + slope * c)`` seconds. The
    unit is 1.0 until the first pass is measured: costs can be compared before that, but are no seconds.

    Attributes
    ----------
    unit
        Seconds of a pass over one row with no context.
    slope
        Units per token attended to.
    measured
        Whether any pass was.
    most
        Rows of the largest pass that was; 0 if none.
    """

    def __init__(self) -> None:
        self.unit = 1.0
        self.slope = SLOPE
        self.measured = False
        self.most = 0
        self._unit_variance = 0.0
        self._slope_variance = SLOPE_DOUBT**2
        self._assumed = [0.0, *_between(SHAPE)]
        self._bend = [0.0] * (ROWS + 1)
        self._variance = [0.0, 0.0] + [SHAPE_DOUBT**2] * (ROWS - 1)
        self._seen = [0] * (ROWS + 1)
        self._shape = list(self._assumed)
        self._moved = 0.0
        self._tender: set[int] = set()

    def seconds(self, rows: int, context: float = 0.0) -> float:
        """Return what a pass over `rows` rows costs that attend to `context` tokens in all."""
        return self.unit * (self.shape(rows) + self.slope * context)

    def more(self, rows: int, most: int, context: int) -> list[float]:
        """Return what 1 to `most` rows of one sequence, with `context` tokens, cost beside `rows` others."""
        unit, row, last = self.unit, self.slope * context, rows + most
        shapes = self._shape[rows + 1 : last + 1] + [
            self.shape(n) for n in range(max(rows, ROWS) + 1, last + 1)
        ]
        start = self.shape(rows)
        return [unit * (shape - start + row * k) for k, shape in enumerate(shapes, start=1)]

    def shape(self, rows: int) -> float:
        """Return the cost without context, in units."""
        if rows <= ROWS:
            return self._shape[rows]
        last = self._shape[ROWS]
        return last + (rows - ROWS) * (last - self._shape[ROWS // 2]) / (ROWS - ROWS // 2)

    @property
    def passes(self) -> int:
        """How many passes were measured, up to the most rows that are kept apart."""
        return sum(self._seen)

    def learn(self, rows: int, context: float, seconds: float) -> None:
        """Learn that such a pass took so long; one without rows or time, or with too many, is ignored."""
        if not 1 <= rows <= ROWS or not 0 < seconds < math.inf:
            return
        self.most = max(self.most, rows)
        if not self.measured:
            self.measured, self._unit_variance = True, FIRST_DOUBT**2
            self.unit = seconds / (self._shape[rows] + self.slope * context)
            self._seen[rows] += rows == 1
            return
        predicted = self._shape[rows] + self.slope * context
        surprise = math.log(seconds / (self.unit * predicted))
        doubt = self._variance[rows]
        if surprise < 0 and self._shape[rows] <= 1:
            doubt = 0.0  # no more rows cost less than one: it is the unit that was too large
        base, attention = self._shape[rows] / predicted, context / predicted
        variance = NOISE**2 + self._unit_variance + base**2 * doubt + attention**2 * self._slope_variance
        most = OUTLIER * math.sqrt(variance)
        outlier, surprise = surprise > most, max(-LUCKY, min(surprise, most))
        unit = self._unit_variance / variance
        bend = base * doubt / variance
        slope = attention * self._slope_variance / variance
        self.unit *= math.exp(unit * surprise)
        self.slope = max(0.0, self.slope + slope * surprise)
        self._unit_variance = self._unit_variance * (1 - unit) + UNIT_DRIFT
        self._slope_variance *= 1 - attention * slope
        self._seen[rows] += 1
        if rows > 1:
            self._bend[rows] += bend * surprise
            if not outlier:  # which leaves as much in doubt as before
                self._variance[rows] = self._variance[rows] * (1 - base * bend) + SHAPE_DRIFT
            self._moved += abs(bend * surprise)
            (self._tender.add if self._seen[rows] < TENDER else self._tender.discard)(rows)
        for other in self._tender - {rows}:
            self._moved += abs(self._bend[other]) * (1 - RELAX)
            self._bend[other] *= RELAX
        if self._moved > STIR or (rows > 1 and self._seen[rows] == 1):
            self._reshape()

    def assume(self, unit: float) -> None:
        """Take a unit that is only assumed."""
        self.measured, self.unit, self._unit_variance = True, unit, (RATIO_DOUBT / OUTLIER) ** 2

    def as_dict(self) -> dict[str, object]:
        """Return what was learned, for JSON."""
        bends = {
            str(rows): [self._bend[rows], self._variance[rows]]
            for rows in range(2, ROWS + 1)
            if self._seen[rows]
        }
        return {"unit_s": self.unit, "slope": self.slope, "bends": bends}

    @classmethod
    def from_dict(cls, data: Any) -> PassCosts:  # noqa: ANN401 - it is checked here
        """Return what `as_dict` gave.

        Raises
        ------
        ValueError
            It did not give that, or it makes no sense.
        """
        costs = cls()
        try:
            costs.unit = number(data["unit_s"], 1e-6, 1e3)
            costs.slope = number(data["slope"], 0.0, 1.0)
            for name, (bend, variance) in data["bends"].items():
                rows = int(name)
                if not 2 <= rows <= ROWS:
                    raise ValueError(f"{rows} rows")
                costs._bend[rows] = number(bend, -3.0, 3.0)
                costs._variance[rows] = number(variance, 0.0, SHAPE_DOUBT**2)
                costs._seen[rows] = TENDER
                costs.most = max(costs.most, rows)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not the costs of passes: {error!r}") from error
        costs.measured, costs._unit_variance = True, SHAPE_DOUBT**2
        costs.most = max(costs.most, 1)
        costs._reshape()
        return costs

    def _reshape(self) -> None:
        """Let entries that were never measured follow their neighbours, and none cost less than a smaller."""
        self._moved = 0.0
        assumed, bend = self._assumed, self._bend
        known = [rows for rows in range(2, ROWS + 1) if self._seen[rows]]
        # Of what rows cost more than one row, the measured share is that of the assumed; `SOFT` keeps the
        # shares of few rows, which cost next to nothing, from being noise.
        shares = [
            (assumed[rows] * math.exp(bend[rows]) - 1 + SOFT) / (assumed[rows] - 1 + SOFT) for rows in known
        ]
        share = np.interp(np.arange(ROWS + 1), known, shares) if known else np.ones(ROWS + 1)
        raw = [1.0]
        for rows in range(2, ROWS + 1):
            if not self._seen[rows]:
                cost = 1 + max(0.0, (assumed[rows] - 1 + SOFT) * max(0.0, float(share[rows])) - SOFT)
                bend[rows] = math.log(cost / assumed[rows])
            raw.append(assumed[rows] * math.exp(bend[rows]))
        weights = [10.0 if rows in known else 1.0 for rows in range(2, ROWS + 1)]
        self._shape[1:] = [max(1.0, value) for value in _rising(raw, [FIXED, *weights])]


@dataclass(slots=True)
class Costs:
    """What a step's parts cost: passes of the target and, if there is one, of the draft model.

    Attributes
    ----------
    target
        Of the target.
    draft_ratio
        Assumed cost of the draft model's pass over one row, in the target's, until it is measured.
    draft
        Of the draft model.
    read
        Cost of a token while the draft model reads, in its passes over one row.
    """

    draft_ratio: float = 0.4
    target: PassCosts = field(default_factory=PassCosts)
    draft: PassCosts = field(default_factory=PassCosts)
    read: float = READ

    def pass_s(self, rows: int, context: float = 0.0) -> float:
        """Return seconds of a pass of the target."""
        return self.target.seconds(rows, context)

    def crowded(self, count: int) -> bool:
        """Return whether `count` sequences that share a pass of the target have little to gain by drafts.

        With a guess for each, twice as many rows bring up to twice as many tokens: the guesses must be right
        as often as the share by which the pass gets longer.
        """
        if count < 2:
            return False
        one = self.pass_s(count)
        return self.pass_s(2 * count) - one > CROWDED * one

    def draft_s(self, rows: int = 1, context: float = 0.0) -> float:
        """Return seconds of a pass of the draft model over `rows` tokens, reading included."""
        draft = self.draft
        unit = draft.unit if draft.measured else self.target.unit * self.draft_ratio
        if rows < READ_ROWS:
            return unit * (draft.shape(rows) + draft.slope * context)
        return unit * (max(rows * self.read, 1.0) + draft.slope * context)

    def learn_draft(self, passes: collections.abc.Sequence[tuple[int, float]], seconds: float) -> None:
        """Learn that these passes of the draft model, (rows, context) each, took so long together."""
        if not passes or not 0 < seconds < math.inf:
            return
        expected = [self.draft_s(rows, context) for rows, context in passes]
        most = max(range(len(passes)), key=expected.__getitem__)
        if passes[most][0] >= READ_ROWS:
            self._learn_reading(passes, expected, seconds)
            return
        if not self.draft.measured:
            self.draft.assume(self.target.unit * self.draft_ratio)
        # What is not known apart is blamed in equal parts, and teaches what most of it was spent on.
        one = [index for index, (rows, _) in enumerate(passes) if rows == passes[most][0]]
        share = sum(expected[index] for index in one) / sum(expected) / len(one)
        self.draft.learn(passes[most][0], passes[most][1], seconds * share)

    def relax(self) -> None:
        """Believe a little less what few passes of the draft model have shown; for steps without any."""
        draft = self.draft
        if draft.measured and draft.passes < TENDER:
            assumed = self.target.unit * self.draft_ratio
            draft.unit *= (assumed / draft.unit) ** (1 - RELAX)

    def as_dict(self) -> dict[str, object]:
        """Return what was learned, for JSON."""
        learned = {"target": self.target, "draft": self.draft}
        parts = {name: costs.as_dict() for name, costs in learned.items() if costs.measured}
        return {**parts, "read": self.read}

    def restore(self, data: Any) -> None:  # noqa: ANN401 - it is checked here
        """Take what `as_dict` gave.

        Raises
        ------
        ValueError
            It did not give that, or it makes no sense; nothing is taken.
        """
        try:
            read = number(data["read"], 0.0, 10.0)
            target = PassCosts.from_dict(data["target"])
            draft = PassCosts.from_dict(data["draft"]) if "draft" in data else PassCosts()
        except (KeyError, TypeError) as error:
            raise ValueError(f"not costs: {error!r}") from error
        self.target, self.draft, self.read = target, draft, read

    def _learn_reading(
        self,
        passes: collections.abc.Sequence[tuple[int, float]],
        expected: collections.abc.Sequence[float],
        seconds: float,
    ) -> None:
        read = sum(rows for rows, _ in passes if rows >= READ_ROWS)
        other = sum(cost for (rows, _), cost in zip(passes, expected, strict=True) if rows < READ_ROWS)
        # What attention takes is told apart: a text is read in parts, and the later ones attend to more.
        context = sum(context for rows, context in passes if rows >= READ_ROWS)
        other += self.draft_s(1, context) - self.draft_s(1)
        per_token = max(0.0, seconds - other) / read / self.draft_s(1)
        per_token = max(per_token, LEAST_READ, self.read / 2)
        self.read += 0.5 * (min(per_token, self.read * 2) - self.read)


def _between(points: dict[int, float]) -> list[float]:
    """Return values for 1..ROWS rows on the lines between points in ascending order; the last one is kept."""
    return [float(y) for y in np.interp(np.arange(1, ROWS + 1), list(points), list(points.values()))]


def _rising(values: list[float], weights: list[float]) -> list[float]:
    """Return the closest values that never fall: pool adjacent violators, neighbours are averaged."""
    blocks: list[list[float]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            last = blocks.pop()
            both = blocks[-1][1] + last[1]
            blocks[-1] = [
                (blocks[-1][0] * blocks[-1][1] + last[0] * last[1]) / both,
                both,
                blocks[-1][2] + last[2],
            ]
    return [value for value, _, count in blocks for _ in range(int(count))]
