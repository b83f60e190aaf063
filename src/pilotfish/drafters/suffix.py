"""Drafts from the text so far: what followed the last few tokens when they stood there before.

A suffix automaton (Blumer et al. 1985) over prompt and output, extended token by token. A state stands for
all substrings that end at the same places; the suffix link of the newest state is the longest suffix of the
text that has occurred before, so the suffix never matches itself. A token costs microseconds to append and to
propose, on long and on degenerate prompts (``aaaa…``) alike.
"""

from __future__ import annotations

import collections.abc
from typing import TYPE_CHECKING

from pilotfish.drafters.base import NO_DRAFT, Draft

if TYPE_CHECKING:
    from pilotfish.drafters.base import View

LEVELS = 32
"""Suffixes that are counted for each token, longest first: all there are in ordinary text (about
log(length)); the bound keeps the cost flat where every suffix has occurred before."""

DOUBT = 3.0
"""Imaginary failures of a match of one token; a longer match has proportionally fewer."""


class Automaton:
    """The substrings of a growing text, how often each has occurred and what has followed it.

    State 0 is the empty string, which is not counted. The lists are indexed by state.

    Attributes
    ----------
    size
        Number of tokens read.
    last
        State of the whole text.
    """

    def __init__(self) -> None:
        self.size = 0
        self.last = 0
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._occurred = [0]
        self._best = [-1]  # the most frequent continuation, the most recent one on a tie; -1: none yet

    def append(self, token: int) -> None:
        """Read one more token."""
        before = self.last
        self.last = self._extended(token)
        self.size += 1
        self._count(before, token)

    def match(self) -> tuple[int, int]:
        """Return state and length of the longest suffix of the text that has occurred before."""
        state = max(self._link[self.last], 0)
        return state, self._length[state]

    def walk(self, limit: int, min_match: int) -> tuple[list[int], list[float]]:
        """Return up to `limit` tokens along the best continuations of the match, and their confidence.

        With m tokens matched, t earlier occurrences of them and c of these continued by the token, confidence
        is ``c / (t + DOUBT / m)``. At the end of the text the walk goes on from its longest suffix that has
        occurred before, so a repetition is continued through its end.
        """
        tokens: list[int] = []
        confidence: list[float] = []
        state, matched = self.match()
        ended = 1  # the match stands at the end too, an occurrence that nothing has followed yet
        while matched >= min_match and len(tokens) < limit:
            token = self._best[state]
            following = self._next[state][token]
            count = self._occurred[following]
            total = max(count, self._occurred[state] - ended)
            tokens.append(token)
            confidence.append(count / (total + DOUBT / matched))
            state, matched, ended = following, matched + 1, 0
            if self._best[state] < 0:
                state, matched = self.match()
                ended = 1
        return tokens, confidence

    def _extended(self, token: int) -> int:
        """Add the states of the text's new suffixes; return the state of the whole."""
        nexts, link, length = self._next, self._link, self._length
        new = self._state({}, 0, length[self.last] + 1, 0, -1)
        state = self.last
        while state >= 0 and token not in nexts[state]:
            nexts[state][token] = new
            state = link[state]
        if state < 0:
            return new
        seen = nexts[state][token]
        if length[seen] == length[state] + 1:
            link[new] = seen
            return new
        # Only the shorter strings of `seen` are suffixes now: they get a state of their own.
        clone = self._state(
            nexts[seen].copy(), link[seen], length[state] + 1, self._occurred[seen], self._best[seen]
        )
        while state >= 0 and nexts[state].get(token) == seen:
            nexts[state][token] = clone
            state = link[state]
        link[seen] = link[new] = clone
        return new

    def _state(self, nexts: dict[int, int], link: int, length: int, occurred: int, best: int) -> int:
        self._next.append(nexts)
        self._link.append(link)
        self._length.append(length)
        self._occurred.append(occurred)
        self._best.append(best)
        return len(self._link) - 1

    def _count(self, before: int, token: int) -> None:
        """Count the new text's suffixes, and `token` as a continuation of the old text's suffixes."""
        nexts, link, occurred, best = self._next, self._link, self._occurred, self._best
        state = self.last
        for _ in range(LEVELS):
            if state <= 0:
                break
            occurred[state] += 1
            state = link[state]
        state = before
        for _ in range(LEVELS):
            if state <= 0:
                break
            followed = nexts[state]
            if best[state] < 0 or occurred[followed[token]] >= occurred[followed[best[state]]]:
                best[state] = token
            state = link[state]


class SuffixDrafter:
    """Proposes what followed the longest suffix of the text that has occurred before.

    Parameters
    ----------
    min_match
        Nothing is proposed after a match of fewer tokens, at least 1.
    """

    name = "suffix"

    def __init__(self, min_match: int = 2) -> None:
        self.min_match = max(1, min_match)
        self._automata: dict[int, Automaton] = {}

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each sequence."""
        return [self._draft(view, limit) for view, limit in zip(sequences, limits, strict=True)]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn nothing here: `propose` reads what is new in the sequence."""

    def forget(self, key: int) -> None:
        """Free the automaton of a sequence."""
        self._automata.pop(key, None)

    def _draft(self, view: View, limit: int) -> Draft:
        if limit < 1:
            return NO_DRAFT
        automaton = self._automata.setdefault(view.key, Automaton())
        for token in view.tokens[automaton.size :]:
            automaton.append(token)
        tokens, confidence = automaton.walk(limit, self.min_match)
        return Draft(tuple(tokens), tuple(confidence), (self.name,) * len(tokens))
