"""What may not be said next: rules that look at the answer so far, token by token, and name ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Ban(Protocol):
    """A rule with a memory of the answer's tokens, which can be taken back one by one.

    Guesses are pushed as if they had been said, and popped if they were not.
    """

    def push(self, token: int) -> None:
        """Take the answer's next token."""
        ...

    def pop(self) -> None:
        """Take back the newest token."""
        ...

    def banned(self) -> NDArray[np.int32]:
        """Return the ids that may not come next, in any order."""
        ...


class BannedSequences:
    """Token sequences that the answer may not contain: the last id of one is banned behind all before it.

    Parameters
    ----------
    sequences
        Each of at least one id.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self._said: list[int] = []
        self._always = np.array([words[0] for words in sequences if len(words) == 1], np.int32)
        # By the last id before the banned one: what must stand before, and the banned one.
        self._behind: dict[int, list[tuple[list[int], int]]] = {}
        for words in sequences:
            if len(words) > 1:
                *before, last = words
                self._behind.setdefault(before[-1], []).append((before, last))

    def push(self, token: int) -> None:
        """Take the answer's next token."""
        self._said.append(token)

    def pop(self) -> None:
        """Take back the newest token."""
        self._said.pop()

    def banned(self) -> NDArray[np.int32]:
        """Return the last ids of the sequences that stand there but for it."""
        found = (
            [
                last
                for before, last in self._behind.get(self._said[-1], ())
                if self._said[-len(before) :] == before
            ]
            if self._said
            else []
        )
        return np.concatenate([self._always, np.array(found, np.int32)]) if found else self._always
