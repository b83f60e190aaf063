"""How many tokens to draft at a step; the text does not depend on it."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pilotfish.drafters.base import Draft, View


class Control(Protocol):
    """Sets the limits before a step, and hears afterwards what came of it."""

    def limits(self, sequences: collections.abc.Sequence[View]) -> list[int]:
        """Return for each sequence the largest number of tokens to draft, 0 for plain decoding."""
        ...

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn what became of a draft."""
        ...


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Always the same limit; drafters may still propose less."""

    length: int

    def limits(self, sequences: collections.abc.Sequence[View]) -> list[int]:
        """Return the same limit for every sequence."""
        return [self.length] * len(sequences)

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn nothing."""
