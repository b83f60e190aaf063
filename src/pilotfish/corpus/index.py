"""The index of a corpus: finds the longest run of last tokens that stands in it, and what follows there.

The tokens lie as big-endian numbers: the order of their bytes is then that of the tokens, and a suffix is
compared by one comparison of bytes, in C.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DEPTH = 32
"""Tokens by which the suffixes are sorted; no longer match is looked for."""

SEPARATOR = 0xFFFF_FFFF
"""Stands after each file; no token has this id."""

BYTES = 4

VOTES = 32
"""Places of a match that are asked what follows there, spread evenly over all."""


class Index:
    """Tokens and their sorted suffixes.

    Parameters
    ----------
    tokens
        Shape (n,), big-endian uint32; a separator after each file.
    suffixes
        Shape (n,), int32: places in `tokens`, in the order of the `DEPTH` tokens that begin there.
    """

    def __init__(self, tokens: NDArray[np.uint32], suffixes: NDArray[np.int32]) -> None:
        self.size = len(tokens)
        self._data = tokens.view(np.uint8).data
        self._suffixes = suffixes.data

    def longest(self, tail: Sequence[int], least: int = 1, most: int = DEPTH) -> tuple[int, tuple[int, int]]:
        """Return how many of the last tokens stand in the corpus as they do in `tail`, and where.

        Parameters
        ----------
        tail
            Tokens of a text, the newest last.
        least
            A shorter match is none, at least 1.
        most
            No longer match is looked for.

        Returns
        -------
        matched, (begin, end)
            0 if there is no match; else the suffixes from number `begin` to `end` begin with it.
        """
        most = min(most, len(tail), DEPTH)
        if most < least:
            return 0, (0, 0)
        pattern = np.asarray(tail[-most:], ">u4").tobytes()
        begin = self._first(pattern)
        low, high = (most, most) if begin >= 0 else (0, most)
        trial = least
        while high - low > 1 and trial < high:  # `low` tokens stand in the corpus, `high` tokens do not
            place = self._first(pattern[(most - trial) * BYTES :])
            if place >= 0:
                low, begin = trial, place
            elif low == 0:
                break
            else:
                high = trial
            trial = min(2 * low, (low + high) // 2)
        if low == 0:
            return 0, (0, 0)
        return low, (begin, self._after(pattern[(most - low) * BYTES :], begin))

    def following(self, matched: int, places: tuple[int, int], limit: int) -> list[list[int]]:
        """Return the next `limit` tokens at up to `VOTES` places of a match; separators fill up the last."""
        begin, end = places
        count = end - begin
        votes = min(count, VOTES)
        rows = []
        for vote in range(votes):
            start = (self._suffixes[begin + vote * count // votes] + matched) * BYTES
            rows.append(bytes(self._data[start : start + limit * BYTES]).ljust(limit * BYTES, b"\xff"))
        found: list[list[int]] = np.frombuffer(b"".join(rows), ">u4").reshape(votes, limit).tolist()
        return found

    def _first(self, pattern: bytes) -> int:
        """Return the number of the first suffix that begins with the pattern, -1 for none."""
        data, size = self._data, len(pattern)
        place = bisect.bisect_left(
            self._suffixes, pattern, key=lambda at: bytes(data[at * BYTES : at * BYTES + size])
        )
        if place < len(self._suffixes):
            start = self._suffixes[place] * BYTES
            if bytes(data[start : start + size]) == pattern:
                return place
        return -1

    def _after(self, pattern: bytes, begin: int) -> int:
        """Return the number of the first suffix behind those that begin with the pattern."""
        data, size = self._data, len(pattern)
        return bisect.bisect_right(
            self._suffixes, pattern, lo=begin, key=lambda at: bytes(data[at * BYTES : at * BYTES + size])
        )
