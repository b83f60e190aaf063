"""What a pass over n tokens costs, beside what memory alone would take, and beside what it costs others."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pilotfish.bench.curve import Curve, PeerCurve
from pilotfish.bench.peers import Peer
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.errors import UsageError
from pilotfish.kernels import _kernels

TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
PREFILL = 512
SLICE = 128
READ_BYTES = 1 << 30
READS = 5
PAUSE_S = 0.02
"""Before each pass if there are peers: threads that wait for work spin for a while, ours for about 1 ms,
OpenMP's for some more, and would take time from the other implementation's pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes(Curve):
    """Times of passes on a sequence of `context` tokens.

    Attributes
    ----------
    context
        Tokens that were cached before each pass.
    read_bytes_s
        Best of five reads of 1 GiB with the same threads, bytes a second.
    bytes
        What one pass reads: tensors read in full, as filed, and the cache.
    parts
        Median seconds of a pass over one token by part.
    peers
        The same sizes by other implementations, by name.
    """

    context: int
    read_bytes_s: float
    bytes: int
    parts: dict[str, float] = field(default_factory=dict)
    peers: dict[str, PeerCurve] = field(default_factory=dict)

    @property
    def floor_s(self) -> float:
        """Bytes of one pass over the read bandwidth: what no pass can be faster than."""
        return self.bytes / self.read_bytes_s

    def ratio(self, peer: str, tokens: int) -> float:
        """Return how many times faster than the peer's our pass over so many tokens is."""
        return self.peers[peer].median_s(tokens) / self.median_s(tokens)

    def prefill_ratio(self, peer: str, tokens: int) -> float:
        """Return how many times faster than the peer we read a prompt of so many tokens."""
        return self.prefill_tokens_s(tokens) / self.peers[peer].prefill_tokens_s(tokens)

    def as_dict(self) -> dict[str, object]:
        """Return the fields of `bench passes` in JSON."""
        one = self.median_s(min(self.rows))
        return {
            "context": self.context,
            "rows": self.rows_as_dicts(self.floor_s),
            "one_row": {
                "bytes": self.bytes,
                "floor_ms": 1e3 * self.floor_s,
                "gb_s": self.bytes / one / 1e9,
                "share": self.floor_s / one,
            },
            "prefill": self.prefill_as_dicts(),
            "parts_ms": {part: 1e3 * seconds for part, seconds in self.parts.items()},
            "peers": {name: curve.as_dict(self.floor_s) for name, curve in self.peers.items()},
        }


def measure(
    engine: NativeEngine,
    context: int,
    repeats: int,
    *,
    clock: Callable[[], float],
    tokens: Sequence[int] = TOKENS,
    peers: Sequence[Peer] = (),
    pause: Callable[[float], None] = time.sleep,
    progress: Callable[[float], None] = lambda _share: None,
) -> Passes:
    """Time passes of all sizes in turn, round by round, so that a change of the machine's speed meets all.

    With peers, ours and theirs of one size follow each other, in turned order every other round. Before each
    timed pass all threads rest, and one of the same size goes untimed, as in decoding, where passes of an
    implementation follow each other: its threads are awake then, and what it builds anew for another size is
    built.

    Raises
    ------
    UsageError
        The context leaves no room for the passes.
    """
    prefill = min(PREFILL, engine.context)
    if context < 1 or context + max(tokens) > engine.context:
        raise UsageError(
            f"context is {context}",
            f"the model's context of {engine.context} leaves no room for {max(tokens)} more",
        )
    # Ids that any vocabulary has; what they mean doesn't matter to the time.
    text = [1 + i % (min(engine.vocab_size, 1000) - 1) for i in range(max(context, prefill))]
    with contextlib.closing(_Ours(engine, min(tokens))) as ours:
        rest = functools.partial(pause, PAUSE_S) if peers else None
        runners = [_Timed(ours, clock, rest, ours.note), *(_Timed(peer, clock, rest) for peer in peers)]
        for runner in runners:
            runner.hold(text[:context])
        bandwidth = _kernels.read_bandwidth(READ_BYTES, engine.threads, READS)
        for round_ in range(repeats + 1):  # the first warms up
            turn = runners if round_ % 2 else runners[::-1]
            for n in tokens:
                for runner in turn:
                    runner.run(text[:n], counts=round_ > 0)
            if round_ and round_ <= (repeats + 2) // 3:
                for runner in turn:
                    runner.read(text[:prefill])
            progress((round_ + 1) / (repeats + 1))
    return Passes(
        rows=runners[0].rows,
        prefill=runners[0].prefill,
        context=context,
        read_bytes_s=bandwidth,
        bytes=engine.read_bytes + context * engine.kv_bytes_per_token,
        parts={part: statistics.median(times) for part, times in ours.parts.items()},
        peers={
            peer.name: PeerCurve(rows=r.rows, prefill=r.prefill, version=peer.version, build=peer.build)
            for peer, r in zip(peers, runners[1:], strict=True)
        },
    )


class _Ours:
    """Our engine as `Peer` has it; `parts` are seconds by part of the noted passes over `least` tokens."""

    def __init__(self, engine: NativeEngine, least: int) -> None:
        self.parts: dict[str, list[float]] = {}
        self._engine = engine
        self._least = least
        self._sequence = engine.open()
        self._prompt: int | None = None
        self._held = 0

    def hold(self, tokens: Sequence[int]) -> None:
        self._read(self._sequence, tokens)
        self._held = len(tokens)

    def run(self, tokens: Sequence[int]) -> None:
        self._engine.forward([Chunk(self._sequence, tokens, len(tokens))])

    def read(self, tokens: Sequence[int]) -> None:
        self._prompt = self._engine.open()
        self._read(self._prompt, tokens)

    def restore(self) -> None:
        self._engine.truncate(self._sequence, self._held)
        if self._prompt is not None:
            self._engine.close(self._prompt)
            self._prompt = None

    def note(self, tokens: int) -> None:
        if tokens == self._least:
            for part, spent in self._engine.parts_s().items():
                self.parts.setdefault(part, []).append(spent)

    def close(self) -> None:
        if self._prompt is not None:
            self._engine.close(self._prompt)
        self._engine.close(self._sequence)

    def _read(self, sequence: int, tokens: Sequence[int]) -> None:
        for begin in range(0, len(tokens), SLICE):
            self._engine.forward([Chunk(sequence, tokens[begin : begin + SLICE], 0)])


class _Timed:
    """An implementation and the times of its passes; `rest` is given if others run in turn with it."""

    def __init__(
        self,
        runner: _Ours | Peer,
        clock: Callable[[], float],
        rest: Callable[[], None] | None,
        note: Callable[[int], None] = lambda _tokens: None,
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._rest = rest
        self._note = note
        self.rows: dict[int, list[float]] = {}
        self.prefill: dict[int, list[float]] = {}
        self.hold = runner.hold

    def run(self, tokens: Sequence[int], *, counts: bool) -> None:
        if self._rest:
            self._rest()
            self._time(self._runner.run, tokens)
        seconds = self._time(self._runner.run, tokens)
        times = self.rows.setdefault(len(tokens), [])
        if counts:
            times.append(seconds)
            self._note(len(tokens))

    def read(self, tokens: Sequence[int]) -> None:
        if self._rest:
            self._rest()
        self.prefill.setdefault(len(tokens), []).append(self._time(self._runner.read, tokens))

    def _time(self, work: Callable[[Sequence[int]], None], tokens: Sequence[int]) -> float:
        start = self._clock()
        work(tokens)
        seconds = self._clock() - start
        self._runner.restore()
        return seconds
