"""The guard between the algorithm and a drafter, which is trusted with nothing.

A drafter that raises, proposes too much or ids that are no tokens costs speed, never the answer.
"""

from __future__ import annotations

import collections.abc
import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.drafters.base import NO_DRAFT, Draft

if TYPE_CHECKING:
    from pilotfish.drafters.base import Drafter, View

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Guard:
    """Stands in for `drafter`, or for no drafter; ids from `token_count` on are padding of the vocabulary."""

    drafter: Drafter | None
    token_count: int
    _reported: set[str] = field(default_factory=set)

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return the drafter's drafts, each cut to its limit and before the first id that is not a token."""
        if self.drafter is None or not any(limits):
            return [NO_DRAFT] * len(sequences)
        try:
            drafts = self.drafter.propose(sequences, limits)
            return [self._sane(draft, limit) for draft, limit in zip(drafts, limits, strict=True)]
        except Exception:
            self._report("propose")
            return [NO_DRAFT] * len(sequences)

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Tell the drafter what became of its draft."""
        if self.drafter is None:
            return
        try:
            self.drafter.observe(sequence, draft, accepted)
        except Exception:
            self._report("observe")

    def forget(self, key: int) -> None:
        """Let the drafter free what it keeps for a sequence."""
        if self.drafter is None:
            return
        try:
            self.drafter.forget(key)
        except Exception:
            self._report("forget a sequence")

    def _report(self, what: str) -> None:
        """Log the error in hand, once for each kind: a drafter that always fails must not flood the log."""
        level = logging.DEBUG if what in self._reported else logging.ERROR
        self._reported.add(what)
        name = "" if self.drafter is None else self.drafter.name
        _log.log(level, "drafter %s failed to %s; the answer goes on without it", name, what, exc_info=True)

    def _sane(self, draft: Draft, limit: int) -> Draft:
        usable = itertools.takewhile(lambda token: 0 <= token < self.token_count, draft.tokens[:limit])
        tokens = tuple(int(token) for token in usable)
        name = "" if self.drafter is None else self.drafter.name
        given = itertools.islice(itertools.chain(draft.drafters, itertools.repeat(name)), len(tokens))
        names = tuple(given_name if isinstance(given_name, str) else name for given_name in given)
        return Draft(tokens, draft.confidence[: len(tokens)], names)
