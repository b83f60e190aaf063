"""A draft model: a smaller model with the same tokens, run ahead of the target."""

from __future__ import annotations

import collections.abc
import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.engines.base import Chunk

if TYPE_CHECKING:
    from pilotfish.drafters.base import View
    from pilotfish.engines.base import Engine, Rows

GoOn = collections.abc.Callable[[int, list[int], list[float]], bool]

READ_SLICE = 128
"""Tokens a pass while catching up: long enough to be efficient, short enough that Ctrl-C is heard soon."""

READY = 8
"""Tokens up to which the model is not really behind: what was looked up is read along with them."""

REACHES = (24, 96)
"""Tokens that are read of the end of a text, by level; at one level more, all of it is."""

WHOLE = len(REACHES)
"""The level at which all of a text is read."""

NEARLY = 1.5
"""A text of up to so many times the reach is read from its beginning."""


@dataclass(slots=True)
class _Cache:
    """What the draft model's cache holds of one sequence: tokens `begin` to `read`, then `drafted` ones.

    `level` is what was asked for when it was begun. `lost`: the sequence has a token that the model does not
    know. `told`: so many were named to its head. `unfinished`: a part of what was to be read is, and no draft
    was made since.
    """

    handle: int
    begin: int = 0
    level: int = -1
    read: int = 0
    drafted: list[int] = field(default_factory=list)
    lost: bool = False
    told: int = 0
    unfinished: bool = False


@dataclass(slots=True)
class _Run:
    """One draft in the making; of what the cache lacks, `share` tokens may be read in this step."""

    view: View
    cache: _Cache
    limit: int
    share: int
    hints: collections.abc.Sequence[int] = ()
    tokens: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    @property
    def reads_on(self) -> bool:
        """Whether its share is not all that is missing, so that there will be no draft yet."""
        return self.share < len(self.view.tokens) - self.cache.read

    def chunk(self) -> Chunk:
        """Return what to evaluate: the tokens before the next one to draft, then hints not looked at yet."""
        if self.tokens:
            return Chunk(self.cache.handle, [self.tokens[-1]], wanted=1)
        unread = [*self.view.tokens[self.cache.read :], *self.hints]
        return Chunk(self.cache.handle, unread, wanted=1 + len(self.hints))


class ModelDrafter:
    """Drafts with another engine for all sequences of the batch together, one pass a depth.

    After each step the draft model's cache holds a prefix of ``sequence.tokens[begin:-1]`` and nothing else:
    the drafted tokens that were accepted stay, the others are truncated. `begin` is 0, or somewhere in the
    text where that is long and only its end was to be read. The last token of a draft is proposed without
    being evaluated. So after a *fully accepted* draft the cache lacks one token more than the pending
    one; both are evaluated in the first pass of the next draft, which costs no pass of its own.

    Tokens are chosen as the target does it, with its noise, penalties and bans: where both models
    agree on the distribution they then agree on the token (Daliri, Musco, Suresh 2024). The confidence of a
    token is its probability in the draft model at temperature 1.

    *Hints* are guesses of another drafter. They are read in the draft's first pass, which so yields as many
    tokens as there are hints that the model would have said itself, and one more.

    In a batch no step waits long for a text to be read: those that lack more than `READY` tokens read one
    slice together, those that lack least first. Who has not read all then gets no draft, and goes on when it
    is asked for again. A sequence that is alone is read at once, as long as nobody waits for it
    (`View.awaited`).

    Where the draft model's context is full it proposes nothing more if it is to know all of a text, and else
    begins anew with the end. It proposes nothing for a sequence with an id that its vocabulary lacks.

    Parameters
    ----------
    engine
        The draft model.
    name
        Shown in statistics.
    min_confidence
        A draft ends with the token at which the product of the confidences falls below this, 0..1; that token
        has been paid for and is still proposed. 0.0 always drafts up to the limit.

    Attributes
    ----------
    passes
        The passes of the last `propose`: for each the tokens evaluated, and the tokens that these attended to
        in all.
    """

    def __init__(self, engine: Engine, name: str, *, min_confidence: float = 0.0) -> None:
        self.engine = engine
        self.name = name
        self.min_confidence = min_confidence
        self.passes: list[tuple[int, int]] = []
        # What an engine with a restricted head has: tells it which ids a text uses.
        self._wants: collections.abc.Callable[[collections.abc.Iterable[int]], None] | None = getattr(
            engine, "wants", None
        )
        self._caches: dict[int, _Cache] = {}

    def behind(self, view: View, level: int = WHOLE) -> int | None:
        """Return how many tokens it would read at a level before its first guess; None if it can't draft."""
        cache, size = self._caches.get(view.key) or _Cache(-1), len(view.tokens)
        begin = self._begin(cache, size, level)
        if size - begin > self.engine.context or cache.lost:
            return None
        return size - (begin if begin != cache.begin else min(cache.read, size - 1))

    def ways(self, view: View) -> list[tuple[int, int]]:
        """Return the levels that differ here, and how many tokens it would read at each, the fewest first.

        What is being read is the only way: another one would give up what it has read.
        """
        cache = self._caches.get(view.key) or _Cache(-1)
        if cache.unfinished:
            level = cache.level if cache.begin else WHOLE
            if (behind := self.behind(view, level)) is not None:
                return [(level, behind)]
        begins = {self._begin(cache, len(view.tokens), level): level for level in range(WHOLE + 1)}
        ways = [(WHOLE if not begin else level, self.behind(view, level)) for begin, level in begins.items()]
        return [(level, behind) for level, behind in ways if behind is not None]

    def is_reading(self, view: View) -> bool:
        """Return whether a text is read in part, and no draft was made since."""
        return view.key in self._caches and self._caches[view.key].unfinished

    def propose(
        self,
        sequences: collections.abc.Sequence[View],
        limits: collections.abc.Sequence[int],
        *,
        hints: collections.abc.Sequence[collections.abc.Sequence[int]] | None = None,
        levels: collections.abc.Sequence[int] | None = None,
        go_on: GoOn | None = None,
        batch: int | None = None,
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each sequence.

        A sequence with limit 0 is not read; while a text is read in part only, there is no draft for it. An
        error of the engine is passed on, and the caches are then as after a step.

        Parameters
        ----------
        sequences, limits
            What to draft for, and how much.
        hints
            Guesses of another drafter for each sequence; by default none.
        levels
            How far back to read each text that is long, see `REACHES`; by default all of it.
        go_on
            Called as ``go_on(i, tokens, confidence)`` whenever the draft of sequence i has grown; false ends
            it there. By default `min_confidence` decides.
        batch
            Sequences that share the step, by default as many as are given.
        """
        self.passes = []
        goes_on = go_on or self._sure_enough
        try:
            reached = [WHOLE] * len(sequences) if levels is None else levels
            asked = list(zip(sequences, limits, reached, strict=True))
            shares = self._shares(asked, len(asked) if batch is None else batch)
            runs = [self._start(*each, share) for each, share in zip(asked, shares, strict=True)]
            active = {i: run for i, run in enumerate(runs) if run is not None}
            for i, run in active.items():
                run.hints = self._usable(hints[i], run) if hints else ()
                if self._wants is not None:
                    self._wants([*run.view.tokens[run.cache.told :], *run.hints])
                    run.cache.told = len(run.view.tokens)
            self._catch_up(list(active.values()))
            active = {i: run for i, run in active.items() if not run.reads_on}
            while active:
                self._draft_more(list(active.values()))
                active = {
                    i: run
                    for i, run in active.items()
                    if len(run.tokens) < run.limit and goes_on(i, run.tokens, run.confidence)
                }
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

    def _shares(self, asked: collections.abc.Sequence[tuple[View, int, int]], batch: int) -> list[int]:
        """Return how many tokens each may read before it drafts: all it lacks, or its share of one slice."""
        shares = [self.behind(view, level) or 0 if limit > 0 else 0 for view, limit, level in asked]
        if batch > 1:
            left = READ_SLICE
            for i in sorted(range(len(asked)), key=shares.__getitem__):
                if shares[i] > READY:
                    shares[i] = min(shares[i], left)
                    left -= shares[i]
        return shares

    def _start(self, view: View, limit: int, level: int, share: int) -> _Run | None:
        cache = self._caches.get(view.key)
        begin = self._begin(cache or _Cache(-1), len(view.tokens), level)
        # The last token drafted is not evaluated, hence one more than the context leaves.
        limit = min(limit, self.engine.context - (len(view.tokens) - begin) + 1)
        if limit < 1 or not share:
            return None
        self._roll_back(view)
        if cache is None:
            cache = self._caches[view.key] = _Cache(self.engine.open())
        if begin != cache.begin:
            self.engine.truncate(cache.handle, 0)
            cache.begin = cache.read = begin
            cache.level, cache.unfinished = level, False
        cache.lost = cache.lost or max(view.tokens[cache.read :]) >= self.engine.vocab_size
        return None if cache.lost else _Run(view, cache, limit, min(share, len(view.tokens) - cache.read))

    def _begin(self, cache: _Cache, size: int, level: int) -> int:
        """Return from which token on a text of `size` tokens should be known."""
        reach = min(REACHES[level] if level < WHOLE else size, self.engine.context)
        known = cache.read > cache.begin and (not cache.begin or cache.level >= level)
        if level == WHOLE or (not cache.read and size <= NEARLY * reach):
            return 0
        if known and size - cache.begin <= self.engine.context and size - cache.read <= reach:
            return cache.begin
        return size - reach if size > NEARLY * reach else 0

    def _usable(self, hints: collections.abc.Sequence[int], run: _Run) -> collections.abc.Sequence[int]:
        """Return the hints up to the limit, which is within the context, and before an unknown id."""
        known = itertools.takewhile(lambda token: 0 <= token < self.engine.vocab_size, hints)
        return list(itertools.islice(known, run.limit - 1))

    def _sure_enough(self, _index: int, _tokens: list[int], confidence: list[float]) -> bool:
        return math.prod(confidence) >= self.min_confidence

    def _catch_up(self, runs: list[_Run]) -> None:
        """Read each one's share, but the last slice of a text; no more than a slice once others wait."""
        while behind := [run for run in runs if run.share > READ_SLICE or (run.share and run.reads_on)]:
            sizes = [min(run.share, READ_SLICE) for run in behind]
            chunks = [
                Chunk(run.cache.handle, run.view.tokens[run.cache.read : run.cache.read + size], 0)
                for run, size in zip(behind, sizes, strict=True)
            ]
            self._forward(chunks)
            for run, size in zip(behind, sizes, strict=True):
                run.cache.read += size
                run.cache.unfinished = True
                run.share -= size
                if run.view.awaited():
                    run.share = 0

    def _draft_more(self, runs: list[_Run]) -> None:
        """Draft one token for each, or several where hints are what the model says itself."""
        chunks = [run.chunk() for run in runs]
        rows, row = self._forward(chunks), 0
        for run, chunk in zip(runs, chunks, strict=True):
            text, hints = len(run.view.tokens), run.hints
            run.cache.read, run.cache.drafted, run.hints = text, [*run.tokens, *hints], ()
            run.cache.unfinished = False
            for i in range(chunk.wanted):
                token = run.view.choose(rows, row + i, run.tokens)
                run.tokens.append(token)
                run.confidence.append(rows.probability(row + i, token))
                if i < len(hints) and token != hints[i]:
                    self.engine.truncate(run.cache.handle, text + i - run.cache.begin)
                    run.cache.drafted = run.tokens[:-1]
                    break
            row += chunk.wanted

    def _forward(self, chunks: list[Chunk]) -> Rows:
        lengths = [(self.engine.length(chunk.sequence), len(chunk.tokens)) for chunk in chunks]
        rows = self.engine.forward(chunks)
        context = sum(more * (length + (more + 1) // 2) for length, more in lengths)
        self.passes.append((sum(more for _, more in lengths), context))
        return rows

    def _draft(self, run: _Run) -> Draft:
        return Draft(tuple(run.tokens), tuple(run.confidence), (self.name,) * len(run.tokens))

    def _roll_back(self, view: View) -> None:
        """Truncate the cache to the longest prefix of ``view.tokens[begin:-1]`` that it is known to hold."""
        cache = self._caches.get(view.key)
        if cache is None:
            return
        evaluated = max(len(view.tokens) - 1, cache.begin)
        length = min(cache.read, evaluated)
        for drafted in cache.drafted:
            if length >= evaluated or view.tokens[length] != drafted:
                break
            length += 1
        self.engine.truncate(cache.handle, length - cache.begin)
        cache.read, cache.drafted = length, []
