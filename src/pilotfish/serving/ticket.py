"""One request, as its client sees it."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pilotfish.errors import Cancelled, UsageError

if TYPE_CHECKING:
    from pilotfish.sequence import Sequence as TokenSequence
    from pilotfish.sequence import Token

_log = logging.getLogger(__name__)

Listener = Callable[["Ticket", list["Token"]], None]


class Ticket(Iterator["Token"]):
    """A request that waits, runs or has ended; iterate over it, in any one thread, to get its tokens.

    Made by `Scheduler.submit`. Iterating waits for what comes, ends with the answer, and raises the error if
    that ended it. The tokens of several choices come interleaved.

    Attributes
    ----------
    choices
        The sequences: tokens, counters, reasons why they ended. Not to be touched before the end.
    salt
        Cached beginnings are shared with requests that have the same.
    done
        Whether it has ended.
    error
        What ended it, if that was an error.
    reused
        Tokens of the prompt that were not read, since they were cached.
    preempted
        How often it lost its cache to older requests, and read its text anew.
    submitted_s, begun_s, first_s, ended_s
        When it was submitted, began to be read, had its first token, ended: seconds of the decoder's clock.
    gaps_s
        Seconds between two passes that brought it tokens, in order; several tokens of a pass come together.
    """

    def __init__(
        self,
        choices: Sequence[TokenSequence],
        salt: str,
        listener: Listener | None,
        clock: Callable[[], float],
    ) -> None:
        self.choices = tuple(choices)
        self.salt = salt
        self.done = False
        self.error: Exception | None = None
        self.reused = 0
        self.preempted = 0
        self.submitted_s = clock()
        self.begun_s: float | None = None
        self.first_s: float | None = None
        self.ended_s: float | None = None
        self.gaps_s: list[float] = []
        self._last_s = 0.0
        self.cancelled = False
        self._clock = clock
        self._listener = listener
        self._told: queue.SimpleQueue[list[Token] | None] = queue.SimpleQueue()
        self._ready: list[Token] = []
        self._heard_all = False

    @property
    def begun(self) -> bool:
        """Whether the prompt was read to its end."""
        return any(s.stats.tokens for s in self.choices)

    @property
    def running(self) -> list[TokenSequence]:
        """The choices that are still in the making."""
        return [s for s in self.choices if s.runs]

    def cancel(self) -> None:
        """End it, from any thread: before the next pass it is gone, with the error Cancelled."""
        self.cancelled = True

    def __next__(self) -> Token:
        if self._listener is not None:
            raise UsageError("a listener gets the tokens of this request", "submit it without one")
        while not self._ready and not self._heard_all:
            told = self._told.get()
            self._heard_all = told is None
            self._ready = [] if told is None else told[::-1]
        if self._ready:
            return self._ready.pop()
        if self.error is not None:
            raise self.error
        raise StopIteration

    def tell(self, tokens: list[Token]) -> None:
        """Hand over what a pass has brought; the scheduler's business, like `end`."""
        if tokens:
            self._came(self._clock())
        self._hand_over(tokens)

    def end(self, tokens: list[Token], error: Exception | None) -> None:
        """Hand over the last tokens, and say that there are no more."""
        self.ended_s = self._clock()
        if tokens:
            self._came(self.ended_s)
        self.error = error
        self.done = True
        self._hand_over(tokens)
        self._told.put(None)

    def _came(self, now: float) -> None:
        """Take the time of a pass that brought tokens."""
        if self.first_s is None:
            self.first_s = now
        else:
            self.gaps_s.append(now - self._last_s)
        self._last_s = now

    def _hand_over(self, tokens: list[Token]) -> None:
        if self._listener is None:
            self._told.put(tokens)
            return
        try:
            self._listener(self, tokens)
        except Exception:  # a client's mistake, and nobody else's trouble
            _log.exception("a listener failed; its request is cancelled")
            self.cancelled = True


def cancelled(why: str) -> Cancelled:
    """Return the error of a request that was cancelled."""
    return Cancelled(f"the request was cancelled: {why}", "ask again")
