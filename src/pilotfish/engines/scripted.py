"""A fake engine: a plain function of a sequence's tokens says what each row of logits is.

It needs no model file, keeps real caches, is strict about the contract of `pilotfish.engines.base` and can
be told to fail. Our tests run on it, and so can yours::

    engine = ScriptedEngine(answers({(1, 2): [3, 4, 0]}, vocab_size=8), vocab_size=8)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.engines.base import Chunk
from pilotfish.errors import EngineError, NumericsError, OutOfMemory
from pilotfish.logprobs import Logprobs, logprobs
from pilotfish.sampling import choose

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pilotfish.adjusting import Adjustment
    from pilotfish.sampling import Sampling

Rule = Callable[[tuple[int, ...]], "ArrayLike"]
"""What follows these tokens: logits of shape (vocab_size,), the same whenever it is asked."""

SURE = 16.0
"""Logit of the one token that a rule is sure of, where all others have 0."""


class ScriptedEngine:
    """An engine whose logits come from `rule`.

    Parameters
    ----------
    rule
        Logits of the row after a sequence's tokens; asked only for rows that are looked at.
    vocab_size
        Number of logits a row has.
    context
        Largest number of tokens a sequence may hold.

    Attributes
    ----------
    passes, rows, tokens
        Passes done, rows wanted in them, tokens evaluated in them.
    failures
        Errors by pass number: the error is raised once in place of that pass, and nothing changes.
    nan_at
        Positions at which no token can be chosen: the row after that many tokens is NaN.
    room
        Tokens that all sequences together may hold, None for any number: a pass beyond is OutOfMemory.
    """

    def __init__(self, rule: Rule, vocab_size: int, context: int = 4096) -> None:
        self.rule = rule
        self.vocab_size = vocab_size
        self.context = context
        self.passes = 0
        self.rows = 0
        self.tokens = 0
        self.failures: dict[int, BaseException] = {}
        self.nan_at: set[int] = set()
        self.room: int | None = None
        self._caches: dict[int, list[int]] = {}
        self._opened = 0

    @property
    def sequences(self) -> dict[int, tuple[int, ...]]:
        """The evaluated tokens of each open sequence by handle: a copy, to look at in tests."""
        return {handle: tuple(cache) for handle, cache in self._caches.items()}

    @property
    def pages_in_use(self) -> int:
        """KV pages of 64 tokens that sequences hold; nothing is shared here."""
        return sum(-(-len(cache) // 64) for cache in list(self._caches.values()))

    def open(self) -> int:
        """Return the handle of a new, empty sequence; handles are never used again."""
        self._opened += 1
        self._caches[self._opened] = []
        return self._opened

    def close(self, sequence: int) -> None:
        """Free a sequence; EngineError if it is not open."""
        self._cache(sequence)
        del self._caches[sequence]

    def length(self, sequence: int) -> int:
        """Return the number of evaluated tokens."""
        return len(self._cache(sequence))

    def truncate(self, sequence: int, length: int) -> None:
        """Forget the tokens from the absolute `length` on; EngineError if there are fewer."""
        cache = self._cache(sequence)
        if not 0 <= length <= len(cache):
            raise EngineError(f"sequence {sequence} holds {len(cache)} tokens, can't be cut to {length}")
        del cache[length:]

    def fork(self, sequence: int) -> int:
        """Return a new sequence that holds the same tokens."""
        tokens = self._cache(sequence)
        copy = self.open()
        self._caches[copy].extend(tokens)
        return copy

    def forward(self, chunks: Sequence[Chunk]) -> ScriptedRows:
        """Evaluate one pass; on an error every sequence holds what it held before.

        Raises
        ------
        EngineError
            If a chunk breaks the contract, or an error of `failures` is due (which may be any exception).
        OutOfMemory
            If there is no `room`.
        """
        for chunk in chunks:
            self._check(chunk)
        if len({chunk.sequence for chunk in chunks}) < len(chunks):
            raise EngineError(f"a sequence stands twice in a pass: {[chunk.sequence for chunk in chunks]}")
        if (error := self.failures.pop(self.passes, None)) is not None:
            raise error
        held = sum(len(cache) for cache in self._caches.values())
        if self.room is not None and held + sum(len(chunk.tokens) for chunk in chunks) > self.room:
            raise OutOfMemory(f"the sequences hold {held} tokens of {self.room}", "close some")
        wanted: list[tuple[int, ...]] = []
        for chunk in chunks:
            cache = self._cache(chunk.sequence)
            cache.extend(chunk.tokens)
            wanted.extend(tuple(cache[: len(cache) - i]) for i in reversed(range(chunk.wanted)))
        self.passes += 1
        self.rows += len(wanted)
        self.tokens += sum(len(chunk.tokens) for chunk in chunks)
        return ScriptedRows(self, wanted)

    def _cache(self, sequence: int) -> list[int]:
        if sequence not in self._caches:
            raise EngineError(f"sequence {sequence} is not open")
        return self._caches[sequence]

    def _check(self, chunk: Chunk) -> None:
        length, more = self.length(chunk.sequence), len(chunk.tokens)
        if more < 1:
            raise EngineError(f"a chunk for sequence {chunk.sequence} has no tokens")
        if length + more > self.context:
            raise EngineError(
                f"sequence {chunk.sequence} holds {length} tokens, {more} more exceed the context of"
                f" {self.context}"
            )
        if not 0 <= chunk.wanted <= more:
            raise EngineError(f"{chunk.wanted} rows are wanted of a chunk of {more} tokens")
        for token in chunk.tokens:
            if not 0 <= token < self.vocab_size:
                raise EngineError(f"token id {token} is not in the vocabulary of {self.vocab_size}")


class ScriptedRows:
    """The wanted rows of one pass; any use after the engine's next pass is an EngineError."""

    def __init__(self, engine: ScriptedEngine, tokens: list[tuple[int, ...]]) -> None:
        self._engine = engine
        self._pass = engine.passes
        self._tokens = tokens
        self._logits: dict[int, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def argmax(self, row: int) -> int:
        """Return the id with the largest logit, the lowest one on a tie."""
        return int(np.argmax(self._row(row)))

    def margin(self, row: int) -> float:
        """Return the largest logit minus the second largest, 0.0 on a tie; inf if there is only one."""
        logits = self._row(row)
        if len(logits) < 2:
            return float("inf")
        second, first = np.partition(logits, -2)[-2:]
        return float(first - second)

    def choose(
        self, row: int, sampling: Sampling, position: int, adjustment: Adjustment | None = None
    ) -> int:
        """Return the token that `sampling.choose` gives."""
        return choose(self._row(row), sampling, position, adjustment)

    def probability(self, row: int, token: int) -> float:
        """Return softmax(logits)[token], computed in float64."""
        logits = self._row(row).astype(np.float64)
        weights = np.exp(logits - logits.max())
        return float(weights[token] / weights.sum())

    def logprobs(self, row: int, token: int, top: int) -> Logprobs:
        """Return the log-probabilities of a token and of the `top` likeliest."""
        return logprobs(self._row(row), token, top)

    def digest(self, row: int) -> int:
        """Return the 64-bit BLAKE2b hash of the row's bytes."""
        return int.from_bytes(hashlib.blake2b(self._row(row).tobytes(), digest_size=8).digest(), "little")

    def logits(self, row: int) -> NDArray[np.float32]:
        """Return a copy of the row, shape (vocab_size,)."""
        return self._row(row).copy()

    def _row(self, row: int) -> NDArray[np.float32]:
        if self._pass != self._engine.passes:
            raise EngineError("rows were read after the engine's next pass")
        if not 0 <= row < len(self._tokens):
            raise EngineError(f"row {row} was not wanted, the pass has {len(self._tokens)}")
        if row not in self._logits:
            self._logits[row] = self._computed(self._tokens[row])
        return self._logits[row]

    def _computed(self, tokens: tuple[int, ...]) -> NDArray[np.float32]:
        logits = np.array(self._engine.rule(tokens), dtype=np.float32)
        if logits.shape != (self._engine.vocab_size,):
            raise EngineError(
                f"the rule gave logits of shape {logits.shape} for {self._engine.vocab_size} tokens"
            )
        if len(tokens) in self._engine.nan_at:
            logits[:] = np.nan
        if not np.isfinite(logits).all():
            raise NumericsError(f"the logits at position {len(tokens)} are not finite")
        return logits


def answers(script: Mapping[tuple[int, ...], Sequence[int]], vocab_size: int, end: int = 0) -> Rule:
    """Answer each prompt with its own fixed tokens, and everything else with `end`.

    What stands in the sequence behind the prompt is counted, not compared, so a wrong draft does not matter.
    If one prompt begins with another, the longer one is answered.
    """
    prompts = sorted(script, key=len, reverse=True)

    def rule(tokens: tuple[int, ...]) -> ArrayLike:
        prompt = next((p for p in prompts if tokens[: len(p)] == p), None)
        answer = () if prompt is None else script[prompt]
        said = 0 if prompt is None else len(tokens) - len(prompt)
        return sure_of(answer[said] if said < len(answer) else end, vocab_size)

    return rule


def uniform(vocab_size: int) -> Rule:
    """Hold every token for equally likely: argmax is 0, a sample is anything."""
    return lambda _tokens: np.zeros(vocab_size, np.float32)


def copying(vocab_size: int, back: int) -> Rule:
    """Repeat the token that stood `back` places before; 0 where there is none."""
    return lambda tokens: sure_of(tokens[-back] if back <= len(tokens) else 0, vocab_size)


def ngrams(vocab_size: int, order: int = 2, seed: int = 0) -> Rule:
    """Imitate a language model: the last `order` tokens are hashed to logits of 0..10, a few of them large.

    The same few tokens are always followed by the same distribution, so answers repeat themselves.
    """

    @lru_cache(maxsize=4096)
    def logits(last: tuple[int, ...]) -> NDArray[np.float32]:
        u = _hashed(last, vocab_size, seed)
        return (u / (1.1 - u)).astype(np.float32)

    return lambda tokens: logits(tokens[-order:])


def mistaken(rule: Rule, share: float, seed: int = 0) -> Rule:
    """Say what `rule` says, but for a `share` (0..1) of all contexts for each token what it says of another.

    Makes a draft model that is right now and then.
    """

    def wrong(tokens: tuple[int, ...]) -> ArrayLike:
        logits = np.asarray(rule(tokens))
        return np.roll(logits, 1) if _hashed(tokens, 1, seed)[0] < share else logits

    return wrong


def sure_of(token: int, vocab_size: int) -> NDArray[np.float32]:
    """Return logits, shape (vocab_size,), that leave little doubt about one token."""
    logits = np.zeros(vocab_size, np.float32)
    logits[token] = SURE
    return logits


def _hashed(tokens: tuple[int, ...], count: int, seed: int) -> NDArray[np.float64]:
    """Return `count` numbers in [0, 1), the same on every machine."""
    key = np.array([seed, *tokens], np.int64).astype("<i8").tobytes()
    raw = hashlib.shake_128(key).digest(4 * count)
    return np.frombuffer(raw, "<u4") / 2.0**32
