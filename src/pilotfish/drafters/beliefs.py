"""What is believed of guesses: of those that were made, and of those that the draft model would make."""

from __future__ import annotations

import collections.abc
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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

LEAST = 0.05
"""Least assumed share."""


@dataclass(slots=True)
class _Claim:
    """A draft to be compared with the text, taken or not: tokens from `position` on."""

    position: int
    draft: Draft
    records: list[Local]
    of_model: bool
    certainty: float | None


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


class Beliefs:
    """Learns from every guess, also those that were not sent to the target."""

    def __init__(self) -> None:
        self._calibrations = [Calibration() for _ in range(3)]
        self._by_certainty = Calibration(prior=4.0)
        self._usual = [Average(USUAL_MEMORY, USUAL_PRIOR) for _ in range(2)]
        self.texts: dict[int, Text] = {}

    def text(self, view: View) -> Text:
        """Return what is known of a sequence, for a new step of it."""
        text = self.texts.get(view.key)
        if text is None:
            lookup, model, both = self._calibrations
            text = self.texts[view.key] = Text(Local(lookup), Local(model), Local(both))
        text.claims, text.length = [], len(view.tokens)
        return text

    def expected(self, view: View, certainty: float | None) -> tuple[float, float]:
        """Return the probabilities that the model's first guess is right, and each later one if it was asked.

        Where the target was about as certain of its last tokens as it is now, the model's success there
        counts; else what it usually is at this certainty, which is that of the text: what the target hardly
        knows itself, nobody guesses.
        """
        text = self.texts[view.key]
        usual = max(COLD - HOT * max(0.0, view.sampling.temperature - WARMTH), LEAST)
        first, later = (average.value(usual) for average in self._usual)
        alike = 1.0
        if certainty is not None:
            first = self._by_certainty.right(certainty, 0)
            alike = math.exp(-(((certainty - text.certainty.value(certainty)) / ALIKE) ** 2))
        return text.first.value(first, alike), text.later.value(max(later, first), alike)

    def claim(
        self, view: View, draft: Draft, records: list[Local], *, of_model: bool, certainty: float | None
    ) -> None:
        """Remember a draft for the sequence, to be compared with what comes."""
        if draft.tokens:
            claim = _Claim(len(view.tokens), draft, records, of_model, certainty)
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
        self._usual[place > 0].add(float(right))
        if not place and claim.certainty is not None:
            self._by_certainty.learn(claim.certainty, 0, right=right)
            text.certainty.add(claim.certainty)
