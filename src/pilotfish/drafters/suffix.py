"""Drafts from the text so far: what followed the last few tokens when they stood there before."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass, field

from pilotfish.drafters.automaton import Automaton
from pilotfish.drafters.lookup import LookupDrafter
from pilotfish.drafters.past import Claim

WINDOW = 1 << 16
"""Most tokens of a sequence that are remembered: its memory is bounded, at about 12 MB."""


class SuffixDrafter(LookupDrafter["Window"]):
    """Proposes what followed the longest suffix of the text that has occurred before.

    Confidence comes from the length of the match, from counts, and from what came of earlier drafts on the
    same sequence.

    Parameters
    ----------
    min_match
        Nothing is proposed after a match of fewer tokens, at least 1.
    window
        Most tokens that are remembered of a sequence, at least 2; of a longer one at least the last half of
        these.
    """

    def __init__(self, min_match: int = 2, window: int = WINDOW) -> None:
        self.min_match = max(1, min_match)
        self.window = max(2, window)
        super().__init__("suffix", lambda _view: Window(self.window, self.min_match))


@dataclass(slots=True)
class Window:
    """Reads one sequence into an automaton that never holds more than `window` tokens.

    When it holds half of them, a second one starts to read along, and takes its place when it is full. So no
    token costs more than two to append, and none is followed by a long pause.
    """

    window: int
    min_match: int
    automaton: Automaton = field(default_factory=Automaton)
    next: Automaton | None = None
    position: int = 0

    def guesses(self, tokens: collections.abc.Sequence[int], limit: int) -> list[Claim]:
        """Read what is new in the sequence, and follow its longest match."""
        self._read(tokens)
        return self.automaton.walk(limit, self.min_match)

    def _read(self, tokens: collections.abc.Sequence[int]) -> None:
        if len(tokens) - self.position > self.window:  # the rest would be forgotten again
            self.automaton, self.next = Automaton(), None
            self.position = len(tokens) - self.window
        for token in tokens[self.position :]:
            if self.automaton.size >= self.window:
                self.automaton, self.next = self.next or Automaton(), None
            if self.next is None and self.automaton.size >= (self.window + 1) // 2:
                self.next = Automaton()
            self.automaton.append(token)
            if self.next is not None:
                self.next.append(token)
        self.position = len(tokens)
