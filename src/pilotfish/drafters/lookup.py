"""Drafters that look things up, which costs next to nothing: what they share, and several of them as one."""

from __future__ import annotations

import collections.abc
import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.past import Claim, PastSuccess

if TYPE_CHECKING:
    from pilotfish.drafters.base import Drafter, View


class Reader(Protocol):
    """Follows one sequence."""

    def guesses(self, tokens: collections.abc.Sequence[int], limit: int) -> list[Claim]:
        """Return at most `limit` guesses of what follows the tokens: those seen before, and new ones."""
        ...


R = TypeVar("R", bound=Reader)


class LookupDrafter(Generic[R]):
    """Gives each sequence a reader, and corrects what it claims by what came of its earlier claims there.

    Parameters
    ----------
    name
        Shown in statistics.
    reader
        Makes a reader for a sequence that was not seen before.
    """

    def __init__(self, name: str, reader: Callable[[View], R]) -> None:
        self.name = name
        self.readers: dict[int, R] = {}
        self._past: dict[int, PastSuccess] = {}
        self._reader = reader

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each sequence."""
        return [self._draft(view, limit) for view, limit in zip(sequences, limits, strict=True)]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn nothing here: `propose` compares its last draft with what is new in the sequence."""

    def forget(self, key: int) -> None:
        """Free what is kept for a sequence."""
        self.readers.pop(key, None)
        self._past.pop(key, None)

    def _draft(self, view: View, limit: int) -> Draft:
        if limit < 1:
            return NO_DRAFT
        key, tokens = view.key, view.tokens
        reader = self.readers.get(key)
        if reader is None:
            reader = self.readers[key] = self._reader(view)
            self._past[key] = PastSuccess()
        past = self._past[key]
        past.learn(tokens)
        guesses = reader.guesses(tokens, limit)
        past.expect(len(tokens), guesses)
        corrected = past.corrected
        return Draft(
            tuple([token for token, _, _ in guesses]),
            tuple([corrected(confidence, matched) for _, confidence, matched in guesses]),
            (self.name,) * len(guesses),
        )


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
