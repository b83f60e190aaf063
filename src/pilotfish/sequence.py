"""One answer in the making: the state that the algorithm, drafters and control share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pilotfish.errors import PromptTooLong, UsageError
from pilotfish.history import History
from pilotfish.stats import Stats

if TYPE_CHECKING:
    import collections.abc

    from pilotfish.bans import Ban
    from pilotfish.engines.base import Rows
    from pilotfish.logprobs import Logprobs
    from pilotfish.sampling import Sampling

FinishReason = Literal["stop", "length"]

_keys = itertools.count()


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token; `drafted_by` names its drafter if it was accepted, only the last has a reason.

    `choice` is that of the sequence's sampling; `logprobs` there are if the sequence wants them.
    """

    id: int
    drafted_by: str | None
    finish_reason: FinishReason | None
    choice: int = 0
    logprobs: Logprobs | None = None


@dataclass(slots=True)
class Sequence:
    """One answer in the making.

    Attributes
    ----------
    tokens
        Starts as the prompt; emitted tokens are appended.
    sampling
        How the target chooses.
    max_tokens
        Budget of emitted tokens, at least 1.
    ends
        Ids that end the answer; the end token itself is emitted.
    handle
        The engine's sequence; -1 before the prompt is read. One that is given beforehand holds the beginning
        of the prompt already, and becomes the sequence's own.
    stop
        Called once with each emitted token in order, end tokens excepted; true ends the answer there.
    min_tokens
        End tokens are banned before so many tokens are emitted; stop strings are `stop`'s own affair.
    bans
        What else may not be said; they belong to this sequence.
    logprobs
        How many of the likeliest tokens come with the log-probability of each emitted token; None for none.
    scores_prompt, prompt_logprobs
        Whether the prompt's tokens get them too, and these, as far as it is read: None for its first token.
    draft_limit
        Most tokens of each draft for it; None for as many as pay, 0 for none.
    salt
        Whose it is: caches and memories of texts are shared with sequences that have the same.
    awaited
        Says whether others wait for the end of its steps: then no drafter takes long over it.
    evaluated
        How many of the tokens the handle holds: all but the pending one, and fewer while the text is read.
    error
        What ended the answer, if that was its own error: logits that are no numbers, a stop that raises.
    """

    tokens: list[int]
    sampling: Sampling
    max_tokens: int
    ends: frozenset[int] = frozenset()
    stop: Callable[[int], bool] = field(default=lambda _token: False)
    finish_reason: FinishReason | None = None
    stats: Stats = field(default_factory=Stats)
    key: int = field(default_factory=lambda: next(_keys))
    handle: int = -1
    min_tokens: int = 0
    bans: collections.abc.Sequence[Ban] = ()
    logprobs: int | None = None
    scores_prompt: bool = False
    prompt_logprobs: list[Logprobs | None] = field(default_factory=list)
    draft_limit: int | None = None
    salt: str = ""
    awaited: Callable[[], bool] = field(default=lambda: False)
    evaluated: int = 0
    error: Exception | None = None
    history: History | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.sampling.adjusts or self.bans or (self.min_tokens and self.ends):
            self.history = History(
                self.sampling,
                len(self.tokens),
                ends=self.ends,
                min_tokens=self.min_tokens,
                bans=self.bans,
            )

    @property
    def runs(self) -> bool:
        """Whether the answer is still in the making."""
        return self.finish_reason is None and self.error is None

    @property
    def left(self) -> int:
        """Tokens that the budget leaves behind the next one."""
        return self.max_tokens - self.stats.tokens - 1

    @property
    def unread(self) -> int:
        """Tokens that are not evaluated yet; 1 is the pending one alone, once an answer has begun."""
        return len(self.tokens) - self.evaluated

    @property
    def scores_left(self) -> int:
        """Tokens of the prompt that still get a log-probability."""
        scored = self.scores_prompt and self.logprobs is not None
        return self.stats.prompt_tokens - len(self.prompt_logprobs) if scored else 0

    def choose(self, rows: Rows, row: int, guesses: collections.abc.Sequence[int] = ()) -> int:
        """Return the token that a row says behind the sequence's tokens and `guesses`.

        The row may be the target's or a draft model's.
        """
        position = len(self.tokens) + len(guesses)
        if self.history is None:
            return rows.choose(row, self.sampling, position)
        return rows.choose(row, self.sampling, position, self.history.after(self.tokens, guesses))

    def fit(self, context: int) -> None:
        """Check a request before its prompt is read, and shrink its budget to what the context leaves.

        Raises
        ------
        UsageError
            If the prompt is empty, `max_tokens` is below 1, or (PromptTooLong) the context leaves no room.
        """
        prompt = len(self.tokens)
        if not prompt:
            raise UsageError("the prompt is empty", "give at least one token to continue from")
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}", "ask for at least 1 token")
        if prompt >= context:
            raise too_long(f"{prompt}", context)
        self.max_tokens = min(self.max_tokens, context - prompt)
        self.stats.prompt_tokens = prompt
        self.prompt_logprobs = [None] if self.scores_prompt and self.logprobs is not None else []

    def reason_after(self, token: int, emitted: int) -> FinishReason | None:
        """Return why the answer ends with `token`, the `emitted`-th token of it, if it does."""
        if token in self.ends or self.stop(token):
            return "stop"
        return "length" if emitted >= self.max_tokens else None


def too_long(count: str, context: int) -> PromptTooLong:
    """Return the error of a prompt of so many tokens, such as "9000" or "at least 9000"."""
    return PromptTooLong(
        f"the prompt has {count} tokens and the context holds {context}",
        "shorten the prompt or load the model with a larger context",
    )
