"""The options of one answer, checked before anything is computed or loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from pilotfish.errors import UsageError
from pilotfish.sampling import Sampling, fresh_seed

MAX_DRAFT_LENGTH = 64
"""Longest fixed draft; far beyond what pays, and a bound on the memory of a pass."""


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


@dataclass(frozen=True, slots=True)
class Options:
    """How an answer is made.

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

    def __post_init__(self) -> None:
        _whole("max_tokens", self.max_tokens, 1, None)
        self.sampling()
        if not isinstance(self.stop, Sequence):
            raise UsageError(f"stop is {self.stop!r}", "it is a string or a list of strings")
        for text in self.stops:
            if not isinstance(text, str) or not text:
                raise UsageError(f"a stop string is {text!r}", "give strings of at least one character")
        if self.draft_length != "auto":
            _whole("draft_length", self.draft_length, 0, MAX_DRAFT_LENGTH, other='"auto" or ')
        if not isinstance(self.speculate, bool):
            raise UsageError(f"speculate is {self.speculate!r}", "it is True or False")
        if not self.speculate and self.draft_length not in {"auto", 0}:
            raise UsageError(
                f"draft_length is {self.draft_length}, but speculate is False", "leave one of the two out"
            )

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings; one string alone is a list of one."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampling(self) -> Sampling:
        """Return how tokens are chosen, with a fresh random seed if none was given."""
        seed = fresh_seed() if self.seed is None else self.seed
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, seed)


def _whole(name: str, value: object, least: int, most: int | None, other: str = "") -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and least <= value and (most is None or value <= most):  # type: ignore[operator]
        return
    room = f"at least {least}" if most is None else f"from {least} to {most}"
    raise UsageError(f"{name} is {value!r}", f"it is {other}a whole number {room}")
