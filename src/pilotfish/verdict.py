"""What the target says to a draft."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.sequence import FinishReason, Sequence, Token

if TYPE_CHECKING:
    from pilotfish.drafters.base import Draft
    from pilotfish.logprobs import Logprobs


@dataclass(slots=True)
class Verdict:
    """The target's own tokens behind a sequence, for as long as the draft agrees, and one more.

    Attributes
    ----------
    own, logprobs
        Tokens to emit, and their log-probabilities if these are wanted.
    accepted, drafted
        How many of them were guessed right, and how many guesses were in question.
    row
        That of the last token.
    reason
        Why the answer ends with the last token, if it does.
    error
        What kept the next token from being chosen.
    """

    own: list[int] = field(default_factory=list)
    logprobs: list[Logprobs | None] = field(default_factory=list)
    accepted: int = 0
    drafted: int = 0
    row: int = 0
    reason: FinishReason | None = None
    error: Exception | None = None

    def take(self, token: int, logprobs: Logprobs | None, row: int, draft: Draft) -> bool:
        """Append a token of the target's own, and tell whether the draft had guessed it.

        What a draft has behind the answer's end was never in question.
        """
        at = len(self.own)
        right = at < len(draft.tokens) and draft.tokens[at] == token
        self.own.append(token)
        self.logprobs.append(logprobs)
        self.row = row
        self.accepted += right
        if self.reason is not None and right:
            self.drafted = self.accepted
        return right

    def apply(self, sequence: Sequence, draft: Draft) -> list[Token]:
        """Append the own tokens to the sequence, count them, and return them."""
        sequence.finish_reason, sequence.error = self.reason, self.error
        if not self.own:
            return []
        sequence.tokens.extend(self.own)
        sequence.evaluated = len(sequence.tokens) - 1
        sequence.stats.passes += sequence.stats.tokens > 0  # the first token comes from the prompt's pass
        sequence.stats.tokens += len(self.own)
        sequence.stats.count_draft(self.drafted, self.accepted)
        names = [*draft.drafters[: self.accepted], *[None] * (len(self.own) - self.accepted)]
        reasons = [*[None] * (len(self.own) - 1), self.reason]
        told = zip(self.own, names, reasons, self.logprobs, strict=True)
        return [Token(id_, name, why, sequence.sampling.choice, logs) for id_, name, why, logs in told]
