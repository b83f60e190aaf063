"""Two drafters at a fixed length: the free guess where it is likely to be right, else the draft model's."""

from __future__ import annotations

import collections.abc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.drafters.base import Draft, Drafter, View
    from pilotfish.drafters.model import ModelDrafter

ENOUGH = 0.5
"""Confidence of its first token from which on what was looked up is taken."""


class Either:
    """Drafts up to the limit whatever it costs; for who wants to decide the length themselves.

    Parameters
    ----------
    lookup
        What is free to ask.
    model
        The draft model, or None: then all that was looked up is taken.
    """

    name = "auto"

    def __init__(self, lookup: Drafter, model: ModelDrafter | None = None) -> None:
        self.lookup = lookup
        self.model = model

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each; the model drafts for several at once."""
        drafts = self.lookup.propose(sequences, limits)
        if self.model is None:
            return drafts
        unsure = [
            i for i, d in enumerate(drafts) if limits[i] > 0 and (not d.tokens or d.confidence[0] < ENOUGH)
        ]
        if unsure:
            modelled = self.model.propose(
                [sequences[i] for i in unsure], [limits[i] for i in unsure], batch=len(sequences)
            )
            for i, draft in zip(unsure, modelled, strict=True):
                drafts[i] = draft if draft.tokens else drafts[i]
        return drafts

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Tell both drafters."""
        self.lookup.observe(sequence, draft, accepted)
        if self.model is not None:
            self.model.observe(sequence, draft, accepted)

    def forget(self, key: int) -> None:
        """Free what both keep for a sequence."""
        self.lookup.forget(key)
        if self.model is not None:
            self.model.forget(key)
