"""Drafts from the text so far: what followed the last few tokens when they stood there before."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.drafters.automaton import Automaton
from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.past import PastSuccess

if TYPE_CHECKING:
    from pilotfish.drafters.base import View

WINDOW = 1 << 16
"""Most tokens of a sequence that are remembered: its memory is bounded, at about 12 MB."""


class SuffixDrafter:
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

    name = "suffix"

    def __init__(self, min_match: int = 2, window: int = WINDOW) -> None:
        self.min_match = max(1, min_match)
        self.window = max(2, window)
        self._automata: dict[int, _Window] = {}

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each sequence."""
        return [self._draft(view, limit) for view, limit in zip(sequences, limits, strict=True)]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn nothing here: `propose` reads what is new in the sequence."""

    def forget(self, key: int) -> None:
        """Free what is kept for a sequence."""
        self._automata.pop(key, None)

    def _draft(self, view: View, limit: int) -> Draft:
        if limit < 1:
            return NO_DRAFT
        window = self._automata.get(view.key)
        if window is None:
            window = self._automata[view.key] = _Window(self.window)
        window.read(view.tokens)
        guesses = window.automaton.walk(limit, self.min_match)
        window.past.expect(len(view.tokens), guesses)
        corrected = window.past.corrected
        return Draft(
            tuple([token for token, _, _ in guesses]),
            tuple([corrected(confidence, matched) for _, confidence, matched in guesses]),
            (self.name,) * len(guesses),
        )


@dataclass(slots=True)
class _Window:
    """Reads one sequence into an automaton that never holds more than `window` tokens.

    When it holds half of them, a second one starts to read along, and takes its place when it is full. So no
    token costs more than two to append, and none is followed by a long pause.
    """

    window: int
    automaton: Automaton = field(default_factory=Automaton)
    next: Automaton | None = None
    position: int = 0
    past: PastSuccess = field(default_factory=PastSuccess)

    def read(self, tokens: collections.abc.Sequence[int]) -> None:
        """Read what is new in the sequence."""
        self.past.learn(tokens)
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
