"""One model that answers many requests: tokens in the engine's thread, text on the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from pilotfish.asking import choices_of
from pilotfish.decode import Decoder
from pilotfish.drafters.recent import RecentTexts
from pilotfish.drafting import Drafting, Wish
from pilotfish.errors import Unavailable, UsageError
from pilotfish.sequence import too_long
from pilotfish.server.metrics import Metrics
from pilotfish.server.settings import Settings
from pilotfish.serving.prefixes import PAGE, PrefixCache
from pilotfish.serving.reserves import reserves
from pilotfish.serving.scheduler import Scheduler
from pilotfish.serving.worker import Worker

if TYPE_CHECKING:
    from types import TracebackType

    from pilotfish.answer import Choice, Event
    from pilotfish.model import TextModel
    from pilotfish.options import Options
    from pilotfish.sequence import Token
    from pilotfish.serving.ticket import Ticket

_log = logging.getLogger(__name__)
T = TypeVar("T")

TEXT_THREADS = 2
"""Threads for templates and tokenizers, so that a large prompt does not hold up the event loop."""


Observer = Callable[["Reply"], None]
"""Hears of each request that has ended, on the event loop; see `Reply.ticket`, `choices` and `error`."""


class Reply(AsyncIterator[list["Event"]]):
    """The answers to one prompt as they come: iterate on the event loop that `Service.start` was called on.

    Each item is what has come since the last: the events of a pass, or of several if the reader was slow. So
    what is unread takes the room of its tokens only, of which there are at most `max_tokens` for each choice.

    Attributes
    ----------
    choices
        The answers: one, or `n`.
    ticket
        The request as the scheduler knows it: times, what was reused.
    endpoint, label
        Where it was asked for, such as `/v1/completions`, and the answer's id; for logs and metrics.
    scores_only
        Whether only the prompt is wanted: the one token that each choice has to make counts nowhere.
    """

    def __init__(self, choices: Sequence[Choice], done: Callable[[Reply], None]) -> None:
        """Use `Service.start`."""
        self.choices = tuple(choices)
        self.ticket: Ticket
        self.endpoint = ""
        self.label = ""
        self.scores_only = False
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._pending: list[Token] = []
        self._begun = False
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether all tokens have come; some may be unread."""
        return self._ended

    @property
    def error(self) -> Exception | None:
        """What ended it, if that was an error."""
        return self.ticket.error

    @property
    def said(self) -> list[int]:
        """Emitted tokens of each choice, the unread ones included."""
        return [0 if self.scores_only else choice.sequence.stats.tokens for choice in self.choices]

    def cancel(self) -> None:
        """End it before the next pass; once it has ended, this does nothing."""
        if not self._ended:
            self.ticket.cancel()

    async def result(self) -> tuple[Choice, ...]:
        """Wait for the end and return the choices, with all their text.

        Raises
        ------
        PilotfishError
            What ended it early.
        """
        async for _ in self:
            pass
        return self.choices

    async def __anext__(self) -> list[Event]:
        while not self._pending and not self._ended:
            self._news.clear()
            await self._news.wait()
        if self._pending:
            return self._events()
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    def _events(self) -> list[Event]:
        tokens, self._pending = self._pending, []
        events: list[Event] = []
        if not self._begun:
            self._begun = True
            events += [event for choice in self.choices for event in choice.echoed()]
        events += [self.choices[token.choice].told(token) for token in tokens]
        for event in events:
            self.choices[event.choice].text += event.text
        return events

    def listen(self, ticket: Ticket, tokens: list[Token]) -> None:
        """Take what a pass has brought, in the scheduler's thread."""
        try:
            self._loop.call_soon_threadsafe(self._hear, tokens, ticket.done)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            ticket.cancel()

    def _hear(self, tokens: list[Token], done: bool) -> None:  # noqa: FBT001 - call_soon passes no keywords
        self._pending += tokens
        self._ended = self._ended or done
        self._news.set()
        if done:
            self._done(self)


def _shutting_down() -> Unavailable:
    return Unavailable("the server is shutting down", "try again later")


def _bound_pages(target: TextModel, pages: int) -> None:
    """Let an engine hold no more pages.

    Raises
    ------
    UsageError
        It has none.
    """
    if not hasattr(target.engine, "most_pages"):
        raise UsageError(f"kv_tokens is set, but {target.name} has no KV pages", "leave it out")
    target.engine.most_pages = pages


class Service:
    """Owns the scheduler of one model, and the thread it runs in; a context manager.

    Parameters
    ----------
    target, drafting
        The model, and what drafts for it; they stay the caller's to free.
    settings
        Limits.
    draft_length
        As in `Options`.
    clock
        Seconds, monotonic.
    run
        Whether to start the thread; without it, a test calls `scheduler.step`.

    Attributes
    ----------
    metrics
        Figures for Prometheus.
    observers
        Hear of each request that has ended.
    longest_token
        Bytes of the longest token, at least 1.
    reserved_bytes
        Memory that passes and KV caches have from the start.
    """

    def __init__(
        self,
        target: TextModel,
        drafting: Drafting | None = None,
        settings: Settings | None = None,
        *,
        draft_length: Literal["auto"] | int = "auto",
        clock: Callable[[], float] = time.perf_counter,
        run: bool = True,
    ) -> None:
        settings = settings or Settings()
        self.target = target
        self.drafting = drafting or Drafting(Wish())
        self.drafting.assume(target)
        if self.drafting.wish != Wish() and settings.recent_tokens:
            self.drafting.recent = RecentTexts(settings.recent_tokens)
        drafter, control = self.drafting.choose(draft_length)
        decoder = Decoder(
            target.engine, drafter, control, token_count=target.tokenizer.token_count, clock=clock
        )
        if settings.kv_tokens is not None:
            _bound_pages(target, -(-settings.kv_tokens // PAGE))
        self.reserved_bytes = self._reserve(settings)
        prefixes = PrefixCache(target.engine, settings.prefix_tokens) if settings.prefix_tokens else None
        self.scheduler = Scheduler(
            decoder,
            prefixes,
            most_running=settings.most_running,
            most_waiting=settings.most_waiting,
            recent=self.drafting.recent,
        )
        draft_model = self.drafting.model
        self.metrics = Metrics(
            target.name, self.scheduler, None if draft_model is None else draft_model.engine
        )
        self.observers: list[Observer] = [self.metrics]
        shown = target.tokenizer.shown_bytes
        self.longest_token = max(1, *(len(shown(token)) for token in range(target.tokenizer.token_count)))
        self._replies: set[Reply] = set()
        self._texts = ThreadPoolExecutor(TEXT_THREADS, "pilotfish text")
        self._closed = False
        self._worker = Worker(self.scheduler) if run else None

    def _reserve(self, settings: Settings) -> int:
        """Let engines that can take the memory of passes under load take it now, and return how much."""
        taken: dict[int, int] = {}  # a target may draft for itself
        models = [self.target, *([] if self.drafting.model is None else [self.drafting.model])]
        for model, reserve in zip(models, reserves(settings.most_running, settings.kv_tokens), strict=False):
            if hasattr(model.engine, "reserve"):
                taken[id(model.engine)] = model.engine.reserve(reserve)
        return sum(taken.values())

    @property
    def context(self) -> int:
        """Most tokens of prompt and answer together."""
        return self.target.engine.context

    @property
    def alive(self) -> bool:
        """Whether requests are being answered: the thread runs, or a test makes the passes."""
        return self._worker is None or self._worker.alive

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do what takes long, such as tokenizing, beside the event loop.

        Raises
        ------
        Unavailable
            The service was closed before it was begun.
        """

        def unless_closed() -> T:
            if self._closed:
                raise _shutting_down()
            return work()

        try:
            future = asyncio.get_running_loop().run_in_executor(self._texts, unless_closed)
        except RuntimeError:  # no more is taken
            raise _shutting_down() from None
        return await future

    def choices(
        self, tokens: Sequence[int], options: Options, *, draft_limit: int | None = None
    ) -> list[Choice]:
        """Return the choices of an answer, to be passed to `submit`; may be called in any thread.

        Raises
        ------
        UsageError
            An option names an id that is no token, or bans all tokens; or (PromptTooLong) the context has no
            room for the prompt, of which each choice has a copy.
        """
        if len(tokens) >= self.context:
            raise too_long(f"{len(tokens)}", self.context)
        choices = choices_of(self.target.tokenizer, tokens, options)
        for choice in choices:
            choice.sequence.draft_limit = draft_limit if options.speculate else 0
        return choices

    def submit(self, choices: Sequence[Choice], *, salt: str = "") -> Reply:
        """Let a request wait for its turn, and return what will come; on the event loop.

        Raises
        ------
        UsageError
            The prompt is empty or (PromptTooLong) too long, or more choices are wanted than may run.
        QueueFull
            As many requests as may are waiting.
        """
        reply = Reply(choices, self._ended)
        sequences = [choice.sequence for choice in choices]
        reply.ticket = self.scheduler.submit(*sequences, salt=salt, listener=reply.listen)
        self._replies.add(reply)
        return reply

    def start(
        self, tokens: Sequence[int], options: Options, *, salt: str = "", draft_limit: int | None = None
    ) -> Reply:
        """Make choices and submit them.

        Parameters
        ----------
        tokens
            The prompt.
        options
            How it is answered; `draft_length` is the service's.
        salt
            What is kept of texts is shared with requests that have the same.
        draft_limit
            Most tokens of a draft; 0 is plain decoding.
        """
        return self.submit(self.choices(tokens, options, draft_limit=draft_limit), salt=salt)

    def _ended(self, reply: Reply) -> None:
        self._replies.discard(reply)
        for observer in self.observers:
            try:
                observer(reply)
            except Exception:
                _log.exception("an observer failed")

    def close(self) -> None:
        """End all requests and the threads; closing twice does nothing."""
        self._closed = True
        if self._worker is not None:
            self._worker.close()
        self._texts.shutdown(wait=False)  # what waits is not cancelled: it is refused as soon as it begins

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
