"""Decoding against a made-up machine: passes take the time they are said to, guesses are right as said.

Everything else is real: the loop, the drafters, control. So speeds can be compared exactly, and in no time.
"""

# ruff: noqa: D102 - short, and read beside the tests

from __future__ import annotations

import functools
import hashlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pilotfish.control import ByGain, Control, FixedLength
from pilotfish.costs import Costs
from pilotfish.decode import Decoder
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.base import NO_DRAFT, Draft, Drafter, View
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafters.model import ModelDrafter
from pilotfish.engines.base import Chunk
from pilotfish.engines.scripted import ScriptedEngine, ScriptedRows
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence as TokenSequence

VOCAB = 32
PROMPT = 24

Chance = Callable[[int], float]
"""A probability, for each position of the text."""

AVX2 = {1: 1.0, 2: 1.03, 3: 1.1, 4: 1.3, 6: 1.65, 8: 2.0, 12: 2.8, 16: 3.6, 32: 7.0, 128: 27.0}
VNNI = {1: 1.0, 2: 1.03, 4: 1.05, 5: 1.18, 8: 1.27, 16: 2.26, 32: 4.4, 128: 16.0}
FLAT = {1: 1.0, 128: 1.0}
STEEP = {1: 1.0, 2: 1.8, 128: 110.0}


def cost(table: dict[int, float], unit: float = 0.05, slope: float = 2e-5) -> Callable[[int, int], float]:
    """Return seconds by rows and by the tokens they attend to."""
    return lambda rows, context: (
        unit * (float(np.interp(rows, list(table), list(table.values()))) + slope * context)
    )


@functools.cache
def hashed(*key: object) -> float:
    """Return a number in [0, 1) that depends on the key alone."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=6).digest(), "big") / 2**48


@dataclass
class Clock:
    """Moves only when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class TimedEngine(ScriptedEngine):
    """A scripted engine whose passes move the clock."""

    def __init__(
        self,
        rule: Any,
        clock: Clock,
        seconds: Callable[[int, int], float],
        noise: Callable[[], float] = lambda: 1.0,
    ) -> None:
        super().__init__(rule, VOCAB, 1 << 16)
        self.clock, self.seconds, self.noise = clock, seconds, noise

    def forward(self, chunks: Sequence[Chunk]) -> ScriptedRows:
        context = sum(len(c.tokens) * self.length(c.sequence) for c in chunks)
        rows = super().forward(chunks)
        self.clock.now += self.seconds(sum(len(c.tokens) for c in chunks), context) * self.noise()
        return rows


def noisy(seed: int, spread: float = 0.1, outliers: float = 0.02) -> Callable[[], float]:
    """Return lognormal noise; now and then a pass takes five times as long."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    return lambda: math.exp(rng.gauss(0, spread)) * (5.0 if rng.random() < outliers else 1.0)


def row(token: int, probability: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return logits that give one token this probability, or hardly more than to others."""
    p = min(max(probability, 2 / VOCAB), 0.999)
    logits = np.zeros(VOCAB, np.float32)
    logits[token] = math.log(p / (1 - p) * (VOCAB - 1))
    return logits


@dataclass
class Text:
    """An answer, and what drafters would guess of it.

    `right` is the probability that the draft model is right, `claims` the confidence it has; `partly` is the
    same if it knows only the end of the text; `certainty` the target's own; `found` and `found_claims` are of
    what is looked up; `size` is that of the prompt.
    """

    right: Chance = lambda _position: 0.8
    claims: Chance | None = None
    certainty: Chance = lambda _position: 0.9
    found: Chance = lambda _position: 0.0
    found_claims: Chance | None = None
    partly: Chance | None = None
    seed: int = 0
    id: int = 0
    size: int = PROMPT

    def token(self, position: int) -> int:
        return 1 + int(hashed(self.seed, self.id, position) * (VOCAB - 2))

    def guess(self, what: str, chance: Chance, position: int) -> int:
        token = self.token(position)
        lucky = hashed(self.seed, self.id, what, position) < chance(position)
        return token if lucky else 1 + token % (VOCAB - 2)

    def prompt(self) -> list[int]:
        return [self.id, *(self.token(p) for p in range(1, self.size))]

    def target_rule(self, tokens: tuple[int, ...]) -> Any:
        return row(self.token(len(tokens)), self.certainty(len(tokens)))

    def draft_rule(self, tokens: tuple[int, ...]) -> Any:
        begin = self.begin(tokens)
        right = self.partly if begin and self.partly else self.right
        at = begin + len(tokens)
        return row(self.guess("model", right, at), (self.claims or right)(at))

    def begin(self, tokens: tuple[int, ...]) -> int:
        """Return where in the text the tokens begin, of which the first eight are true; -1 if nowhere."""
        return _begin(self.seed, self.id, tokens[:8])


@functools.cache
def _begin(seed: int, number: int, first: tuple[int, ...]) -> int:
    text = Text(seed=seed, id=number)
    tokens = [number, *(text.token(p) for p in range(1, 4000))]
    return next((b for b in range(len(tokens)) if tuple(tokens[b : b + len(first)]) == first), -1)


class Found:
    """Looks up: as many guesses as asked for, unless nothing was found."""

    name = "suffix"

    def __init__(self, texts: dict[int, Text]) -> None:
        self.texts = texts

    def propose(self, sequences: Sequence[View], limits: Sequence[int]) -> list[Draft]:
        return [self._draft(view, limit) for view, limit in zip(sequences, limits, strict=True)]

    def _draft(self, view: View, limit: int) -> Draft:
        text = self.texts[view.tokens[0]]
        start, claims = len(view.tokens), text.found_claims or text.found
        if claims(start) <= 0:
            return NO_DRAFT
        places = range(start, start + limit)
        return Draft(
            tuple(text.guess("found", text.found, p) for p in places),
            tuple(claims(p) for p in places),
            ("suffix",) * limit,
        )

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        pass

    def forget(self, key: int) -> None:
        pass


@dataclass
class Machine:
    """A target, a draft model and what they cost."""

    target: Callable[[int, int], float] = field(default_factory=lambda: cost(AVX2))
    draft: Callable[[int, int], float] = field(default_factory=lambda: cost(AVX2, 0.05 * 0.3))
    noise: Callable[[], float] = lambda: 1.0
    draft_ratio: float = 0.4

    def answer(self, text: Text, tokens: int, drafter: str = "both", **options: Any) -> Answer:
        return self.answers([text], tokens, drafter, **options)[0]

    def answers(
        self,
        texts: Sequence[Text],
        tokens: int,
        drafter: str = "both",
        length: int | None = None,
        costs: Costs | None = None,
        beliefs: Beliefs | None = None,
        temperature: float = 0.0,
    ) -> list[Answer]:
        """Answer together; `drafter` is off, found, model or both; a length switches control off."""
        known = {text.id: text for text in texts}
        clock = Clock()
        target = TimedEngine(lambda t: known[t[0]].target_rule(t), clock, self.target, self.noise)
        draft = TimedEngine(
            lambda t: next(text for text in texts if text.begin(t) >= 0).draft_rule(t),
            clock,
            self.draft,
            self.noise,
        )
        found: Drafter | None = Found(known) if drafter in {"found", "both"} else None
        model = ModelDrafter(draft, "model") if drafter in {"model", "both"} else None
        made: Drafter | None
        control: Control
        if length is not None:
            made, control = model or found, FixedLength(length)
        elif drafter == "off":
            made, control = None, FixedLength(0)
        else:
            control = ByGain(costs or Costs(self.draft_ratio))
            made = AutoDrafter(found, model, control, beliefs)
        decoder = Decoder(target, made, control, clock=clock)
        sequences = [TokenSequence(text.prompt(), Sampling(temperature, seed=7), tokens) for text in texts]
        answers = [Answer(sequence) for sequence in sequences]
        for sequence in sequences:
            decoder.prefill(sequence)
        while running := [s for s in sequences if s.finish_reason is None]:
            before, started = [len(s.tokens) for s in running], clock()
            drafted, evaluated = [s.stats.drafted for s in running], draft.tokens
            decoder.step(running)
            for s, position, old in zip(running, before, drafted, strict=True):
                answers[sequences.index(s)].steps.append(
                    Stepped(
                        position,
                        s.stats.drafted - old,
                        len(s.tokens) - position,
                        clock() - started,
                        draft.tokens - evaluated,
                    )
                )
        for s in sequences:
            text = known[s.tokens[0]]
            assert temperature or s.tokens[1:] == [text.token(p) for p in range(1, len(s.tokens))]
            decoder.close(s)
        return answers


@dataclass(frozen=True)
class Stepped:
    """One step: where it began, guesses sent, tokens emitted, seconds; tokens that the draft model evaluated.

    The last two are those of the whole batch.
    """

    position: int
    drafted: int
    tokens: int
    seconds: float
    evaluated: int


@dataclass
class Answer:
    """One answer, step by step."""

    sequence: TokenSequence
    steps: list[Stepped] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """All time after the prompt."""
        return sum(step.seconds for step in self.steps)
