"""What a drafter's confidence is worth: how often guesses made with it have been right.

Two memories are kept apart. What holds for a drafter in general (its guesses of confidence 0.9 are right 8
times in 10) is learned slowly, over all answers. What holds for the text at hand (prose now, code soon) is
learned within about 20 guesses, as a factor on the odds. Guesses behind the first wrong one teach nothing:
nobody knows what they would have been worth.
"""

from __future__ import annotations

import bisect
from typing import Any

EDGES = (0.05, 0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.88, 0.94, 0.98)
"""Where bins of confidence end."""

PLACES = (1, 3)
"""Where classes of positions in a draft end: the first guess, the next two, all later ones."""

PRIOR = 12.0
"""Imaginary guesses that a bin and class starts with."""

MEMORY = 0.99
"""Weight that a guess loses with each later one of its bin and class."""

LOCAL_PRIOR, LOCAL_TRUST = 1.5, 6.0
"""Imaginary guesses, right and wrong ones each, that a text starts with: it is soon found to be worse than
others, and slowly to be better."""

LOCAL_MEMORY = 0.95
"""Weight that a guess loses with each later one on the same text: about the last 20 count."""

SUREST = 0.995
"""Nothing counts as surer than this, nor as surer to be wrong."""


class Calibration:
    """The record of one drafter over all texts.

    Parameters
    ----------
    prior
        Imaginary guesses of each bin and class, as good as they claimed to be.
    """

    __slots__ = ("_claimed", "_prior", "_right", "_seen", "_shift")

    def __init__(self, prior: float = PRIOR) -> None:
        self._prior = prior
        cells = (len(EDGES) + 1) * (len(PLACES) + 1)
        self._right = [0.0] * cells
        self._claimed = [0.0] * cells
        self._seen = [0.0] * cells
        self._shift = [1.0] * cells  # of the odds

    def right(self, confidence: float, place: int) -> float:
        """Return the probability that a guess is right, made with this confidence at this place in a draft.

        Within a bin it rises with the confidence: the odds of the claim are shifted by how much the bin's
        claims have been wrong.
        """
        odds = _odds(confidence) * self._shift[_cell(confidence, place)]
        right = odds / (1 + odds)
        return min(right, SUREST)

    def learn(self, confidence: float, place: int, *, right: bool) -> None:
        """Learn what became of a guess."""
        cell = _cell(confidence, place)
        self._right[cell] = self._right[cell] * MEMORY + right
        self._claimed[cell] = self._claimed[cell] * MEMORY + confidence
        self._seen[cell] = self._seen[cell] * MEMORY + 1
        self._settle(cell)

    @property
    def proven(self) -> bool:
        """Whether any guess has been right."""
        return any(right > 0 for right in self._right)

    def as_dict(self) -> dict[str, list[float]]:
        """Return what was learned, for JSON."""
        rows = zip(self._right, self._claimed, self._seen, strict=True)
        return {str(i): [round(value, 4) for value in row] for i, row in enumerate(rows) if row[2] > 0}

    @classmethod
    def from_dict(cls, data: Any, prior: float = PRIOR) -> Calibration:  # noqa: ANN401 - it is checked here
        """Return what `as_dict` gave.

        Raises
        ------
        ValueError
            It did not give that, or it makes no sense.
        """
        made = cls(prior)
        try:
            for name, (right, claimed, seen) in data.items():
                cell = range(len(made._seen))[int(name)]
                made._seen[cell] = number(seen, 0.0, 1 / (1 - MEMORY) + 1)
                made._right[cell], made._claimed[cell] = number(right, 0.0, seen), number(claimed, 0.0, seen)
                made._settle(cell)
        except (AttributeError, IndexError, TypeError) as error:
            raise ValueError(f"not a record of guesses: {error!r}") from error
        return made

    def _settle(self, cell: int) -> None:
        """Set by how much the odds of a cell's claims are shifted: once for the many times they are used."""
        if not (seen := self._seen[cell]):
            return
        usual = min(max(self._claimed[cell] / seen, 1 - SUREST), SUREST)
        share = (self._right[cell] + self._prior * usual) / (seen + self._prior)
        self._shift[cell] = _odds(share) / _odds(usual)


class Local:
    """The record of one drafter on one text, beside that over all of them."""

    __slots__ = ("_expected", "_factor", "_missed", "_right", "_wrong", "calibration")

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._right = self._expected = self._wrong = self._missed = 0.0
        self._factor = 1.0

    def right(self, confidence: float, place: int) -> float:
        """Return the probability that a guess is right, on this text."""
        odds = _odds(self.calibration.right(confidence, place)) * self._factor
        return odds / (1 + odds)

    def learn(self, confidence: float, place: int, *, right: bool) -> None:
        """Learn what became of a guess, here and for all texts."""
        expected = self.calibration.right(confidence, place)
        self._right = self._right * LOCAL_MEMORY + right
        self._expected = self._expected * LOCAL_MEMORY + expected
        self._wrong = self._wrong * LOCAL_MEMORY + (not right)
        self._missed = self._missed * LOCAL_MEMORY + 1 - expected
        prior = LOCAL_TRUST if self._right > self._expected else LOCAL_PRIOR
        better = (self._right + prior) / (self._expected + prior)
        worse = (self._wrong + prior) / (self._missed + prior)
        self._factor = better / worse
        self.calibration.learn(confidence, place, right=right)


class Average:
    """A decayed average that starts from what is usual and, unheard of for a while, returns to it.

    Parameters
    ----------
    memory
        Weight that a value loses with each later one.
    prior
        Weight of what is usual.
    """

    __slots__ = ("_memory", "_prior", "_sum", "_weight")

    def __init__(self, memory: float, prior: float) -> None:
        self._memory = memory
        self._prior = prior
        self._sum = self._weight = 0.0

    def value(self, usual: float, trust: float = 1.0) -> float:
        """Return the average; `trust` (0..1) is how much of what is known belongs to the matter at hand."""
        return (self._sum * trust + self._prior * usual) / (self._weight * trust + self._prior)

    def add(self, value: float) -> None:
        """Take one more value."""
        self.fade(self._memory)
        self._sum += value
        self._weight += 1

    def fade(self, share: float) -> None:
        """Keep a share (0..1) of what is known."""
        self._sum *= share
        self._weight *= share

    def as_list(self) -> list[float]:
        """Return sum and weight, for JSON."""
        return [round(self._sum, 4), round(self._weight, 4)]

    def restore(self, data: Any) -> None:  # noqa: ANN401 - it is checked here
        """Take what `as_list` gave, of values of 0..1; a ValueError if it did not, or it makes no sense."""
        try:
            total, weight = data
        except TypeError as error:
            raise ValueError(f"not an average: {error!r}") from error
        weight = number(weight, 0.0, 1 / (1 - self._memory) + 1)
        self._sum, self._weight = number(total, 0.0, weight + 1e-3), weight


def number(value: object, least: float, most: float) -> float:
    """Return a number that was read from somewhere; a ValueError if it is none, or outside [least, most]."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{value!r} is not a number of {least} to {most}")
    return float(value)


def _cell(confidence: float, place: int) -> int:
    return bisect.bisect(EDGES, confidence) * (len(PLACES) + 1) + bisect.bisect_right(PLACES, place)


def _odds(probability: float) -> float:
    if probability >= SUREST:
        return SUREST / (1 - SUREST)
    return probability / (1 - probability) if probability > 1 - SUREST else (1 - SUREST) / SUREST
