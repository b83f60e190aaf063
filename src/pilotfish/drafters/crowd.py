"""Which steps of a crowd go without drafts: deciding costs about as much as there is to gain."""

from __future__ import annotations

import collections.abc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.costs import Costs
    from pilotfish.drafters.base import View

VAIN, MOST_LEFT_OUT = 4, 4
"""So many steps without a draft cost a crowd the next one, twice as many the next two, at most so many:
deciding for eight sequences takes a hundredth of their pass."""

TOGETHER = 64
"""Most tokens drafted for a batch in a step: where a pass has more rows, all that a row costs is its own."""


class Crowd:
    """Leaves out steps of those who share passes of the target, if drafts have not paid for a while.

    Parameters
    ----------
    costs
        Tell whether those who share passes are a crowd; see `pilotfish.costs.Costs.crowded`.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._keys: frozenset[int] = frozenset()
        self._vain = 0  # decisions in a row that no draft came of
        self._leave_out = 0

    def leaves_out(self, sequences: collections.abc.Sequence[View]) -> bool:
        """Return whether nothing is decided in this step; whoever joins is looked at."""
        keys = frozenset(view.key for view in sequences)
        if not keys <= self._keys or not self._costs.crowded(len(sequences)):
            self._vain = self._leave_out = 0
        self._keys = keys
        if not self._leave_out:
            return False
        self._leave_out -= 1
        return True

    def decided(self, *, drafted: bool) -> None:
        """Hear whether anything came of a decision."""
        self._vain = 0 if drafted else self._vain + 1
        self._leave_out = min(self._vain // VAIN, MOST_LEFT_OUT)
