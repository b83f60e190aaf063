"""A suffix automaton over a growing text, with counts: what stood where, and what followed it how often.

A suffix automaton (Blumer et al. 1985) is extended token by token. A state stands for all substrings that end
at the same places; the suffix link of the newest state is the longest suffix of the text that has occurred
before, so the suffix never matches itself. A token costs microseconds to append and to guess, on long and on
degenerate text (``aaaa…``) alike, and about 130 bytes on code or prose: five states in six have one
continuation only, so a dictionary is kept for the others alone.
"""

# ruff: noqa: FURB136 - calls of min and max would be a third of the time of a guess

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.drafters.past import Claim

LEVELS = 32
"""Suffixes that are counted for each token, longest first: all there are in ordinary text (about
log(length)); the bound keeps the cost flat where every suffix has occurred before."""

DISCOUNT = 0.6
"""Taken from the count of a guess after one matched token, and less after more: by the square root."""

DOUBT = 1.0
"""Imaginary occurrences of one matched token that went on otherwise; of a longer match, in proportion fewer.

Both constants are near the minimum, which is flat, of the log-loss of the first guess over 26 greedy answers
of Qwen2.5-Coder-0.5B to Spec-Bench prompts (3,400 positions) and source files and prose (20,000), both
weighing the same. Claims are within 0.04 of the truth on the answers, on average, and a tenth too high on
human text, which past success corrects. ``benchmarks/suffix.py`` measures it. Guessing what is likeliest by
this estimate, instead of what followed the longest match most often, was right no more often."""

LONG = 64
"""A longer match counts as one of so many tokens."""

_DISCOUNTS = [DISCOUNT / math.sqrt(max(m, 1)) for m in range(LONG + 1)]
_DOUBTS = [DOUBT / max(m, 1) for m in range(LONG + 1)]


class Automaton:
    """The substrings of a growing text, how often each has occurred and what has followed it.

    State 0 is the empty string, which is not counted. The arrays are indexed by state; there are at most two
    states a token.

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
        self._link = array("i", [-1])
        self._length = array("i", [0])
        self._occurred = array("i", [0])
        self._best = array(
            "i", [-1]
        )  # the most frequent continuation, the most recent one on a tie; -1: none
        # The continuation that came first, -1: none, and the state it leads to; the others are in `_more`.
        self._token = array("i", [-1])
        self._to = array("i", [-1])
        self._more: dict[int, dict[int, int]] = {}

    def append(self, token: int) -> None:
        """Read one more token, an id of at least 0."""
        before = self.last
        self.last = self._extended(token)
        self.size += 1
        self._count(before, token)

    def match(self) -> tuple[int, int]:
        """Return state and length of the longest suffix of the text that has occurred before."""
        state = max(self._link[self.last], 0)
        return state, self._length[state]

    def walk(self, limit: int, min_match: int) -> list[Claim]:
        """Return up to `limit` guesses along the best continuations of the match.

        With m tokens matched, t earlier occurrences of them, c of these continued by the guess and u kinds of
        continuations, confidence is ``(c - d + (h + u·d)·s) / (t + h)``, where ``d = DISCOUNT / √m``,
        ``h = DOUBT / m``, and s is ``(c - d) / (t + h)``, at least 0, of the next shorter suffix that has
        occurred more often. This is Pitman-Yor smoothing (Teh 2006, "A hierarchical Bayesian language model
        based on Pitman-Yor processes") with two levels.

        At the end of the text the walk goes on from its longest suffix that has occurred before, so a
        repetition is continued through its end. All in one function, which halves its time: about 1 µs a
        guess.
        """
        length, occurred, first, to = self._length, self._occurred, self._token, self._to
        guesses: list[Claim] = []
        state, matched = self.match()
        ended = 1  # the match stands at the end too, an occurrence that nothing has followed yet
        while matched >= min_match and len(guesses) < limit:
            token = self._best[state]
            others = self._more.get(state)
            following = to[state] if others is None or first[state] == token else others[token]
            count = occurred[following]
            total = occurred[state] - ended
            total = total if total > count else count
            size = matched if matched < LONG else LONG
            discount, doubt = _DISCOUNTS[size], _DOUBTS[size]
            # Counts of deep levels are too low on degenerate text: no more kinds than they leave room for.
            kinds = 1 if others is None else min(1 + len(others), 1 + total - count)
            right = count - discount
            shorter = self._link[state]
            if shorter > 0:
                size = length[shorter] if length[shorter] < LONG else LONG
                after = to[shorter] if first[shorter] == token else self._more[shorter][token]
                there = occurred[after]
                if there > _DISCOUNTS[size]:
                    known = occurred[shorter] - ended
                    known = known if known > there else there
                    share = (there - _DISCOUNTS[size]) / (known + _DOUBTS[size])
                    right += (doubt + discount * kinds) * share
            guesses.append((token, right / (total + doubt), matched))
            state, matched, ended = following, matched + 1, 0
            if self._best[state] < 0:
                state, matched = self.match()
                ended = 1
        return guesses

    def _follow(self, state: int, token: int) -> int:
        """Return the state after `token`, which is known to have followed."""
        return self._to[state] if self._token[state] == token else self._more[state][token]

    def _extended(self, token: int) -> int:
        """Add the states of the text's new suffixes; return the state of the whole."""
        new = self._state(self._length[self.last] + 1, 0, 0, -1, -1, -1)
        state, seen = self._lead(self.last, token, new)
        if seen >= 0:
            if self._length[seen] != self._length[state] + 1:
                seen = self._split(seen, state, token)
            self._link[new] = seen
        return new

    def _lead(self, state: int, token: int, new: int) -> tuple[int, int]:
        """Let the text's suffixes, from `state` on, lead to `new` by a token that has not followed them.

        Returns the longest one that it has followed, and where it led; -1 for none.
        """
        link, first, to, more = self._link, self._token, self._to, self._more
        while state >= 0:
            held = first[state]
            if held == token:
                return state, to[state]
            if held < 0:
                first[state], to[state] = token, new
            elif (others := more.get(state)) is None:
                more[state] = {token: new}
            elif (seen := others.get(token, -1)) >= 0:
                return state, seen
            else:
                others[token] = new
            state = link[state]
        return -1, -1

    def _split(self, seen: int, state: int, token: int) -> int:
        """Give a state of their own to those strings of `seen` that are suffixes now, `state` and `token`."""
        link, first, to, more = self._link, self._token, self._to, self._more
        clone = self._state(
            self._length[state] + 1,
            link[seen],
            self._occurred[seen],
            self._best[seen],
            first[seen],
            to[seen],
        )
        if seen in more:
            more[clone] = more[seen].copy()
        while state >= 0:
            if first[state] == token:
                if to[state] != seen:
                    break
                to[state] = clone
            else:
                others = more[state]
                if others[token] != seen:
                    break
                others[token] = clone
            state = link[state]
        link[seen] = clone
        return clone

    def _state(self, length: int, link: int, occurred: int, best: int, token: int, to: int) -> int:
        self._length.append(length)
        self._link.append(link)
        self._occurred.append(occurred)
        self._best.append(best)
        self._token.append(token)
        self._to.append(to)
        return len(self._link) - 1

    def _count(self, before: int, token: int) -> None:
        """Count the new text's suffixes, and `token` as a continuation of the old text's suffixes."""
        link, occurred, best, follow = self._link, self._occurred, self._best, self._follow
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
            held = best[state]
            if held != token and (
                held < 0 or occurred[follow(state, token)] >= occurred[follow(state, held)]
            ):
                best[state] = token
            state = link[state]
