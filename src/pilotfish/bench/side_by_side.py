"""Answers to one prompt made side by side, tokens of each in turn: what slows the machine slows them all.

Machines that other things share are slower for seconds at a time. Of two answers made one after the other
such a moment hits one; of two made in turns it hits both.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import collections.abc

    from pilotfish.decode import Decoder
    from pilotfish.sequence import Sequence

TURN = 8
"""Tokens that an answer gets before it is the next one's turn."""


@dataclass(slots=True)
class Entrant:
    """One of the answers: what makes it, its state, and the ids it has.

    The decoder must be its own; engines may be shared.
    """

    decoder: Decoder
    sequence: Sequence
    ids: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """Read what the handle does not hold of the prompt, and say the first token."""
        self.ids += [token.id for token in self.decoder.prefill(self.sequence)]

    def go_on(self, tokens: int) -> None:
        """Make steps until so many more tokens are there, or the answer has ended."""
        aim = len(self.ids) + tokens
        while self.sequence.runs and len(self.ids) < aim:
            [told] = self.decoder.step([self.sequence])
            self.ids += [token.id for token in told]
        if self.sequence.error is not None:
            raise self.sequence.error


def answer_side_by_side(entrants: collections.abc.Sequence[Entrant], turn: int = TURN) -> None:
    """Answer with all of them; the first reads the prompt, the others share what it holds.

    What the reading took counts as everyone's. Seconds are in each sequence's `stats`.

    Parameters
    ----------
    entrants
        At least one, all with the same prompt and the same engine, nothing of which is computed yet. They are
        closed in the end, whatever happens.
    turn
        Tokens of each before it is the next one's turn.
    """
    first = entrants[0]
    try:
        first.begin()
        for other in entrants[1:]:
            other.sequence.handle = other.decoder.engine.fork(first.sequence.handle)
            other.begin()
            other.sequence.stats.prompt_s = first.sequence.stats.prompt_s
        for one in itertools.cycle(entrants):
            one.go_on(turn)
            if not any(each.sequence.runs for each in entrants):
                break
    finally:
        for one in entrants:
            one.decoder.close(one.sequence)
