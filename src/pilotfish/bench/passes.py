"""What a pass over n tokens costs, beside what memory alone would take."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.errors import UsageError
from pilotfish.kernels import _kernels

TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
PREFILL = 512
SLICE = 128
READ_BYTES = 1 << 30
READS = 5


@dataclass(frozen=True, slots=True)
class Passes:
    """Times of passes on a sequence of `context` tokens.

    Attributes
    ----------
    context
        Tokens that were cached before each pass.
    read_bytes_s
        Best of five reads of 1 GiB with the same threads, bytes a second.
    bytes
        What one pass reads: tensors read in full, as filed, and the cache.
    rows
        Seconds by number of tokens, one entry a repeat.
    prefill
        Seconds for a prompt of so many tokens, one entry a repeat.
    parts
        Median seconds of a pass over one token by part.
    """

    context: int
    read_bytes_s: float
    bytes: int
    rows: dict[int, list[float]]
    prefill: dict[int, list[float]]
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def floor_s(self) -> float:
        """Bytes of one pass over the read bandwidth: what no pass can be faster than."""
        return self.bytes / self.read_bytes_s

    def median_s(self, tokens: int) -> float:
        """Return the median of the repeats."""
        return statistics.median(self.rows[tokens])

    def as_dict(self) -> dict[str, object]:
        """Return the fields of `bench passes` in JSON."""
        one = self.median_s(min(self.rows))
        return {
            "context": self.context,
            "rows": [
                {
                    "n": n,
                    "median_ms": 1e3 * self.median_s(n),
                    "min_ms": 1e3 * min(times),
                    "cost_ratio": self.median_s(n) / one,
                    "over_floor": self.median_s(n) / self.floor_s,
                }
                for n, times in self.rows.items()
            ],
            "one_row": {
                "bytes": self.bytes,
                "floor_ms": 1e3 * self.floor_s,
                "gb_s": self.bytes / one / 1e9,
                "share": self.floor_s / one,
            },
            "prefill": [
                {"n": n, "tokens_per_s": n / statistics.median(times)} for n, times in self.prefill.items()
            ],
            "parts_ms": {part: 1e3 * seconds for part, seconds in self.parts.items()},
            "peers": {},
        }


def measure(
    engine: NativeEngine,
    context: int,
    repeats: int,
    *,
    clock: Callable[[], float],
    tokens: Sequence[int] = TOKENS,
    progress: Callable[[float], None] = lambda _share: None,
) -> Passes:
    """Time passes of all sizes in turn, round by round, so that a change of the machine's speed meets all.

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
    sequence = engine.open()
    try:
        _read(engine, sequence, text[:context])
        bandwidth = _kernels.read_bandwidth(READ_BYTES, engine.threads, READS)
        rows: dict[int, list[float]] = {n: [] for n in tokens}
        prefills: list[float] = []
        parts: dict[str, list[float]] = {}
        for round_ in range(repeats + 1):  # the first warms up
            for n in tokens:
                seconds = _timed(clock, lambda n=n: engine.forward([Chunk(sequence, text[:n], n)]))  # type: ignore[misc]
                if n == min(tokens) and round_:
                    for part, spent in engine.parts_s().items():
                        parts.setdefault(part, []).append(spent)
                engine.truncate(sequence, context)
                if round_:
                    rows[n].append(seconds)
            if round_ and round_ <= (repeats + 2) // 3:
                prompt = engine.open()
                prefills.append(_timed(clock, lambda prompt=prompt: _read(engine, prompt, text[:prefill])))  # type: ignore[misc]
                engine.close(prompt)
            progress((round_ + 1) / (repeats + 1))
    finally:
        engine.close(sequence)
    return Passes(
        context,
        bandwidth,
        engine.read_bytes + context * engine.kv_bytes_per_token,
        rows,
        {prefill: prefills},
        {part: statistics.median(times) for part, times in parts.items()},
    )


def _read(engine: NativeEngine, sequence: int, tokens: Sequence[int]) -> None:
    for begin in range(0, len(tokens), SLICE):
        engine.forward([Chunk(sequence, tokens[begin : begin + SLICE], 0)])


def _timed(clock: Callable[[], float], work: Callable[[], object]) -> float:
    start = clock()
    work()
    return clock() - start
