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
from typing import TYPE_CHECKING

from pilotfish.control import NO_LIMIT, Control, FixedLength, Step
from pilotfish.drafters.base import NO_DRAFT, Draft, Drafter
from pilotfish.drafters.guard import Guard
from pilotfish.engines.base import Chunk, Engine, Rows
from pilotfish.prompt import Part, begin, most_to_read
from pilotfish.verdict import Verdict

if TYPE_CHECKING:
    from pilotfish.sequence import Sequence, Token


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
        An error of one ends them all.
        """
        try:
            yield from self.prefill(*choices)
            while running := [s for s in choices if s.runs]:
                yield from itertools.chain.from_iterable(self.step(running))
                _raise_errors(choices)
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
        for s in choices:
            s.fit(self.engine.context)
        begin(self.engine, choices[0])
        tokens: list[Token] = []
        while not tokens:
            [tokens] = self.step((), [Part(choices, most_to_read(choices[0]))])
            _raise_errors(choices)
        return tokens

    def step(
        self,
        running: collections.abc.Sequence[Sequence],
        reading: collections.abc.Sequence[Part] = (),
        longest: int = NO_LIMIT,
    ) -> list[list[Token]]:
        """Draft for, verify and extend every running sequence; the same pass reads on in other texts.

        Returns for each the tokens emitted: of who runs at least one, of who reads those behind the last
        part. Whoever has an `error` may have none; that of one is no matter of the others. If the pass
        itself fails, nothing has changed for anyone. A draft has at most `longest` tokens.
        """
        times = [self.clock()]
        limits = self._limits(running, longest)
        times.append(self.clock())
        drafts = self.drafter.propose(running, limits) if running else []
        times.append(self.clock())
        chunks = [
            Chunk(s.handle, [s.tokens[-1], *d.tokens], wanted=1 + len(d.tokens))
            for s, d in zip(running, drafts, strict=True)
        ]
        chunks += [part.chunk() for part in reading]
        try:
            rows = self.engine.forward(chunks)
            times.append(self.clock())
            firsts = itertools.accumulate((c.wanted for c in chunks), initial=0)
            judged = zip(running, drafts, firsts, strict=False)
            verdicts = [self._judge(s, draft, rows, first) for s, draft, first in judged]
            begun = [self._read(part, rows, first) for part, first in zip(reading, firsts, strict=False)]
            times.append(self.clock())
            emitted = [v.apply(s, d) for s, d, v in zip(running, drafts, verdicts, strict=True)]
            for part, firsts_said in zip(reading, begun, strict=True):
                part.taken(self.engine)
                said = zip(part.choices, firsts_said, strict=False)
                emitted.append([token for s, verdict in said for token in verdict.apply(s, NO_DRAFT)])
        except BaseException:
            for s in running:  # nothing came of the drafts: drafters roll back too
                self.drafter.observe(s, NO_DRAFT, 0)
            raise
        finally:  # rollback is to an absolute length, and right after a failure too
            for s in [*running, *(part.first for part in reading)]:
                self.engine.truncate(s.handle, s.evaluated)
        for s, draft, verdict in zip(running, drafts, verdicts, strict=True):
            if verdict.own:
                certainty = functools.partial(rows.probability, verdict.row, verdict.own[-1])
                self.control.observe(s, draft, verdict.accepted, certainty)
            self.drafter.observe(s, draft, verdict.accepted)
            s.stats.drafting_off = self.control.why(s)
        if not reading:  # with prompts in it, a pass says nothing about the cost of drafts
            self.control.timed(Step.of([c.wanted for c in chunks], [len(s.tokens) for s in running], times))
        times.append(self.clock())
        share = len(chunks)
        for s in running:
            s.stats.count_time(times, share)
        for s in itertools.chain.from_iterable(part.choices for part in reading):
            s.stats.prompt_s += (times[-1] - times[0]) / share
        return emitted

    def close(self, sequence: Sequence) -> None:
        """Free what engine and drafter keep for the sequence; closing twice does nothing."""
        if sequence.handle >= 0:
            self.engine.close(sequence.handle)
            sequence.handle, sequence.evaluated = -1, 0
        self.drafter.forget(sequence.key)

    def _limits(self, running: collections.abc.Sequence[Sequence], longest: int) -> list[int]:
        """Return control's limits, within each one's own and what the budget leaves beside one token."""
        wanted = self.control.limits(running) if running else []
        own = [longest if s.draft_limit is None else min(longest, s.draft_limit) for s in running]
        return [max(0, min(w, most, s.left)) for w, most, s in zip(wanted, own, running, strict=True)]

    def _judge(self, sequence: Sequence, draft: Draft, rows: Rows, first: int) -> Verdict:
        """Choose the target's own tokens, lazily, up to the first mismatch or the end of the answer."""
        verdict = Verdict(drafted=len(draft.tokens))
        try:
            for i in range(len(draft.tokens) + 1):
                token = sequence.choose(rows, first + i, verdict.own)
                if self.on_row is not None:
                    self.on_row(sequence, len(sequence.tokens) + i, rows, first + i)
                top = sequence.logprobs
                logprobs = None if top is None else rows.logprobs(first + i, token, top)
                verdict.reason = sequence.reason_after(token, sequence.stats.tokens + i + 1)
                right = verdict.take(token, logprobs, first + i, draft)
                if verdict.reason is not None or not right:
                    break
        except Exception as error:  # tokens before it stand, and so do the other sequences
            verdict.error, verdict.drafted = error, verdict.accepted
        return verdict

    def _read(self, part: Part, rows: Rows, first: int) -> list[Verdict]:
        """Score what was read; if that was the last part, return what each choice says first."""
        try:
            last = part.score(rows, first)
        except Exception as error:
            return [Verdict(error=error) for _ in part.choices]
        return [self._judge(s, NO_DRAFT, rows, last) for s in part.choices] if part.is_last else []


def _raise_errors(choices: collections.abc.Sequence[Sequence]) -> None:
    for s in choices:
        if s.error is not None:
            raise s.error
