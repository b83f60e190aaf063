"""One answer as text: its events one by one, and the whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pilotfish.errors import UsageError
from pilotfish.text.stops import TextStopper

if TYPE_CHECKING:
    from types import TracebackType

    from pilotfish.decode import Decoder
    from pilotfish.sequence import FinishReason, Token
    from pilotfish.sequence import Sequence as TokenSequence
    from pilotfish.stats import Stats
    from pilotfish.text.tokenizer import Tokenizer
    from pilotfish.turns import Turns


@dataclass(frozen=True, slots=True)
class Event:
    """One emitted token.

    Attributes
    ----------
    text
        The text that became certain with it: may be empty, and may belong to earlier tokens.
    token
        Its id.
    drafted_by
        Name of the drafter that guessed it, None if the target said it unasked.
    finish_reason
        Of the last event only: "stop" or "length".
    """

    text: str
    token: int
    drafted_by: str | None
    finish_reason: FinishReason | None


@dataclass(frozen=True, slots=True)
class Result:
    """A finished answer.

    Attributes
    ----------
    text
        Without the end token, and cut before a stop string.
    tokens
        All emitted ids, the end token and those of a stop string included.
    finish_reason
        "stop": an end token or a stop string; "length": `max_tokens`, or the context is full.
    seed
        With it, the same prompt and options, the answer is the same.
    stats
        Counters and rates.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    seed: int
    stats: Stats


class Voice:
    """The text of tokens that come several at once, handed out one by one.

    The algorithm shows each token to `heard` while it is judged; `say` gives its text once it is emitted.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._ends = tokenizer.end_ids
        self._stopper = TextStopper(tokenizer, stops)
        self._pieces: deque[str] = deque()

    def heard(self, token: int) -> bool:
        """Take the next token, true if it completes a stop string; the `stop` of a sequence."""
        stopped = self._stopper(token)
        self._pieces.append(self._stopper.piece)
        return stopped

    def say(self, token: Token) -> str:
        """Return the text that became certain with this token; with the last one, all that was held back."""
        text = "" if token.id in self._ends else self._pieces.popleft()
        return text if token.finish_reason is None else text + self._stopper.finish()


class Answer(Iterator[Event]):
    """An answer in the making: iterate over its events, or ask for the result.

    It may be left at any time, by `close`, the end of a `with` block or by dropping it; what was kept for it
    is freed and the model can be used on.

    Attributes
    ----------
    text
        The text of the events so far.
    """

    def __init__(self, decoder: Decoder, sequence: TokenSequence, voice: Voice, turns: Turns) -> None:
        self.text = ""
        self._sequence = sequence
        self._prompt = len(sequence.tokens)
        self._voice = voice
        self._turns = turns
        self._steps = decoder.run(sequence)

    @property
    def seed(self) -> int:
        """The seed, given or drawn."""
        return self._sequence.sampling.seed

    @property
    def stats(self) -> Stats:
        """Counters, growing with the answer."""
        return self._sequence.stats

    @property
    def tokens(self) -> list[int]:
        """The ids emitted so far, which may be ahead of the events by the rest of a step."""
        return self._sequence.tokens[self._prompt :]

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ended, None before its end or if it was left."""
        return self._sequence.finish_reason

    def __next__(self) -> Event:
        with self._turns.turn():
            token = next(self._steps)
        event = Event(self._voice.say(token), token.id, token.drafted_by, token.finish_reason)
        self.text += event.text
        return event

    def result(self) -> Result:
        """Go on to the end and return the whole answer.

        Raises
        ------
        UsageError
            The answer was left before its end.
        """
        for _ in self:
            pass
        reason = self.finish_reason
        if reason is None:
            raise UsageError("the answer was left before its end", "ask again")
        return Result(self.text, self.tokens, reason, self.seed, self.stats)

    def close(self) -> None:
        """Leave the answer; doing it twice, or after its end, does nothing."""
        self._turns.soon(self._steps.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
