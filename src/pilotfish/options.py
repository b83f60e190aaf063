"""The options of one answer, checked before anything is computed or loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from pilotfish.errors import UsageError
from pilotfish.logprobs import MOST_TOP
from pilotfish.sampling import Sampling, fresh_seed

MAX_DRAFT_LENGTH = 64
"""Longest fixed draft; far beyond what pays, and a bound on the memory of a pass."""

MAX_CHOICES = 128
"""Most answers to one prompt at once; OpenAI's bound."""

BadWord = str | Sequence[int]


class OptionArgs(TypedDict, total=False):
    """What `Options` takes, by keyword."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None
    stop: str | Sequence[str]
    draft_length: Literal["auto"] | int
    speculate: bool
    presence_penalty: float
    frequency_penalty: float
    repeat_penalty: float
    repeat_last_n: int
    logit_bias: Mapping[int, float]
    bad_words: str | Sequence[BadWord]
    min_tokens: int
    ignore_eos: bool
    n: int
    logprobs: bool
    top_logprobs: int
    echo: bool


@dataclass(frozen=True, slots=True)
class Options:
    """How an answer is made; docs/sampling.md has the rules.

    Attributes
    ----------
    max_tokens
        Most tokens to emit, at least 1; the context's end also ends the answer.
    temperature, top_k, top_p, min_p
        As in `Sampling`; 0 is greedy; 0, 1.0 and 0.0 keep every token.
    seed
        0..2**64-1, or None for a fresh random one; the answer says which.
    stop
        Strings before which the text ends.
    draft_length
        "auto", or 0..64 tokens: then exactly the named drafter, and no control.
    speculate
        False is plain decoding for this answer.
    presence_penalty, frequency_penalty, repeat_penalty, repeat_last_n
        As in `Sampling`; 0.0, 0.0 and 1.0 change nothing.
    logit_bias
        By id, what is added to its logit, -100..100.
    bad_words
        What the answer never contains: strings, whatever tokens they would be made of, or sequences of ids.
    min_tokens
        Before so many tokens, 0..max_tokens, end tokens are banned and stop strings do not count.
    ignore_eos
        End tokens are tokens like others: only `stop`, `max_tokens` and the context end the answer.
    n
        How many answers to make, 1..128; each has its own noise.
    logprobs, top_logprobs
        Whether log-probabilities come with each token, and of how many of the likeliest ids, 0..20.
    echo
        Whether the answer begins with the prompt; with `logprobs`, its tokens get theirs.

    Raises
    ------
    UsageError
        A value that makes no sense; the message names it.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] = ()
    draft_length: Literal["auto"] | int = "auto"
    speculate: bool = True
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = -1
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: str | Sequence[BadWord] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    echo: bool = False

    def __post_init__(self) -> None:
        _whole("max_tokens", self.max_tokens, 1, None)
        if not isinstance(self.logit_bias, Mapping):
            raise UsageError(f"logit_bias is {self.logit_bias!r}", "it is a mapping of ids to biases")
        self.sampling()
        self._check_strings()
        if self.draft_length != "auto":
            _whole("draft_length", self.draft_length, 0, MAX_DRAFT_LENGTH, other='"auto" or ')
        for name in ("speculate", "ignore_eos", "logprobs", "echo"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} is {getattr(self, name)!r}", "it is True or False")
        if not self.speculate and self.draft_length not in {"auto", 0}:
            raise UsageError(
                f"draft_length is {self.draft_length}, but speculate is False", "leave one of the two out"
            )
        _whole("min_tokens", self.min_tokens, 0, None)
        if self.min_tokens > self.max_tokens:
            raise UsageError(
                f"min_tokens is {self.min_tokens}, but max_tokens is {self.max_tokens}", "ask for no more"
            )
        _whole("n", self.n, 1, MAX_CHOICES)
        _whole("top_logprobs", self.top_logprobs, 0, MOST_TOP)
        if self.top_logprobs and not self.logprobs:
            raise UsageError(
                f"top_logprobs is {self.top_logprobs}, but logprobs is False", "set logprobs too"
            )

    def _check_strings(self) -> None:
        if not isinstance(self.stop, Sequence):
            raise UsageError(f"stop is {self.stop!r}", "it is a string or a list of strings")
        for text in self.stops:
            if not isinstance(text, str) or not text:
                raise UsageError(f"a stop string is {text!r}", "give strings of at least one character")
        if not isinstance(self.bad_words, Sequence) or isinstance(self.bad_words, bytes):
            raise UsageError(f"bad_words is {self.bad_words!r}", "it is a list of strings or of lists of ids")
        for word in self.banned_strings:
            if not word or _has_surrogate(word):
                raise UsageError(f"a bad word is {word!r}", "give text of at least one character")
        for ids in self.banned_sequences:
            if not isinstance(ids, Sequence) or isinstance(ids, bytes) or not ids:
                raise UsageError(f"a bad word is {ids!r}", "give strings, or lists of at least one id")
            for token in ids:
                _whole("an id of bad_words", token, 0, None)

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings; one string alone is a list of one."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def banned_strings(self) -> tuple[str, ...]:
        """The bad words that are strings; one string alone is a list of one."""
        words = [self.bad_words] if isinstance(self.bad_words, str) else self.bad_words
        return tuple(word for word in words if isinstance(word, str))

    @property
    def banned_sequences(self) -> tuple[Sequence[int], ...]:
        """The bad words that are sequences of ids."""
        return tuple(word for word in self.bad_words if not isinstance(word, str))

    def sampling(self) -> Sampling:
        """Return how tokens are chosen, with a fresh random seed if none was given."""
        return Sampling(
            self.temperature,
            self.top_k,
            self.top_p,
            self.min_p,
            fresh_seed() if self.seed is None else self.seed,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repeat_penalty=self.repeat_penalty,
            repeat_last_n=self.repeat_last_n,
            logit_bias=tuple(self.logit_bias.items()),
        )


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _whole(name: str, value: object, least: int, most: int | None, other: str = "") -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and least <= value and (most is None or value <= most):  # type: ignore[operator]
        return
    room = f"at least {least}" if most is None else f"from {least} to {most}"
    raise UsageError(f"{name} is {value!r}", f"it is {other}a whole number {room}")
