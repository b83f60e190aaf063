"""What hypothesis draws: rules of scripted engines, requests, drafters good and hostile."""

# ruff: noqa: D102 - the protocols say what their methods do

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pilotfish.adjusting import Adjustment
from pilotfish.control import ByGain
from pilotfish.costs import Costs
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.base import NO_DRAFT, Draft, Drafter, View
from pilotfish.drafters.either import Either
from pilotfish.drafters.model import ModelDrafter
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines import scripted
from pilotfish.engines.native.rows import packed
from pilotfish.engines.scripted import Rule, ScriptedEngine, copying, mistaken, ngrams, uniform
from pilotfish.errors import EngineError
from pilotfish.kernels import _kernels
from pilotfish.logprobs import Logprobs
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

settings.register_profile("busy machine", deadline=None, max_examples=60)
settings.load_profile("busy machine")


def _choose(
    logits: NDArray[np.float32], sampling: Sampling, position: int, adjustment: Adjustment | None = None
) -> int:
    s, lists = sampling, None if adjustment is None else packed(sampling, adjustment)
    where = (int(s.seed), int(s.choice), position)
    return _kernels.choose(logits, s.temperature, int(s.top_k), s.top_p, s.min_p, *where, adjustment=lists)


def _logprobs(logits: NDArray[np.float32], token: int, top: int = 0) -> Logprobs:
    logprob, likeliest = _kernels.logprobs(logits, token, top)
    return Logprobs(logprob, tuple(likeliest))


# The reference takes most of the time here. Its own tests see to it that the twin says the same.
scripted.logprobs = _logprobs  # type: ignore[attr-defined]
scripted.choose = _choose  # type: ignore[attr-defined]

GREEDY = Sampling()
VOCAB = 12
PADDED = 15
"""Width of the rows of a scripted target whose ids from VOCAB on are padding."""


def padded(rule: Rule, size: int = PADDED) -> Rule:
    """Append padding ids that are never chosen to the rows of `rule`."""

    def wider(tokens: tuple[int, ...]) -> Any:
        row = np.asarray(rule(tokens), np.float32)
        return np.concatenate([row, np.full(size - len(row), -1000, np.float32)])

    return wider


@dataclass
class Pair:
    """A stop predicate with a memory, as a stop string has: ends when two tokens have come in a row."""

    first: int
    second: int
    seen: list[int] = field(default_factory=list)

    def __call__(self, token: int) -> bool:
        self.seen.append(token)
        return self.seen[-2:] == [self.first, self.second]


@dataclass(frozen=True)
class Request:
    """Everything but the drafter; `sequence()` starts it afresh."""

    prompt: tuple[int, ...]
    sampling: Sampling = GREEDY
    max_tokens: int = 32
    ends: frozenset[int] = frozenset()
    stop: tuple[int, int] | None = None

    def sequence(self) -> Sequence:
        sequence = Sequence(list(self.prompt), self.sampling, self.max_tokens, self.ends)
        if self.stop is not None:
            sequence.stop = Pair(*self.stop)
        return sequence


class Fake:
    """A drafter that proposes what `guess` says of a sequence's tokens and the limit."""

    def __init__(self, guess: Callable[[tuple[int, ...], int], Any], name: str = "fake") -> None:
        self.name = name
        self._guess = guess

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        return [self._draft(tuple(s.tokens), limit) for s, limit in zip(sequences, limits, strict=True)]

    def _draft(self, tokens: tuple[int, ...], limit: int) -> Draft:
        guess = self._guess(tokens, limit)
        return guess if isinstance(guess, Draft) else draft_of(guess, self.name)

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        pass

    def forget(self, key: int) -> None:
        pass


class Raising(Fake):
    """Raises whatever it is asked."""

    def __init__(self) -> None:
        super().__init__(lambda _tokens, limit: [0] * limit, "raising")

    def propose(self, *_: Any) -> list[Draft]:
        raise RuntimeError("no guess")

    def observe(self, *_: Any) -> None:
        raise RuntimeError("not listening")

    def forget(self, *_: Any) -> None:
        raise RuntimeError("never forget")


class Miscounting(Fake):
    """Returns one draft too many."""

    def propose(self, sequences: Any, limits: Any) -> list[Draft]:
        return [*super().propose(sequences, limits), NO_DRAFT]


class Nothing(Fake):
    """Returns no list at all."""

    def propose(self, *_: Any) -> Any:
        return None


class Recorder:
    """Passes everything on to a drafter and keeps what it proposed by key and length of the sequence."""

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner
        self.name = inner.name
        self.proposed: dict[tuple[int, int], tuple[int, ...]] = {}

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        drafts = self.inner.propose(sequences, limits)
        for sequence, draft in zip(sequences, drafts, strict=True):
            self.proposed[sequence.key, len(sequence.tokens)] = tuple(draft.tokens)
        return drafts

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        self.inner.observe(sequence, draft, accepted)

    def forget(self, key: int) -> None:
        self.inner.forget(key)


def draft_of(tokens: Any, name: str = "fake", confidence: float = 0.5) -> Draft:
    return Draft(tuple(tokens), (confidence,) * len(tokens), (name,) * len(tokens))


def draft_model(
    rule: Rule, *, context: int = 4096, vocab_size: int = VOCAB, **options: float
) -> ModelDrafter:
    return ModelDrafter(ScriptedEngine(rule, vocab_size, context), "model", **options)


def measured() -> ByGain:
    """Return control that has measured what is assumed of passes: nothing about it depends on the clock."""
    costs = Costs()
    for rows in (1, 4, 16):
        costs.target.learn(rows, 0, costs.target.shape(rows))
    return ByGain(costs)


def _never_right(rule: Rule) -> Drafter:
    def guess(tokens: tuple[int, ...], limit: int) -> list[int]:
        wrong: list[int] = []
        for _ in range(limit):
            wrong.append((int(np.argmax(rule((*tokens, *wrong)))) + 1) % VOCAB)
        return wrong

    return Fake(guess)


GOOD: dict[str, Callable[[Rule], Drafter]] = {
    "suffix": lambda _rule: SuffixDrafter(),
    "suffix from one token": lambda _rule: SuffixDrafter(min_match=1),
    "itself": draft_model,
    "itself, sure": lambda rule: draft_model(rule, min_confidence=0.9),
    "poor model": lambda rule: draft_model(mistaken(rule, 0.4)),
    "other model": lambda _rule: draft_model(ngrams(VOCAB, 1, 99)),
    "small context": lambda rule: draft_model(rule, context=9),
    "larger vocabulary": lambda rule: draft_model(padded(mistaken(rule, 0.3), 20), vocab_size=20),
    "smaller vocabulary": lambda _rule: draft_model(ngrams(VOCAB - 4, 2, 5), vocab_size=VOCAB - 4),
    "auto": lambda rule: AutoDrafter(SuffixDrafter(), draft_model(mistaken(rule, 0.2)), measured()),
    "either": lambda rule: Either(SuffixDrafter(), draft_model(mistaken(rule, 0.2))),
    "auto without a model": lambda _rule: AutoDrafter(SuffixDrafter(), None, measured()),
    "auto, the model alone": lambda rule: AutoDrafter(None, draft_model(mistaken(rule, 0.1)), measured()),
    "auto, a model for next to nothing": lambda rule: AutoDrafter(
        SuffixDrafter(), draft_model(rule), ByGain(Costs(draft_ratio=0.01))
    ),
}

HOSTILE: dict[str, Callable[[Rule], Drafter]] = {
    "raising": lambda _rule: Raising(),
    "too many tokens": lambda _rule: Fake(lambda tokens, _limit: [tokens[-1]] * 100),
    "ids out of range": lambda _rule: Fake(lambda tokens, limit: [tokens[-1], 10**9][:limit]),
    "negative ids": lambda _rule: Fake(lambda tokens, limit: [tokens[-1], -1, 3][:limit]),
    "padding ids": lambda _rule: Fake(lambda _tokens, limit: [VOCAB] * limit),
    "always wrong": _never_right,
    "always end": lambda _rule: Fake(lambda _tokens, limit: [0] * limit),
    "one draft too many": lambda _rule: Miscounting(lambda tokens, limit: [tokens[-1]] * limit),
    "no list": lambda _rule: Nothing(lambda _tokens, _limit: ()),
    "text for ids": lambda _rule: Fake(lambda _tokens, _limit: Draft(("3", "4"))),  # type: ignore[arg-type]
    "unnamed": lambda _rule: Fake(lambda tokens, limit: Draft(tokens[-limit:]) if limit else NO_DRAFT),
}

MAKERS = GOOD | HOSTILE

drafter_names = st.sampled_from(sorted(MAKERS))
failures = st.sampled_from([EngineError("out of order"), KeyboardInterrupt()])
good_drafter_names = st.sampled_from(sorted(GOOD))
countable_drafter_names = st.sampled_from(
    sorted(MAKERS.keys() - {"one draft too many", "no list", "text for ids"})
)
"""Without those whose proposals are thrown away as a whole."""

draft_lengths = st.integers(0, 16)

rules = st.one_of(
    st.builds(ngrams, st.just(VOCAB), st.integers(1, 3), st.integers(0, 1000)),
    st.builds(copying, st.just(VOCAB), st.integers(1, 5)),
    st.just(uniform(VOCAB)),
)

samplings = st.one_of(
    st.just(Sampling()),
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.5, 0.8, 1.0, 2.0]),
        top_k=st.sampled_from([0, 0, 3]),
        top_p=st.sampled_from([1.0, 1.0, 0.9]),
        min_p=st.sampled_from([0.0, 0.0, 0.05]),
        seed=st.integers(0, 2**64 - 1),
        choice=st.integers(0, 3),
    ),
)

token_ids = st.integers(0, VOCAB - 1)

requests = st.builds(
    Request,
    prompt=st.lists(token_ids, min_size=1, max_size=12).map(tuple),
    sampling=samplings,
    max_tokens=st.integers(1, 24),
    ends=st.frozensets(token_ids, max_size=2),
    stop=st.none() | st.tuples(token_ids, token_ids),
)


@st.composite
def splits(draw: st.DrawFn, length: int) -> list[int]:
    """Draw sizes of parts, each at least 1, that add up to `length`."""
    cuts = sorted(draw(st.sets(st.integers(1, length - 1)))) if length > 1 else []
    return [b - a for a, b in zip([0, *cuts], [*cuts, length], strict=True)]
