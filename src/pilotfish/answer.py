"""The answers to one prompt as text: their events one by one, and the whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pilotfish.errors import UsageError
from pilotfish.text.detokenizer import Detokenizer
from pilotfish.text.stops import TextStopper

if TYPE_CHECKING:
    from types import TracebackType

    from pilotfish.decode import Decoder
    from pilotfish.logprobs import Logprobs
    from pilotfish.sequence import FinishReason, Token
    from pilotfish.sequence import Sequence as TokenSequence
    from pilotfish.stats import Stats
    from pilotfish.text.tokenizer import Tokenizer
    from pilotfish.turns import Turns

Top = tuple[tuple[int, float], ...]
"""The likeliest ids of a position with their log-probabilities, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Event:
    """One emitted token, or one of the prompt's if it is echoed.

    Attributes
    ----------
    text
        The text that became certain with it: may be empty, and may belong to earlier tokens.
    token
        Its id.
    drafted_by
        Name of the drafter that guessed it, None if the target said it unasked.
    finish_reason
        Of a choice's last event only: "stop" or "length".
    choice
        Which of the `n` answers it belongs to.
    logprob, top_logprobs
        With `logprobs`: the token's log-probability, and those of the `top_logprobs` likeliest ids there;
        None and none for the first token of a prompt.
    echo
        Whether it is a token of the prompt.
    """

    text: str
    token: int
    drafted_by: str | None
    finish_reason: FinishReason | None
    choice: int = 0
    logprob: float | None = None
    top_logprobs: Top = ()
    echo: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A finished answer.

    Attributes
    ----------
    text
        Without the end token, and cut before a stop string; with `echo`, behind the prompt's text.
    tokens
        All emitted ids, the end token and those of a stop string included; with `echo`, behind the prompt's.
    finish_reason
        "stop": an end token or a stop string; "length": `max_tokens`, or the context is full.
    seed
        With it, the same prompt and options, the answer is the same.
    stats
        Counters and rates.
    logprobs, top_logprobs
        With `logprobs`, one for each of `tokens`, as in `Event`; else None.
    others
        The other choices, if `n` were asked for.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    seed: int
    stats: Stats
    logprobs: list[float | None] | None = None
    top_logprobs: list[Top] | None = None
    others: tuple[Result, ...] = ()

    @property
    def choices(self) -> tuple[Result, ...]:
        """All answers in order, this one first."""
        return (self, *self.others)


class Voice:
    """The text of tokens that come several at once, handed out one by one.

    With stop strings the algorithm shows each token to `heard` while it is judged; `say` gives its text once
    it is emitted. Without, nothing is heard before it is said, which may be in another thread.

    Parameters
    ----------
    ends
        Ids that end the answer: they are not heard.
    min_tokens
        No stop string counts before so many tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str], ends: frozenset[int], min_tokens: int = 0
    ) -> None:
        self._ends = ends
        self._listens = bool(stops)
        self._stopper = TextStopper(tokenizer, stops, min_tokens=min_tokens)
        self._pieces: deque[str] = deque()

    @property
    def stop(self) -> Callable[[int], bool]:
        """The `stop` of a sequence."""
        return self.heard if self._listens else _goes_on

    def heard(self, token: int) -> bool:
        """Take the next token, true if it completes a stop string."""
        stopped = self._stopper(token)
        self._pieces.append(self._stopper.piece)
        return stopped

    def say(self, token: Token) -> str:
        """Return the text that became certain with this token; with the last one, all that was held back."""
        text = ""
        if token.id not in self._ends:
            if not self._listens:
                self.heard(token.id)
            text = self._pieces.popleft()
        return text if token.finish_reason is None else text + self._stopper.finish()


def _goes_on(_token: int) -> bool:
    """Stop nowhere."""
    return False


class Choice:
    """One of the answers to a prompt, in the making.

    Attributes
    ----------
    text
        The text of its events so far.
    sequence
        Its tokens and counters.
    """

    def __init__(self, sequence: TokenSequence, voice: Voice, echo: Tokenizer | None = None) -> None:
        """`echo` is the tokenizer if the prompt is to be repeated."""
        self.text = ""
        self.sequence = sequence
        self._prompt = list(sequence.tokens)
        self._voice = voice
        self._echo = echo
        self._logprobs: list[Logprobs | None] = []

    @property
    def tokens(self) -> list[int]:
        """The ids so far, those of an echoed prompt first."""
        return self.sequence.tokens[0 if self._echo else len(self._prompt) :]

    def echoed(self) -> Iterator[Event]:
        """Yield the events of the prompt, once it is read; its text is as it was written."""
        if self._echo is None:
            return
        shown, last = Detokenizer(self._echo, special=True), len(self._prompt) - 1
        scores = self.sequence.prompt_logprobs or [None] * len(self._prompt)
        for i, (token, score) in enumerate(zip(self._prompt, scores, strict=True)):
            text = "" if i == 0 and token == self._echo.bos_id else shown.push(token)
            yield self._event(text + (shown.finish() if i == last else ""), token, score, echo=True)

    def told(self, token: Token) -> Event:
        """Return the event of the next emitted token."""
        return self._event(
            self._voice.say(token), token.id, token.logprobs, token.drafted_by, token.finish_reason
        )

    def _event(
        self,
        text: str,
        token: int,
        scores: Logprobs | None,
        drafted_by: str | None = None,
        reason: FinishReason | None = None,
        *,
        echo: bool = False,
    ) -> Event:
        self._logprobs.append(scores)
        logprob, top = (None, ()) if scores is None else (scores.logprob, scores.top)
        return Event(text, token, drafted_by, reason, self.sequence.sampling.choice, logprob, top, echo)

    def result(self, others: tuple[Result, ...] = ()) -> Result:
        """Return the whole answer.

        Raises
        ------
        UsageError
            It was left before its end.
        """
        s = self.sequence
        if s.finish_reason is None:
            raise UsageError("the answer was left before its end", "ask again")
        logprobs = tops = None
        if s.logprobs is not None:
            logprobs = [None if one is None else one.logprob for one in self._logprobs]
            tops = [() if one is None else one.top for one in self._logprobs]
        return Result(
            self.text, self.tokens, s.finish_reason, s.sampling.seed, s.stats, logprobs, tops, others
        )


class Answer(Iterator[Event]):
    """The answers to one prompt in the making: iterate over their events, or ask for the result.

    It may be left at any time, by `close`, the end of a `with` block or by dropping it; what was kept for it
    is freed and the model can be used on. All but `choices` is about the first of them; mostly there is one.

    Attributes
    ----------
    choices
        The answers: one, or `n`. They advance together.
    """

    def __init__(self, decoder: Decoder, choices: Sequence[Choice], turns: Turns) -> None:
        self.choices = tuple(choices)
        self._turns = turns
        self._steps = decoder.run(*(choice.sequence for choice in choices))
        self._begun = False
        self._ready: deque[Event] = deque()

    @property
    def text(self) -> str:
        """The text of the events so far."""
        return self.choices[0].text

    @property
    def seed(self) -> int:
        """The seed, given or drawn; all choices have the same."""
        return self.choices[0].sequence.sampling.seed

    @property
    def stats(self) -> Stats:
        """Counters, growing with the answer."""
        return self.choices[0].sequence.stats

    @property
    def tokens(self) -> list[int]:
        """The ids so far, which may be ahead of the events by the rest of a step."""
        return self.choices[0].tokens

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ended, None before its end or if it was left."""
        return self.choices[0].sequence.finish_reason

    def __next__(self) -> Event:
        if not self._ready:
            with self._turns.turn():
                token = next(self._steps)
            if not self._begun:
                self._begun = True
                self._ready.extend(event for choice in self.choices for event in choice.echoed())
            self._ready.append(self.choices[token.choice].told(token))
        event = self._ready.popleft()
        self.choices[event.choice].text += event.text
        return event

    def result(self) -> Result:
        """Go on to the end and return the whole answer; its `choices` are all of them.

        Raises
        ------
        UsageError
            The answer was left before its end.
        """
        for _ in self:
            pass
        return self.choices[0].result(tuple(choice.result() for choice in self.choices[1:]))

    def close(self) -> None:
        """Leave the answer; doing it twice, or after its end, does nothing."""
        self._ready.clear()
        self._turns.soon(self._steps.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
