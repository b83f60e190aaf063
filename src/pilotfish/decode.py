"""The algorithm: draft, verify in one pass, keep what the target would have said itself.

A sequence is its tokens: the prompt, then what was emitted. The newest token is *pending*: emitted, not yet
evaluated. So between steps the target's cache holds exactly ``tokens[:-1]``, whatever happened in the step.
What ids mean as text, where models come from and how a pass is computed are known elsewhere.
"""

from __future__ import annotations

import collections.abc
import functools
import itertools
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from pilotfish.control import Control, FixedLength, Step
from pilotfish.drafters.base import NO_DRAFT, Draft, Drafter
from pilotfish.drafters.guard import Guard
from pilotfish.engines.base import Chunk, Engine, Rows
from pilotfish.sequence import FinishReason, Sequence, Token

PREFILL_SLICE = 128
"""Prompt tokens a pass: long enough to be efficient, short enough that Ctrl-C is heard soon."""


@dataclass(slots=True)
class Verdict:
    """What the target says to a draft: `own` tokens to emit, `accepted` guessed right; the last one's row."""

    own: list[int] = field(default_factory=list)
    accepted: int = 0
    drafted: int = 0
    row: int = 0
    reason: FinishReason | None = None


class Decoder:
    """Runs sequences on an engine with a drafter; several sequences share each pass.

    Parameters
    ----------
    token_count
        Ids from here on are padding of the vocabulary: a draft is cut before the first of them.
    clock
        Seconds, monotonic.
    on_row
        Called as ``on_row(sequence, position, rows, row)`` for each row a token was chosen from.
    """

    def __init__(
        self,
        engine: Engine,
        drafter: Drafter | None = None,
        control: Control | None = None,
        *,
        token_count: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
        on_row: Callable[[Sequence, int, Rows, int], None] | None = None,
    ) -> None:
        self.engine = engine
        self.drafter = Guard(drafter, engine.vocab_size if token_count is None else token_count)
        self.control: Control = control or FixedLength(8)
        self.clock = clock
        self.on_row = on_row

    def run(self, sequence: Sequence) -> Generator[Token]:
        """Yield the answer token by token; whenever the iterator ends or is closed, caches are freed."""
        try:
            yield self.prefill(sequence)
            while sequence.finish_reason is None:
                yield from self.step([sequence])[0]
        finally:
            self.close(sequence)

    def prefill(self, sequence: Sequence) -> Token:
        """Evaluate what the handle does not hold of the prompt yet, in slices, and emit the first token.

        Raises
        ------
        UsageError
            If the prompt is empty, `max_tokens` is below 1, or (PromptTooLong) the context leaves no room.
        """
        started, prompt = self.clock(), list(sequence.tokens)
        sequence.fit(self.engine.context)
        if sequence.handle < 0:
            sequence.handle = self.engine.open()
        warm = min(self.engine.length(sequence.handle), len(prompt) - 1)
        self.engine.truncate(sequence.handle, warm)
        for begin in range(warm, len(prompt), PREFILL_SLICE):
            part = prompt[begin : begin + PREFILL_SLICE]
            last = begin + len(part) == len(prompt)
            rows = self.engine.forward([Chunk(sequence.handle, part, wanted=int(last))])
        verdict = self._judge(sequence, NO_DRAFT, rows, 0)
        sequence.stats.prompt_tokens = len(prompt)
        token = self._emit(sequence, NO_DRAFT, verdict)[0]
        sequence.stats.prompt_s += self.clock() - started
        return token

    def step(self, running: collections.abc.Sequence[Sequence]) -> list[list[Token]]:
        """Draft for, verify and extend every sequence; returns for each the tokens emitted, at least one."""
        times = [self.clock()]
        limits = self._limits(running)
        times.append(self.clock())
        drafts = self.drafter.propose(running, limits)
        times.append(self.clock())
        chunks = [
            Chunk(s.handle, [s.tokens[-1], *d.tokens], wanted=1 + len(d.tokens))
            for s, d in zip(running, drafts, strict=True)
        ]
        try:
            rows = self.engine.forward(chunks)
            times.append(self.clock())
            firsts = itertools.accumulate((c.wanted for c in chunks), initial=0)
            judged = zip(running, drafts, firsts, strict=False)
            verdicts = [self._judge(s, draft, rows, first) for s, draft, first in judged]
            times.append(self.clock())
            emitted = [self._emit(*each) for each in zip(running, drafts, verdicts, strict=True)]
        except BaseException:
            for s in running:  # nothing came of the drafts: drafters roll back too
                self.drafter.observe(s, NO_DRAFT, 0)
            raise
        finally:  # rollback is to an absolute length, and right after a failure too
            for s in running:
                self.engine.truncate(s.handle, len(s.tokens) - 1)
        for s, draft, verdict in zip(running, drafts, verdicts, strict=True):
            certainty = functools.partial(rows.probability, verdict.row, verdict.own[-1])
            self.control.observe(s, draft, verdict.accepted, certainty)
            self.drafter.observe(s, draft, verdict.accepted)
            s.stats.drafting_off = self.control.why(s)
        self.control.timed(Step.of([c.wanted for c in chunks], [len(s.tokens) for s in running], times))
        times.append(self.clock())
        for s in running:
            self._count_time(s, times, len(running))
        return emitted

    def close(self, sequence: Sequence) -> None:
        """Free what engine and drafter keep for the sequence; closing twice does nothing."""
        if sequence.handle >= 0:
            self.engine.close(sequence.handle)
            sequence.handle = -1
        self.drafter.forget(sequence.key)

    def _limits(self, running: collections.abc.Sequence[Sequence]) -> list[int]:
        """Return control's limits, within what the budget leaves beside the target's own token."""
        wanted = self.control.limits(running)
        return [
            max(0, min(w, s.max_tokens - s.stats.tokens - 1)) for w, s in zip(wanted, running, strict=True)
        ]

    def _judge(self, sequence: Sequence, draft: Draft, rows: Rows, first: int) -> Verdict:
        """Choose the target's own tokens, lazily, up to the first mismatch or the end of the answer."""
        verdict = Verdict(drafted=len(draft.tokens))
        for i in range(len(draft.tokens) + 1):
            position = len(sequence.tokens) + i
            token = rows.choose(first + i, sequence.sampling, position)
            if self.on_row is not None:
                self.on_row(sequence, position, rows, first + i)
            verdict.own.append(token)
            verdict.row = first + i
            right = i < len(draft.tokens) and draft.tokens[i] == token
            verdict.accepted += right
            verdict.reason = sequence.reason_after(token, sequence.stats.tokens + i + 1)
            if verdict.reason is not None and right:
                verdict.drafted = verdict.accepted  # what lies behind the end was never in question
            if verdict.reason is not None or not right:
                break
        return verdict

    def _emit(self, sequence: Sequence, draft: Draft, verdict: Verdict) -> list[Token]:
        """Append the verdict's tokens to the sequence and count them."""
        last = len(verdict.own) - 1
        sequence.tokens.extend(verdict.own)
        sequence.finish_reason = verdict.reason
        sequence.stats.tokens += len(verdict.own)
        sequence.stats.count_draft(verdict.drafted, verdict.accepted)
        return [
            Token(
                t, draft.drafters[i] if i < verdict.accepted else None, verdict.reason if i == last else None
            )
            for i, t in enumerate(verdict.own)
        ]

    @staticmethod
    def _count_time(sequence: Sequence, times: list[float], share: int) -> None:
        """Add one step's times; a step shared by several sequences counts in equal parts."""
        control, draft, pass_, sample, other = ((b - a) / share for a, b in itertools.pairwise(times))
        stats = sequence.stats
        stats.passes += 1
        stats.decode_s += (times[-1] - times[0]) / share
        stats.parts.control += control
        stats.parts.draft += draft
        stats.parts.pass_ += pass_
        stats.parts.sample += sample
        stats.parts.other += other
