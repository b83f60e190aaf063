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
from typing import TYPE_CHECKING

from pilotfish.control import Control, FixedLength, Step
from pilotfish.drafters.base import NO_DRAFT, Draft, Drafter
from pilotfish.drafters.guard import Guard
from pilotfish.engines.base import Chunk, Engine, Rows
from pilotfish.prompt import read_prompt
from pilotfish.sequence import FinishReason, Sequence, Token

if TYPE_CHECKING:
    from pilotfish.logprobs import Logprobs


@dataclass(slots=True)
class Verdict:
    """What the target says to a draft: `own` tokens to emit, `accepted` guessed right; the last one's row."""

    own: list[int] = field(default_factory=list)
    logprobs: list[Logprobs | None] = field(default_factory=list)
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

    def run(self, *choices: Sequence) -> Generator[Token]:
        """Yield an answer token by token; whenever the iterator ends or is closed, caches are freed.

        Several sequences are choices with one prompt: it is read once, and what they hold of it is shared.
        """
        try:
            yield from self.prefill(*choices)
            while running := [s for s in choices if s.finish_reason is None]:
                yield from itertools.chain.from_iterable(self.step(running))
        finally:
            for s in choices:
                self.close(s)

    def prefill(self, *choices: Sequence) -> list[Token]:
        """Evaluate what the first handle does not hold of the prompt yet, and emit each one's first token.

        Raises
        ------
        UsageError
            If the prompt is empty, `max_tokens` is below 1, or (PromptTooLong) the context leaves no room.
        """
        started, tokens = self.clock(), []
        for s in choices:
            s.fit(self.engine.context)
        rows, row = read_prompt(self.engine, choices[0])
        for s in choices:
            if s is not choices[0]:
                s.handle = self.engine.fork(choices[0].handle)
                s.prompt_logprobs = choices[0].prompt_logprobs
            s.stats.prompt_tokens = len(s.tokens)
            tokens += self._emit(s, NO_DRAFT, self._judge(s, NO_DRAFT, rows, row))
            s.stats.prompt_s += self.clock() - started
        return tokens

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
            token = sequence.choose(rows, first + i, verdict.own)
            if self.on_row is not None:
                self.on_row(sequence, position, rows, first + i)
            top = sequence.logprobs
            verdict.logprobs.append(None if top is None else rows.logprobs(first + i, token, top))
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
        sequence.tokens.extend(verdict.own)
        sequence.finish_reason = verdict.reason
        sequence.stats.tokens += len(verdict.own)
        sequence.stats.count_draft(verdict.drafted, verdict.accepted)
        names = [*draft.drafters[: verdict.accepted], *[None] * (len(verdict.own) - verdict.accepted)]
        reasons = [*[None] * (len(verdict.own) - 1), verdict.reason]
        told = zip(verdict.own, names, reasons, verdict.logprobs, strict=True)
        return [Token(id_, name, why, sequence.sampling.choice, logs) for id_, name, why, logs in told]

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
