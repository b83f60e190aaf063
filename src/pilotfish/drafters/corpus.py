"""Drafts from a folder of text or code: what follows there on the last few tokens of the sequence."""

from __future__ import annotations

import collections
import collections.abc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.corpus.index import DEPTH, SEPARATOR
from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.past import PastSuccess

if TYPE_CHECKING:
    from pilotfish.corpus.index import Index
    from pilotfish.drafters.base import View

DISCOUNT = 0.7
"""Taken from the count of a guess after one matched token; of a longer match, in proportion less."""

DOUBT = 4.0
"""Imaginary places at which one matched token goes on otherwise; of a longer match, in proportion fewer.

Both minimize the log-loss of the first guess over 47,000 positions of 70 source files, tests and documents of
Python packages, looked up in as many others (1.5 MB). More doubt than within one text: the same few tokens
mean less in another file."""


class CorpusDrafter:
    """Proposes what most often follows, in a corpus, the longest run of last tokens that stands there.

    Parameters
    ----------
    index
        The corpus.
    min_match
        Nothing is proposed after a match of fewer tokens, at least 1.
    """

    name = "corpus"

    def __init__(self, index: Index, min_match: int = 3) -> None:
        self.index = index
        self.min_match = max(1, min_match)
        self._followers: dict[int, _Follower] = {}

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each sequence."""
        return [self._draft(view, limit) for view, limit in zip(sequences, limits, strict=True)]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn nothing here: `propose` compares its last draft with what is new in the sequence."""

    def forget(self, key: int) -> None:
        """Free what is kept for a sequence."""
        self._followers.pop(key, None)

    def _draft(self, view: View, limit: int) -> Draft:
        if limit < 1:
            return NO_DRAFT
        follower = self._followers.setdefault(view.key, _Follower())
        guesses = follower.guesses(self.index, view.tokens, limit, self.min_match)
        corrected = follower.past.corrected
        return Draft(
            tuple([token for token, _, _ in guesses]),
            tuple([corrected(confidence, matched) for _, confidence, matched in guesses]),
            (self.name,) * len(guesses),
        )


@dataclass(slots=True)
class _Follower:
    """Where one sequence stands in the corpus.

    Attributes
    ----------
    position
        Number of its tokens when it was last looked up.
    most
        Most tokens that could be matched then.
    past
        What came of earlier drafts.
    """

    position: int = 0
    most: int = DEPTH
    past: PastSuccess = field(default_factory=PastSuccess)

    def guesses(
        self, index: Index, tokens: collections.abc.Sequence[int], limit: int, least: int
    ) -> list[tuple[int, float, int]]:
        """Look the newest tokens up; return guesses as `PastSuccess.expect` takes them."""
        self.past.learn(tokens)
        # A match that was the longest has grown by no more than what is new.
        most = self.most + len(tokens) - self.position
        matched, places = index.longest(tokens[-DEPTH:], least, most)
        self.position, self.most = len(tokens), max(matched, least - 1)
        found: list[tuple[int, float, int]] = []
        if matched:
            found = voted(index.following(matched, places, limit), matched)
        self.past.expect(len(tokens), found)
        return found


def voted(rows: list[list[int]], matched: int) -> list[tuple[int, float, int]]:
    """Return the run of tokens on which most rows agree, the first on a tie, up to the end of a file.

    Confidence is ``(c - DISCOUNT / m) / (t + DOUBT / m)`` with m tokens matched, t rows that agreed so far
    and c that agree on the token too.
    """
    guesses = []
    for column in range(len(rows[0])):
        said = [row[column] for row in rows]
        token = said[0]
        count = said.count(token)
        if 2 * count < len(said):
            token, count = collections.Counter(said).most_common(1)[0]
        if token == SEPARATOR:
            break
        confidence = (count - DISCOUNT / matched) / (len(rows) + DOUBT / matched)
        guesses.append((token, confidence, matched))
        if count < len(rows):
            rows = [row for row in rows if row[column] == token]
        matched += 1
    return guesses
