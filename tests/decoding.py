"""Runs requests step by step and checks after every step what must always hold."""

# ruff: noqa: D102 - short, and read beside the tests

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.base import Drafter
from pilotfish.drafters.either import Either
from pilotfish.drafters.model import ModelDrafter
from pilotfish.engines.scripted import Rule, ScriptedEngine
from pilotfish.sequence import Sequence, Token
from pilotfish.stats import Stats
from strategies import PADDED, VOCAB, Pair, Recorder, Request, padded


def decoder_of(rule: Rule, drafter: Drafter | None = None, length: int = 8, context: int = 4096) -> Decoder:
    """Return a decoder on a scripted target with padding ids."""
    engine = ScriptedEngine(padded(rule), PADDED, context)
    return Decoder(engine, drafter, FixedLength(length), token_count=VOCAB)


def scripted(decoder: Decoder) -> ScriptedEngine:
    assert isinstance(decoder.engine, ScriptedEngine)
    return decoder.engine


def model_of(drafter: Drafter | None) -> ModelDrafter | None:
    """Return the draft model inside a drafter, if there is one."""
    if isinstance(drafter, Recorder):
        return model_of(drafter.inner)
    if isinstance(drafter, AutoDrafter | Either):
        return drafter.model
    return drafter if isinstance(drafter, ModelDrafter) else None


def draft_engine(decoder: Decoder) -> ScriptedEngine | None:
    model = model_of(decoder.drafter.drafter)
    if model is None:
        return None
    assert isinstance(model.engine, ScriptedEngine)
    return model.engine


def assert_caches_hold(decoder: Decoder, sequences: Iterable[Sequence]) -> None:
    """Assert that the target's caches are exactly, and the draft model's a stretch of, ``tokens[:-1]``."""
    target = scripted(decoder).sequences
    model, drafts = model_of(decoder.drafter.drafter), draft_engine(decoder)
    for s in sequences:
        evaluated = tuple(s.tokens[:-1])
        assert target[s.handle] == evaluated
        if model is not None and drafts is not None and s.key in model._caches:
            cache = drafts.sequences[model._caches[s.key].handle]
            begin = model._caches[s.key].begin
            assert cache == evaluated[begin : begin + len(cache)]


def assert_nothing_is_left(decoder: Decoder) -> None:
    """Assert that neither engine holds a sequence."""
    assert not scripted(decoder).sequences
    drafts = draft_engine(decoder)
    assert drafts is None or not drafts.sequences


@dataclass
class Run:
    """Requests being answered together; each `step` checks the invariants."""

    decoder: Decoder
    sequences: list[Sequence] = field(default_factory=list)
    emitted: dict[int, list[Token]] = field(default_factory=dict)

    def add(self, request: Request) -> Sequence:
        sequence = request.sequence()
        self.sequences.append(sequence)
        self.emitted[sequence.key] = self.decoder.prefill(sequence)
        assert_caches_hold(self.decoder, [sequence])
        return sequence

    @property
    def running(self) -> list[Sequence]:
        return [s for s in self.sequences if s.runs]

    def step(self) -> None:
        running = self.running
        for s, tokens in zip(running, self.decoder.step(running), strict=True):
            assert tokens or s.error
            self.emitted[s.key].extend(tokens)
        for s in self.sequences:
            self._check(s)
        assert_caches_hold(self.decoder, self.sequences)
        for s in self.sequences:
            if s.error is not None:
                raise s.error

    def finish(self) -> None:
        while self.running:
            self.step()
        for s in self.sequences:
            self._check(s)
            self.decoder.close(s)
        assert_nothing_is_left(self.decoder)

    def _check(self, s: Sequence) -> None:
        emitted = self.emitted[s.key]
        assert [t.id for t in emitted] == s.tokens[len(s.tokens) - len(emitted) :]
        assert [t.finish_reason for t in emitted] == [None] * (len(emitted) - 1) + [s.finish_reason]
        assert s.stats.tokens == len(emitted) <= s.max_tokens
        assert s.stats.accepted <= s.stats.drafted
        assert s.stats.accepted == sum(t.drafted_by is not None for t in emitted)
        assert sum(s.stats.drafted_at) == s.stats.drafted
        assert sum(s.stats.accepted_at) == s.stats.accepted
        if isinstance(s.stop, Pair):
            assert s.stop.seen == [t.id for t in emitted if t.id not in s.ends]


def answer(decoder: Decoder, request: Request) -> tuple[list[int], str | None]:
    """Return the ids and the reason that ended them."""
    run = Run(decoder)
    sequence = run.add(request)
    run.finish()
    return sequence.tokens[len(request.prompt) :], sequence.finish_reason


def plain(rule: Rule, request: Request, context: int = 4096) -> tuple[list[int], str | None]:
    """Return the answer without a drafter."""
    return answer(decoder_of(rule, context=context), request)


def replayed(sequence: Sequence, prompt: int, recorder: Recorder, length: int) -> Stats:
    """Count by hand what verifying the recorded proposals against the known answer must have counted."""
    told = sequence.tokens[prompt:]
    stats = Stats(tokens=len(told), prompt_tokens=prompt)
    at = 1
    while at < len(told):
        room = min(length, sequence.max_tokens - at - 1)
        proposed = recorder.proposed.get((sequence.key, prompt + at), ())[: max(room, 0)]
        draft = list(itertools.takewhile(lambda t: 0 <= t < VOCAB, proposed))
        right = 0
        while right < len(draft) and at + right < len(told) and draft[right] == told[at + right]:
            right += 1
        ended = at + right == len(told)
        judged = right if ended else len(draft)
        for i in range(judged):
            if i == len(stats.drafted_at):
                stats.drafted_at.append(0)
                stats.accepted_at.append(0)
            stats.drafted_at[i] += 1
            if i < right:
                stats.accepted_at[i] += 1
        stats.passes += 1
        at += right if ended else right + 1
    stats.drafted, stats.accepted = sum(stats.drafted_at), sum(stats.accepted_at)
    return stats
