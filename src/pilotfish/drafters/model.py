"""A draft model: a smaller model with the same tokens, run ahead of the target."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.engines.base import Chunk

if TYPE_CHECKING:
    from pilotfish.drafters.base import View
    from pilotfish.engines.base import Engine

READ_SLICE = 128
"""Tokens a pass while catching up: long enough to be efficient, short enough that Ctrl-C is heard soon."""


@dataclass(slots=True)
class _Cache:
    """What the draft model's cache holds of one sequence: its first `read` tokens, then `drafted` ones."""

    handle: int
    read: int = 0
    drafted: list[int] = field(default_factory=list)
    lost: bool = False
    """The sequence has a token that the draft model does not know."""


@dataclass(slots=True)
class _Run:
    """One draft in the making."""

    view: View
    cache: _Cache
    limit: int
    tokens: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    survival: float = 1.0

    def unread(self) -> collections.abc.Sequence[int]:
        """Return the tokens to evaluate before the next one can be drafted; never none."""
        return [self.tokens[-1]] if self.tokens else self.view.tokens[self.cache.read :]


class ModelDrafter:
    """Drafts with another engine for all sequences of the batch together, one pass a depth.

    After each step the draft model's cache holds a prefix of ``sequence.tokens[:-1]`` and nothing else: the
    drafted tokens that were accepted stay, the others are truncated. The last token of a draft is proposed
    without being evaluated. So after a *fully accepted* draft the cache lacks one token more than the pending
    one; both are evaluated in the first pass of the next draft, which costs no pass of its own.

    Tokens are chosen with the target's own sampling and noise at their absolute positions: where both models
    agree on the distribution they then agree on the token (Daliri, Musco, Suresh 2024). The confidence of a
    token is its probability in the draft model at temperature 1.

    Where the draft model's context is full it proposes nothing more, and nothing for a sequence with an id
    that its vocabulary lacks.

    Parameters
    ----------
    engine
        The draft model.
    name
        Shown in statistics.
    min_confidence
        A draft ends with the token at which the product of the confidences falls below this, 0..1; that token
        has been paid for and is still proposed. 0.0 always drafts up to the limit.
    """

    def __init__(self, engine: Engine, name: str, *, min_confidence: float = 0.0) -> None:
        self.engine = engine
        self.name = name
        self.min_confidence = min_confidence
        self._caches: dict[int, _Cache] = {}

    def propose(
        self,
        sequences: collections.abc.Sequence[View],
        limits: collections.abc.Sequence[int],
        *,
        min_confidence: float | None = None,
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each sequence.

        A sequence with limit 0 is not read. `min_confidence` overrides the drafter's own for this call. An
        error of the engine is passed on, and the caches are then as after a step.
        """
        floor = self.min_confidence if min_confidence is None else min_confidence
        try:
            runs = [self._start(view, limit) for view, limit in zip(sequences, limits, strict=True)]
            active = [run for run in runs if run is not None]
            self._catch_up(active)
            while active:
                self._draft_one_each(active)
                active = [run for run in active if len(run.tokens) < run.limit and run.survival >= floor]
        except BaseException:
            for view in sequences:
                self._roll_back(view)
            raise
        return [NO_DRAFT if run is None else self._draft(run) for run in runs]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Keep what was accepted in the draft model's cache and truncate the rest."""
        del draft, accepted  # the sequence itself says what was kept
        self._roll_back(sequence)

    def forget(self, key: int) -> None:
        """Close the draft model's sequence."""
        cache = self._caches.pop(key, None)
        if cache is not None:
            self.engine.close(cache.handle)

    def _start(self, view: View, limit: int) -> _Run | None:
        # The last token drafted is not evaluated, hence one more than the context leaves.
        limit = min(limit, self.engine.context - len(view.tokens) + 1)
        if limit < 1:
            return None
        self._roll_back(view)
        cache = self._caches.get(view.key)
        if cache is None:
            cache = self._caches[view.key] = _Cache(self.engine.open())
        cache.lost = cache.lost or max(view.tokens[cache.read :]) >= self.engine.vocab_size
        return None if cache.lost else _Run(view, cache, limit)

    def _catch_up(self, runs: list[_Run]) -> None:
        """Read all but the last slice of what is missing."""
        while behind := [run for run in runs if len(run.view.tokens) - run.cache.read > READ_SLICE]:
            slices = [run.view.tokens[run.cache.read : run.cache.read + READ_SLICE] for run in behind]
            self.engine.forward(
                [Chunk(run.cache.handle, part, wanted=0) for run, part in zip(behind, slices, strict=True)]
            )
            for run in behind:
                run.cache.read += READ_SLICE

    def _draft_one_each(self, runs: list[_Run]) -> None:
        rows = self.engine.forward([Chunk(run.cache.handle, run.unread(), wanted=1) for run in runs])
        for row, run in enumerate(runs):
            run.cache.read = len(run.view.tokens)
            run.cache.drafted = list(run.tokens)
            token = rows.choose(row, run.view.sampling, len(run.view.tokens) + len(run.tokens))
            run.tokens.append(token)
            run.confidence.append(rows.probability(row, token))
            run.survival *= run.confidence[-1]

    def _draft(self, run: _Run) -> Draft:
        return Draft(tuple(run.tokens), tuple(run.confidence), (self.name,) * len(run.tokens))

    def _roll_back(self, view: View) -> None:
        """Truncate the cache to the longest prefix of ``view.tokens[:-1]`` that it is known to hold."""
        cache = self._caches.get(view.key)
        if cache is None:
            return
        evaluated = len(view.tokens) - 1
        length = min(cache.read, evaluated)
        for drafted in cache.drafted:
            if length >= evaluated or view.tokens[length] != drafted:
                break
            length += 1
        self.engine.truncate(cache.handle, length)
        cache.read, cache.drafted = length, []
