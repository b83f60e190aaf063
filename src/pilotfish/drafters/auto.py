"""The default drafter: the suffix's free guess where it is good enough, else the draft model."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.drafters.base import NO_DRAFT, Draft

if TYPE_CHECKING:
    from pilotfish.drafters.base import View
    from pilotfish.drafters.model import ModelDrafter
    from pilotfish.drafters.suffix import SuffixDrafter

SUFFIX_ENOUGH = 0.5
"""Expected share of right first guesses from which on a suffix draft is taken instead of the model's."""

SUFFIX_FLOOR = 0.15
"""A suffix draft costs only rows of the target's pass: it is cut where survival falls below this."""

MODEL_FLOOR = 0.45
"""Each token of the model costs a pass of the model: it stops where survival falls below this."""

PRIOR = 2.0
"""Imaginary suffix guesses, as good as they claimed to be, that trust starts from."""

MEMORY = 0.95
"""Weight that a guess loses with each later one: about the last 20 count."""


@dataclass(slots=True)
class _Trust:
    """How far the confidence of suffix drafts can be believed on one sequence.

    Each first guess is compared with the token that came, whether its draft was taken or not.
    """

    right: float = 0.0
    claimed: float = 0.0
    position: int = -1
    guess: int = -1
    confidence: float = 0.0

    def value(self) -> float:
        """Return right guesses / claimed ones, at most 1."""
        return min(1.0, (self.right + PRIOR) / (self.claimed + PRIOR))

    def expect(self, position: int, draft: Draft) -> None:
        """Remember the first guess of a draft, to be compared later."""
        self.position = position if draft.tokens else -1
        if draft.tokens:
            self.guess, self.confidence = draft.tokens[0], draft.confidence[0]

    def learn(self, tokens: collections.abc.Sequence[int]) -> None:
        """Compare the guess with what came, once it has come."""
        if 0 <= self.position < len(tokens):
            self.right = self.right * MEMORY + (tokens[self.position] == self.guess)
            self.claimed = self.claimed * MEMORY + self.confidence
            self.position = -1


class AutoDrafter:
    """Takes the suffix draft of a sequence if it matches well there, else the draft model's.

    A suffix draft is good enough if the confidence of its first token, times the share of its earlier claims
    that came true on this sequence, reaches `SUFFIX_ENOUGH`; without a draft model it always is. Drafts end
    where *survival*, the product of the confidences so far, falls below a floor.
    """

    name = "auto"

    def __init__(self, suffix: SuffixDrafter, model: ModelDrafter | None = None) -> None:
        self.suffix = suffix
        self.model = model
        self._trust: dict[int, _Trust] = {}

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each; the model drafts for several at once."""
        drafts = [
            self._judged(view, draft)
            for view, draft in zip(sequences, self.suffix.propose(sequences, limits), strict=True)
        ]
        left = [i for i, draft in enumerate(drafts) if limits[i] > 0 and not draft.tokens]
        if self.model is not None and left:
            modelled = self.model.propose(
                [sequences[i] for i in left], [limits[i] for i in left], min_confidence=MODEL_FLOOR
            )
            for i, draft in zip(left, modelled, strict=True):
                drafts[i] = draft
        return drafts

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn how good the suffix's guess was, and tell both drafters."""
        if (trust := self._trust.get(sequence.key)) is not None:
            trust.learn(sequence.tokens)
        self.suffix.observe(sequence, draft, accepted)
        if self.model is not None:
            self.model.observe(sequence, draft, accepted)

    def forget(self, key: int) -> None:
        """Free what is kept for a sequence, in both drafters too."""
        self._trust.pop(key, None)
        self.suffix.forget(key)
        if self.model is not None:
            self.model.forget(key)

    def _judged(self, view: View, draft: Draft) -> Draft:
        """Return the suffix draft up to its floor, or no draft if the model's is likely to be better."""
        trust = self._trust.setdefault(view.key, _Trust())
        trust.expect(len(view.tokens), draft)
        if not draft.tokens:
            return NO_DRAFT
        survival = trust.value()
        if self.model is not None and survival * draft.confidence[0] < SUFFIX_ENOUGH:
            return NO_DRAFT
        length = 0
        for confidence in draft.confidence:
            survival *= confidence
            if survival < SUFFIX_FLOOR:
                break
            length += 1
        return Draft(draft.tokens[:length], draft.confidence[:length], draft.drafters[:length])
