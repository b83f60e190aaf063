"""Texts that begin alike and are read at the same time: one of them reads for all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.beginnings import common

if TYPE_CHECKING:
    from pilotfish.sequence import Sequence
    from pilotfish.serving.ticket import Ticket

WORTH = 64
"""Tokens that must be spared by waiting: it may take a pass more, over few rows."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Another sequence that has a beginning in common with one.

    Attributes
    ----------
    sequence
        That other one.
    count
        Tokens in common, the last one of the follower's text never among them.
    """

    sequence: Sequence
    count: int

    @property
    def held(self) -> int:
        """Tokens in common that it holds."""
        return min(self.count, self.sequence.evaluated)

    @property
    def holds_all(self) -> bool:
        """Whether it holds all that are in common, but for a token that it has just said."""
        return self.sequence.evaluated >= self.count or self.sequence.unread == 1


@dataclass(slots=True)
class _Follower:
    ticket: Ticket
    sequence: Sequence
    leads: list[Lead]


class Alike:
    """Knows of each sequence that reads the earlier ones with the same beginning.

    Sequences only ever wait for earlier ones, which read, so the first one waits for nobody, and nobody waits
    for ever.

    Parameters
    ----------
    worth
        Tokens that must be spared.
    """

    def __init__(self, worth: int = WORTH) -> None:
        self.worth = worth
        self._followers: dict[int, _Follower] = {}

    def add(self, ticket: Ticket, sequence: Sequence, earlier: Iterable[Sequence]) -> None:
        """Compare a text that is about to be read with those before it; all their caches are open."""
        own = sequence.tokens[:-1]
        found = [Lead(other, common(own, other.tokens)) for other in earlier]
        leads = sorted((lead for lead in found if lead.count >= self.worth), key=lambda lead: -lead.count)
        if leads:
            self._followers[sequence.key] = _Follower(ticket, sequence, leads)

    def remove(self, key: int) -> None:
        """Forget a follower that has read its text, or ended; an unknown one is no error."""
        self._followers.pop(key, None)

    def lead(self, sequence: Sequence, reading: Collection[int]) -> Lead | None:
        """Return whom to share with, if that has all in common, or to wait for, if it has not.

        Parameters
        ----------
        reading
            Keys of the sequences that read in this pass: only for these one may wait. Not for one that reads
            slowly, since it is scored, or that is behind.
        """
        follower = self._followers.get(sequence.key)
        for lead in [] if follower is None else follower.leads:
            other = lead.sequence
            if other.handle < 0 or lead.count - sequence.evaluated < self.worth:
                continue
            if lead.holds_all:
                return lead if lead.held > sequence.evaluated else None
            if other.key in reading and not other.scores_left and other.evaluated >= sequence.evaluated:
                return lead
        return None

    def heirs(self, sequence: Sequence) -> Iterator[tuple[Ticket, Sequence, int]]:
        """Yield who can use how much of what a sequence holds, which is about to be freed."""
        for follower in self._followers.values():
            for lead in follower.leads:
                if lead.sequence is sequence and lead.held - follower.sequence.evaluated >= self.worth:
                    yield follower.ticket, follower.sequence, lead.held
