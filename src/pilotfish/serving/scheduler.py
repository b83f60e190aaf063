"""Continuous batching: requests join and leave between passes, and share them.

Everything that a request gets of a pass depends on others, but nothing that it says: what a target says at a
position is a function of the request alone (docs/exactness.md).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from pilotfish.errors import OutOfMemory, QueueFull, Unavailable, UsageError
from pilotfish.prompt import SLICE, Part, begin, most_to_read
from pilotfish.serving.alike import Alike
from pilotfish.serving.figures import Figures
from pilotfish.serving.sharing import reading_shares
from pilotfish.serving.ticket import Listener, Ticket, cancelled

if TYPE_CHECKING:
    from pilotfish.decode import Decoder
    from pilotfish.drafters.recent import RecentTexts
    from pilotfish.sequence import Sequence, Token
    from pilotfish.serving.prefixes import Page, PrefixCache

_log = logging.getLogger(__name__)

MOST_RUNNING, MOST_WAITING = 16, 256

MOST_DRAFTED = 128
"""Rows of a pass for drafts and for scored tokens of prompts, all together; a row has as many numbers as the
vocabulary has tokens."""


class Scheduler:
    """Owns a decoder, its engine and its drafters: one thread, mostly that of a `Worker`, calls `step`.

    `submit`, `drain`, `shut`, `figures` and `Ticket.cancel` may be called from any thread.

    Parameters
    ----------
    decoder
        With the drafter that serves all requests.
    prefixes
        Where beginnings of texts are kept; None keeps nothing.
    recent
        Where the texts of requests that have ended are remembered, for a `RecentDrafter`.
    most_running, most_waiting
        Bounds on the sequences that share passes, at most 128, and on the requests that wait.

    Attributes
    ----------
    passes, preemptions
        Passes made; times that a request lost its cache.
    """

    def __init__(
        self,
        decoder: Decoder,
        prefixes: PrefixCache | None = None,
        recent: RecentTexts | None = None,
        *,
        most_running: int = MOST_RUNNING,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        if not 1 <= most_running <= SLICE:
            raise UsageError(f"most_running is {most_running}", f"use 1..{SLICE}")
        if most_waiting < 1:
            raise UsageError(f"most_waiting is {most_waiting}", "let at least 1 request wait")
        self.decoder = decoder
        self.prefixes = prefixes
        self.recent = recent
        self.most_running = most_running
        self.most_waiting = most_waiting
        self.passes = 0
        self.preemptions = 0
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()  # in order of arrival, like those that run
        self._running: list[Ticket] = []
        self._draining = False
        self._shut = False
        self._crowded = False  # someone lost their cache, and nobody who had one has ended since
        self._places: dict[int, Page | None] = {}
        self._alike = Alike()
        self._prompt_tokens = 0
        self._reused_tokens = 0

    @property
    def running(self) -> int:
        """Sequences that share passes now."""
        return sum(len(ticket.choices) for ticket in self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def submit(self, *choices: Sequence, salt: str = "", listener: Listener | None = None) -> Ticket:
        """Let a request wait for its turn.

        Parameters
        ----------
        *choices
            Sequences with the same prompt, of which nothing is computed yet.
        salt
            Cached beginnings and memories of texts are shared with requests that have the same.
        listener
            Called as ``listener(ticket, tokens)`` in the scheduler's thread after each pass that brought
            tokens, and at the end, when `done` is set; not to take long. By default the ticket is iterated.

        Raises
        ------
        UsageError
            The prompt is empty or (PromptTooLong) too long, or more choices than may run.
        QueueFull
            As many requests as may are waiting.
        Unavailable
            `drain` or `shut` was called.
        """
        if not 1 <= len(choices) <= self.most_running:
            raise UsageError(f"{len(choices)} answers are wanted", f"ask for 1 to {self.most_running}")
        for s in choices:
            s.fit(self.decoder.engine.context)
            s.salt, s.awaited = salt, self._is_shared
        ticket = Ticket(choices, salt, listener, self.decoder.clock)
        with self._changed:
            if self._draining:
                raise Unavailable("no more requests are taken", "ask another server, or this one anew")
            if len(self._waiting) >= self.most_waiting:
                raise QueueFull(f"{len(self._waiting)} requests are waiting already", "try again later")
            self._waiting.append(ticket)
            self._changed.notify_all()
        return ticket

    def wait(self) -> bool:
        """Wait until there is something to do; false if nothing will be: `shut`, or `drain` and all ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._draining or self._waiting or self._running)
            return not self._shut and bool(self._waiting or self._running)

    def drain(self) -> None:
        """Take no more requests; those that run and wait come to their end."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()

    def shut(self) -> None:
        """Take no more requests, and let `wait` return at once."""
        with self._changed:
            self._draining = self._shut = True
            self._changed.notify_all()

    def figures(self) -> Figures:
        """Return counts, for metrics."""
        prefixes, engine = self.prefixes, self.decoder.engine
        return Figures(
            running=self.running,
            waiting=self.waiting,
            passes=self.passes,
            preemptions=self.preemptions,
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._reused_tokens,
            kept_tokens=0 if prefixes is None else prefixes.tokens,
            most_kept_tokens=0 if prefixes is None else prefixes.most_tokens,
            pages=getattr(engine, "pages_in_use", None),
            most_pages=getattr(engine, "most_pages", None),
        )

    def close(self) -> None:
        """Shut, end all requests with an error, and drop what is kept; the thread that calls `step` does."""
        self.shut()
        self.fail(cancelled("no more is answered"))
        while self._waiting:
            self._end(self._waiting.popleft(), cancelled("no more is answered"))
        if self.prefixes is not None:
            self.prefixes.clear()
        if self.recent is not None:
            self.recent.clear()
        held = getattr(self.decoder.engine, "pages_in_use", 0)
        if held:  # whoever measures a server looks for this line
            _log.warning("%d pages of the KV cache are still held, though nothing runs", held)

    def fail(self, error: Exception) -> None:
        """End all requests that run with an error."""
        for ticket in list(self._running):
            self._end(ticket, error)

    def step(self) -> bool:
        """Make one pass for all that run; return false if none does, and there is nothing to do.

        An error of the pass itself ends all that share it; those that wait get their turn.
        """
        self._drop_cancelled()
        self._admit()
        if self.recent is not None:
            self.recent.advance()
        drafted, any_runs = MOST_DRAFTED, bool(self._running)
        while self._running:
            running, parts = self._plan()
            owners = [owner for owner, _ in running] + [owner for owner, _ in parts]
            scored = sum(part.count for _, part in parts if part.first.scores_left)
            try:
                emitted = self.decoder.step(
                    [s for _, s in running],
                    [part for _, part in parts],
                    max(0, drafted - scored) // max(1, len(running)),
                )
            except OutOfMemory as error:
                drafted = self._make_room(drafted, error)
                continue
            except Exception as error:
                shared = list(dict.fromkeys(owners))
                _log.exception("a pass failed, and with it %d requests", len(shared))
                for ticket in shared:
                    self._end(ticket, error)
                break
            self.passes += 1
            told: dict[Ticket, list[Token]] = {ticket: [] for ticket in self._running}
            for ticket, tokens in zip(owners, emitted, strict=True):
                told[ticket] += tokens
            for ticket, tokens in told.items():
                self._settle(ticket, tokens)
            break
        if self.recent is not None:  # now it costs nobody time, and the next request finds all of it
            while not self._running and not self._waiting and self.recent.advance():
                pass
        return any_runs

    def _is_shared(self) -> bool:
        return sum(len(ticket.running) for ticket in self._running) + self.waiting > 1

    def _drop_cancelled(self) -> None:
        with self._changed:
            gone = [ticket for ticket in self._waiting if ticket.cancelled]
            for ticket in gone:
                self._waiting.remove(ticket)
        for ticket in gone + [ticket for ticket in self._running if ticket.cancelled]:
            self._end(ticket, cancelled("its client left"))

    def _admit(self) -> None:
        """Let those that wait join, first come, first served, while there is room."""
        while True:
            with self._changed:
                if not self._waiting or (self._crowded and self._running):
                    return
                if self.running + len(self._waiting[0].choices) > self.most_running:
                    return
                ticket = self._waiting.popleft()
                self._running.append(ticket)
            try:
                self._begin(ticket)
            except Exception as error:
                _log.exception("a request could not begin")
                self._end(ticket, error)

    def _begin(self, ticket: Ticket) -> None:
        """Open caches: of choices that have not begun the first one's, which reads for them all."""
        if ticket.begun_s is None:
            ticket.begun_s = self.decoder.clock()
        for s in ticket.running if ticket.begun else ticket.choices[:1]:
            if self.prefixes is not None and not s.scores_left:
                s.handle, self._places[s.key] = self.prefixes.start(ticket.salt, s.tokens)
            earlier = [] if s.scores_left else self._open_with(ticket.salt)
            begin(self.decoder.engine, s)
            self._alike.add(ticket, s, earlier)
            if not ticket.begun:
                ticket.reused = s.evaluated

    def _open_with(self, salt: str) -> list[Sequence]:
        """Return the sequences with a salt that hold something of their texts, or will."""
        return [s for ticket in self._running if ticket.salt == salt for s in ticket.choices if s.handle >= 0]

    def _plan(self) -> tuple[list[tuple[Ticket, Sequence]], list[tuple[Ticket, Part]]]:
        """Say who drafts, and who reads how much: rows for reading are shared out fairly.

        Of those that begin alike one reads, and has the haste of the most hasty.
        """
        running: list[tuple[Ticket, Sequence]] = []
        readers: list[tuple[Ticket, list[Sequence]]] = []
        left: dict[int, int] = {}
        for ticket in self._running:
            for choices in [[s] for s in ticket.running] if ticket.begun else [list(ticket.choices)]:
                s = choices[0]
                if ticket.begun and s.unread == 1:
                    self._alike.remove(s.key)
                    running.append((ticket, s))
                    continue
                lead = self._alike.lead(s, left.keys())
                if lead is not None and lead.holds_all:
                    self._share(ticket, s, lead.sequence, lead.held)
                elif lead is not None:
                    left[lead.sequence.key] = min(left[lead.sequence.key], s.unread)
                    continue
                left[s.key] = s.unread
                readers.append((ticket, choices))
        wants = [most_to_read(choices[0]) for _, choices in readers]
        shares = reading_shares(wants, list(left.values()), SLICE)
        parts = [(owner, Part(choices, n)) for (owner, choices), n in zip(readers, shares, strict=True)]
        return running, parts

    def _share(self, ticket: Ticket, s: Sequence, other: Sequence, count: int) -> None:
        """Let a sequence hold the first tokens that another one holds."""
        engine = self.decoder.engine
        if self.prefixes is not None:  # what they share is kept now, so that it counts as shared
            self._keep(ticket, other)
            self._places[s.key] = self.prefixes.within(self._places.get(other.key), count)
        engine.close(s.handle)
        s.handle = engine.fork(other.handle)
        engine.truncate(s.handle, count)
        if not ticket.begun:
            ticket.reused = count
        s.evaluated = count

    def _make_room(self, drafted: int, error: Exception) -> int:
        """Give up what can be spared when a pass finds no memory; return the rows left for drafts.

        First drafts, then what is kept of old texts, then the newest request's cache: it reads its text again
        when another has ended. A request alone that does not fit ends.
        """
        if drafted:
            return 0
        if self.prefixes is not None and self.prefixes.tokens:
            self.prefixes.shrink(self.prefixes.tokens // 2)
        elif len(self._running) > 1:
            self._preempt(self._running.pop())
        else:
            self.fail(error)
        return 0

    def _preempt(self, ticket: Ticket) -> None:
        self._free(ticket)
        ticket.preempted += 1
        self.preemptions += 1
        self._crowded = True
        with self._changed:
            self._waiting.appendleft(ticket)

    def _settle(self, ticket: Ticket, tokens: list[Token]) -> None:
        """Hand tokens over, keep what was read, and free what has ended."""
        first = ticket.choices[0]
        if tokens and ticket.first_s is None and first.error is None:  # the prompt was read just now
            self._prompt_tokens += first.stats.prompt_tokens
            self._reused_tokens += ticket.reused
            self._keep(ticket, first)
            self._places.update((s.key, self._places.get(first.key)) for s in ticket.choices)
        for s in ticket.choices:
            if not s.runs and s.handle >= 0:
                if s.error is None:
                    self._keep(ticket, s)
                self._close(s)
        error = next((s.error for s in ticket.choices if s.error is not None), None)
        if error is not None or not ticket.running:
            self._end(ticket, error, tokens)
        elif tokens:
            ticket.tell(tokens)

    def _keep(self, ticket: Ticket, s: Sequence) -> None:
        if self.prefixes is not None:
            place = self._places.get(s.key)
            self._places[s.key] = self.prefixes.keep(ticket.salt, s.tokens[: s.evaluated], s.handle, place)

    def _end(self, ticket: Ticket, error: Exception | None, tokens: list[Token] | None = None) -> None:
        """Free all that a request holds, and tell its client, whatever happens."""
        try:
            self._free(ticket)
            if self.recent is not None:
                for s in ticket.choices:
                    if s.stats.tokens and not s.scores_prompt:  # who wants scores hardly writes on
                        self.recent.add(ticket.salt, s.tokens)
        except Exception:
            _log.exception("what a request leaves behind could not be put away")
        if ticket in self._running:
            self._running.remove(ticket)
            self._crowded = False
        elif ticket.preempted:  # it was the one that lost its cache: perhaps there is room for others
            self._crowded = False
        ticket.end(tokens or [], error)

    def _free(self, ticket: Ticket) -> None:
        for s in ticket.choices:
            self._close(s)

    def _close(self, s: Sequence) -> None:
        """Free what is kept for a sequence; those that waited for it to read get what it holds."""
        self._alike.remove(s.key)
        if s.handle >= 0:
            for ticket, heir, count in self._alike.heirs(s):
                self._share(ticket, heir, s, count)
        self.decoder.close(s)
        self._places.pop(s.key, None)
