"""Several drafters that cost nothing to ask, as one: the most promising draft of each sequence."""

from __future__ import annotations

import collections.abc
import itertools
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.drafters.base import Draft, Drafter, View


class Lookup:
    """Takes for each sequence the draft of which most tokens are expected to be right.

    Parameters
    ----------
    drafters
        At least one; the first wins a tie.
    """

    name = "lookup"

    def __init__(self, drafters: collections.abc.Sequence[Drafter]) -> None:
        self.drafters = tuple(drafters)

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each sequence."""
        drafts = [drafter.propose(sequences, limits) for drafter in self.drafters]
        return [max(choice, key=expected) for choice in zip(*drafts, strict=True)]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Tell all what became of the draft."""
        for drafter in self.drafters:
            drafter.observe(sequence, draft, accepted)

    def forget(self, key: int) -> None:
        """Let all free what they keep for a sequence."""
        for drafter in self.drafters:
            drafter.forget(key)


def expected(draft: Draft) -> float:
    """Return the expected number of tokens up to the first wrong one: the sum of their survival."""
    survival: collections.abc.Iterator[float] = itertools.accumulate(draft.confidence, operator.mul)
    return sum(survival)
