"""What is believed of guesses: of those that were made, and of those that the draft model would make."""

from __future__ import annotations

import collections.abc
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pilotfish.calibration import Average, Calibration, Local

if TYPE_CHECKING:
    from pilotfish.drafters.base import Draft, View

GUESS_MEMORY = 0.85
"""Weight that a guess of the model loses with each later one in what is expected of its next."""

FADING = 0.995
"""The same with each token of the text: what was true a while ago says less."""

ALIKE = 0.2
"""Difference in the target's certainty that makes two places of a text different in kind."""

USUAL_MEMORY, USUAL_PRIOR = 0.98, 6.0
"""Memory, and weight of what is assumed, of the model's share of right guesses over all texts."""

COLD, HOT, WARMTH = 0.8, 0.3, 0.3
"""Assumed share of right guesses of a draft model at `WARMTH`, and what each degree of temperature costs."""

CERTAINTY_PRIOR = 4.0
"""Imaginary guesses, as often right as the target is certain, that what it says of the model starts with."""

LEAST = 0.05
"""Least assumed share."""


_WHOLE = {False: "end", True: "whole"}


@dataclass(slots=True)
class _Claim:
    """A draft to be compared with the text, taken or not: tokens from `position` on."""

    position: int
    draft: Draft
    records: list[Local]
    of_model: bool
    certainty: float | None
    whole: bool


@dataclass(slots=True)
class Text:
    """What is known of one sequence.

    Attributes
    ----------
    lookup, model, both
        What confidence is worth: of what was looked up, of the model, of the model where it agrees with that.
    first, later
        Success of the model's first guesses, and of later ones behind right ones.
    certainty
        The target's certainty where the model guessed.
    length
        Tokens when drafts were last made.
    """

    lookup: Local
    model: Local
    both: Local
    first: Average = field(default_factory=lambda: Average(GUESS_MEMORY, 2.0))
    later: Average = field(default_factory=lambda: Average(GUESS_MEMORY, 2.0))
    certainty: Average = field(default_factory=lambda: Average(GUESS_MEMORY, 0.01))
    length: int = 0
    claims: list[_Claim] = field(default_factory=list)

    def records(
        self, tokens: collections.abc.Sequence[int], found: collections.abc.Sequence[int]
    ) -> list[Local]:
        """Return for each guess of the model the record that it counts in; `found` is what was looked up."""
        agreed = 0
        for token, other in zip(tokens, found, strict=False):
            if token != other:
                break
            agreed += 1
        return [self.both] * agreed + [self.model] * (len(tokens) - agreed)

    def start_anew(self) -> None:
        """Forget how good the model was here: it will know more of the text."""
        self.model, self.both = Local(self.model.calibration), Local(self.both.calibration)
        self.first, self.later = Average(GUESS_MEMORY, 2.0), Average(GUESS_MEMORY, 2.0)
        self.certainty = Average(GUESS_MEMORY, 0.01)


class Usual:
    """How good the model is at guessing, over all texts of which it knows as much."""

    def __init__(self) -> None:
        self._by_certainty = Calibration(CERTAINTY_PRIOR)
        self._first = Average(USUAL_MEMORY, USUAL_PRIOR)
        self._later = Average(USUAL_MEMORY, USUAL_PRIOR)

    def expected(self, temperature: float, certainty: float | None) -> tuple[float, float]:
        """Return the probabilities that its first guess is right, and each later one if it was asked.

        `certainty` is the target's: what that hardly knows itself, nobody guesses.
        """
        assumed = max(COLD - HOT * max(0.0, temperature - WARMTH), LEAST)
        first = self._first.value(assumed) if certainty is None else self._by_certainty.right(certainty, 0)
        return first, max(first, self._later.value(assumed))

    def learn(self, place: int, certainty: float | None, *, right: bool) -> None:
        """Learn what became of the guess at a place in a draft."""
        (self._later if place else self._first).add(float(right))
        if not place and certainty is not None:
            self._by_certainty.learn(certainty, 0, right=right)

    def as_dict(self) -> dict[str, object]:
        """Return what was learned, for JSON."""
        averages = {"first": self._first.as_list(), "later": self._later.as_list()}
        return {"by_certainty": self._by_certainty.as_dict(), **averages}

    @classmethod
    def from_dict(cls, data: Any) -> Usual:  # noqa: ANN401 - it is checked here
        """Return what `as_dict` gave; a ValueError if it did not, or it makes no sense."""
        made = cls()
        try:
            made._by_certainty = Calibration.from_dict(data["by_certainty"], CERTAINTY_PRIOR)
            made._first.restore(data["first"])
            made._later.restore(data["later"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not what a model usually achieves: {error!r}") from error
        return made


class Beliefs:
    """Learns from every guess, also those that were not sent to the target.

    Attributes
    ----------
    texts
        What is known of each sequence, by its key.
    usual
        What the model usually achieves, by whether it knows all of the text.
    """

    def __init__(self) -> None:
        self._calibrations = [Calibration() for _ in range(3)]
        self.usual = {whole: Usual() for whole in (False, True)}
        self.texts: dict[int, Text] = {}

    def as_dict(self) -> dict[str, object]:
        """Return what was learned over all texts, for JSON; nothing of any text can be read from it."""
        return {
            "calibrations": [calibration.as_dict() for calibration in self._calibrations],
            "usual": {_WHOLE[whole]: usual.as_dict() for whole, usual in self.usual.items()},
        }

    def restore(self, data: Any) -> None:  # noqa: ANN401 - it is checked here
        """Take what `as_dict` gave.

        Raises
        ------
        ValueError
            It did not give that, or it makes no sense; nothing is taken.
        """
        try:
            lookup, model, both = (Calibration.from_dict(each) for each in data["calibrations"])
            usual = {whole: Usual.from_dict(data["usual"][name]) for whole, name in _WHOLE.items()}
        except (KeyError, TypeError) as error:
            raise ValueError(f"not what is believed of guesses: {error!r}") from error
        self._calibrations, self.usual = [lookup, model, both], usual

    def text(self, view: View) -> Text:
        """Return what is known of a sequence, for a new step of it."""
        text = self.texts.get(view.key)
        if text is None:
            lookup, model, both = self._calibrations
            text = self.texts[view.key] = Text(Local(lookup), Local(model), Local(both))
        text.claims, text.length = [], len(view.tokens)
        return text

    def expected(self, view: View, certainty: float | None, *, whole: bool) -> tuple[float, float]:
        """Return the probabilities that the model's first guess is right, and each later one if it was asked.

        Where the target was about as certain of its last tokens as it is now, the model's success there
        counts; else what it usually is at this certainty.
        """
        text = self.texts[view.key]
        first, later = self.usual_of(view, certainty, whole=whole)
        alike = 1.0
        if certainty is not None:
            alike = math.exp(-(((certainty - text.certainty.value(certainty)) / ALIKE) ** 2))
        return text.first.value(first, alike), text.later.value(later, alike)

    def usual_of(self, view: View, certainty: float | None, *, whole: bool) -> tuple[float, float]:
        """Return the same over all texts; knowing the end only is expected to be no better than that."""
        known = [self.usual[True], *([] if whole else [self.usual[False]])]
        pairs = [usual.expected(view.sampling.temperature, certainty) for usual in known]
        return min(first for first, _ in pairs), min(later for _, later in pairs)

    def claim(
        self,
        view: View,
        draft: Draft,
        records: list[Local],
        *,
        of_model: bool,
        certainty: float | None,
        whole: bool = True,
    ) -> None:
        """Remember a draft for the sequence, to be compared with what comes.

        `whole` is whether the model knew all of the text.
        """
        if draft.tokens:
            claim = _Claim(len(view.tokens), draft, records, of_model, certainty, whole)
            self.texts[view.key].claims.append(claim)

    def learn(self, view: View) -> None:
        """Compare what was claimed with what came, up to the first wrong guess."""
        text, tokens = self.texts.get(view.key), view.tokens
        if text is None:
            return
        grown = len(tokens) - text.length
        for average in (text.first, text.later):
            average.fade(FADING**grown)
        for claim in text.claims:
            draft = claim.draft
            for i, (token, confidence, record) in enumerate(
                zip(draft.tokens, draft.confidence, claim.records, strict=True)
            ):
                if claim.position + i >= len(tokens):
                    break
                right = tokens[claim.position + i] == token
                if claim.of_model:
                    self._learn_model(text, claim, i, record.right(confidence, i), right=right)
                record.learn(confidence, i, right=right)
                if not right:
                    break
        text.claims, text.length = [], len(tokens)

    def _learn_model(self, text: Text, claim: _Claim, place: int, expected: float, *, right: bool) -> None:
        # Confidence says more of the next guess than luck does, unless it is not to be trusted.
        (text.later if place else text.first).add((expected + 2 * right) / 3)
        self.usual[claim.whole].learn(place, claim.certainty, right=right)
        if not place and claim.certainty is not None:
            text.certainty.add(claim.certainty)
