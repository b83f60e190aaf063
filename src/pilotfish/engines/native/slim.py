"""A model made smaller at load: weights rounded to fewer bits, a head that can say fewer ids.

Its logits are no longer the file's, so it may draft, but never be a target.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GROUP = 16
"""Rows of a matrix that the kernels pack, and read, together."""


@dataclass(frozen=True, slots=True)
class Slim:
    """What is left out of a model.

    Attributes
    ----------
    types
        By tensor, the type that its matrix is rounded to; others stay as filed.
    head_ids
        Ids that the head can always say; None for all.
    most_groups
        How many groups of 16 ids more it can say at a time, of those that texts use.
    """

    types: Mapping[str, str]
    head_ids: frozenset[int] | None = None
    most_groups: int = 512


class HeadGroups:
    """Which groups of 16 ids a restricted head computes: some always, others since texts use them.

    When there are too many of these, the one goes that was not wanted for the longest time. Safe to use from
    several threads.

    Parameters
    ----------
    always
        Ids that are always computed.
    vocab_size
        Ids that there are; others are ignored.
    most
        Groups that may be added.
    """

    def __init__(self, always: Iterable[int], vocab_size: int, most: int) -> None:
        self._vocab_size = vocab_size
        self._most = most
        self._always = frozenset(token // GROUP for token in always if 0 <= token < vocab_size)
        self._added: OrderedDict[int, None] = OrderedDict()
        self._changed = True
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._always) + len(self._added)

    def want(self, tokens: Iterable[int]) -> None:
        """Add the groups of these ids; those of the last ones stay the longest."""
        with self._lock:
            for group in dict.fromkeys(token // GROUP for token in tokens if 0 <= token < self._vocab_size):
                if group in self._always:
                    continue
                self._changed |= group not in self._added
                self._added[group] = None
                self._added.move_to_end(group)
            while len(self._added) > self._most:
                self._added.popitem(last=False)

    def take_changed(self) -> NDArray[np.int32] | None:
        """Return the groups, ascending; None if they are those of the last call."""
        with self._lock:
            if not self._changed:
                return None
            self._changed = False
            return np.array(sorted(self._always.union(self._added)), dtype=np.int32)
