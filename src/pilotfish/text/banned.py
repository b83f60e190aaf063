"""Strings that an answer may not contain, whatever tokens they would be made of."""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pilotfish.text.tokenizer import Tokenizer

_sorted: weakref.WeakKeyDictionary[Tokenizer, tuple[list[bytes], list[int]]] = weakref.WeakKeyDictionary()


class Word:
    """One string, of at least one character, and which tokens complete it."""

    def __init__(self, tokenizer: Tokenizer, string: str) -> None:
        self._word = string.encode()
        self._borders = _borders(self._word)
        self._tokenizer = tokenizer
        self._completing: dict[int, NDArray[np.int32]] = {}

    def step(self, matched: int, token: int) -> int:
        """Return how much of the word a text ends with that ended with `matched` of it before `token`."""
        word, borders = self._word, self._borders
        for byte in self._tokenizer.token_bytes(token):
            while matched and word[matched] != byte:
                matched = borders[matched]
            matched += word[matched] == byte
            if matched == len(word):
                matched = borders[matched]
        return matched

    def completed_by(self, matched: int) -> NDArray[np.int32]:
        """Return the ids of tokens with which a text that ends with `matched` of the word has all of it."""
        if matched not in self._completing:
            pieces, ids = _by_bytes(self._tokenizer)
            if matched:
                rest = self._word[matched:]
                first = bisect.bisect_left(pieces, rest)
                last = bisect.bisect(pieces, rest, lo=first, key=lambda piece: piece[: len(rest)])
                # What the text ends with may itself end with a shorter beginning of the word.
                shorter = self.completed_by(self._borders[matched])
                found = np.concatenate([np.array(ids[first:last], np.int32), shorter])
            else:
                found = np.array([t for p, t in zip(pieces, ids, strict=True) if self._word in p], np.int32)
            self._completing[matched] = found
        return self._completing[matched]


class BannedStrings:
    """A ban (`pilotfish.bans.Ban`) on strings: a token that would complete one may not come next.

    Texts are compared byte by byte. How much of a string the answer ends with is followed as by Knuth, Morris
    and Pratt (1977); which tokens then complete it is looked up once for each such length.
    """

    def __init__(self, words: Sequence[Word]) -> None:
        """Several answers may share `words`."""
        self._words = words
        # Before the answer, and behind each of its tokens: how much of each string the text ends with.
        self._matched: list[tuple[int, ...]] = [(0,) * len(words)]

    def push(self, token: int) -> None:
        """Take the answer's next token."""
        before = zip(self._words, self._matched[-1], strict=True)
        self._matched.append(tuple(word.step(matched, token) for word, matched in before))

    def pop(self) -> None:
        """Take back the newest token."""
        self._matched.pop()

    def banned(self) -> NDArray[np.int32]:
        """Return the ids of tokens that would complete a string."""
        lists = [
            word.completed_by(matched) for word, matched in zip(self._words, self._matched[-1], strict=True)
        ]
        return np.concatenate(lists) if len(lists) > 1 else lists[0]


def _by_bytes(tokenizer: Tokenizer) -> tuple[list[bytes], list[int]]:
    """Return the bytes of all tokens that have some, sorted, and the id of each."""
    if tokenizer not in _sorted:
        pairs = sorted((tokenizer.token_bytes(token), token) for token in range(tokenizer.token_count))
        pairs = [pair for pair in pairs if pair[0]]
        _sorted[tokenizer] = [piece for piece, _ in pairs], [token for _, token in pairs]
    return _sorted[tokenizer]


def _borders(word: bytes) -> list[int]:
    """Return for each length the longest shorter beginning of `word` that its beginning so long ends with."""
    borders = [0, 0]
    for byte in word[1:]:
        length = borders[-1]
        while length and word[length] != byte:
            length = borders[length]
        borders.append(length + (word[length] == byte))
    return borders
