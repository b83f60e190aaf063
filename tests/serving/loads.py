"""Runs loads on a scheduler pass by pass, and checks after each what must always hold."""

# ruff: noqa: D102 - short, and read beside the tests

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

from decoding import assert_nothing_is_left, decoder_of, scripted
from pilotfish.decode import Decoder
from pilotfish.drafters.base import Drafter
from pilotfish.drafters.recent import RecentTexts
from pilotfish.engines.scripted import Rule
from pilotfish.prompt import SLICE
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence, Token
from pilotfish.serving.alike import Alike
from pilotfish.serving.prefixes import PrefixCache
from pilotfish.serving.scheduler import MOST_DRAFTED, Scheduler
from pilotfish.serving.ticket import Ticket
from strategies import Request, samplings, token_ids

TICKS = 1.0
WORTH = 4
"""Tokens in common for which one waits for another that reads them; as many as a page has here."""


def service(
    rule: Rule,
    drafter: Drafter | None = None,
    length: int = 4,
    *,
    kept: int = 0,
    most_running: int = 16,
    most_waiting: int = 256,
    context: int = 8192,
    recent: RecentTexts | None = None,
) -> Scheduler:
    """Return a scheduler on a scripted target, whose clock advances by a second whenever it is asked."""
    decoder = decoder_of(rule, drafter, length, context)
    ticks = iter(range(10**9))
    decoder.clock = lambda: TICKS * next(ticks)
    prefixes = PrefixCache(decoder.engine, kept, page=4) if kept else None
    scheduler = Scheduler(decoder, prefixes, recent, most_running=most_running, most_waiting=most_waiting)
    scheduler._alike = Alike(WORTH)
    return scheduler


@dataclass
class Load:
    """Requests on a scheduler; `step` makes a pass and checks it."""

    scheduler: Scheduler
    tickets: list[Ticket] = field(default_factory=list)
    heard: dict[int, list[Token]] = field(default_factory=dict)

    @property
    def decoder(self) -> Decoder:
        return self.scheduler.decoder

    def submit(self, *requests: Request, salt: str = "") -> Ticket:
        sequences = [request.sequence() for request in requests]
        return self.watch(self.scheduler.submit(*sequences, salt=salt, listener=self._hear))

    def watch(self, ticket: Ticket) -> Ticket:
        """Let a ticket that was made otherwise belong to the load."""
        self.tickets.append(ticket)
        self.heard[id(ticket)] = []
        return ticket

    def _hear(self, ticket: Ticket, tokens: list[Token]) -> None:
        assert not ticket.cancelled or ticket.done
        self.heard[id(ticket)] += tokens

    def step(self) -> bool:
        before = {s.key: (len(s.tokens), s.evaluated) for s in self._sequences()}
        engine = scripted(self.decoder)
        evaluated, preemptions, passes = engine.tokens, self.scheduler.preemptions, self.scheduler.passes
        more = self.scheduler.step()
        assert engine.tokens - evaluated <= SLICE + MOST_DRAFTED + self.scheduler.most_running
        if self.scheduler.passes > passes and self.scheduler.preemptions == preemptions:
            known = [s for s in self._sequences() if s.key in before]
            gone_on = [s for s in known if (len(s.tokens), s.evaluated) > before[s.key]]
            for s in known:  # nobody's text stands still, but where another reads its beginning
                assert s in gone_on or any(s.tokens[:WORTH] == o.tokens[:WORTH] for o in gone_on)
        self._check()
        return more

    def finish(self, most: int = 10_000) -> None:
        for _ in range(most):
            if not self.step():
                break
        else:
            raise AssertionError("it goes on for ever")
        assert all(ticket.done for ticket in self.tickets)
        assert (self.scheduler.running, self.scheduler.waiting) == (0, 0)
        self.assert_freed()

    def assert_freed(self) -> None:
        """Assert that, dropping what is kept, nothing is held any more."""
        if self.scheduler.prefixes is not None:
            self.scheduler.prefixes.clear()
            assert self.scheduler.prefixes.tokens == 0
        assert_nothing_is_left(self.decoder)

    def told(self, ticket: Ticket, choice: int = 0) -> list[int]:
        return [t.id for t in self.heard[id(ticket)] if t.choice == ticket.choices[choice].sampling.choice]

    def _sequences(self) -> Iterator[Sequence]:
        for ticket in self.tickets:
            yield from (s for s in ticket.choices if s.handle >= 0)

    def _check(self) -> None:
        """Caches hold the evaluated tokens; what is open belongs to requests that run, or is kept."""
        held = dict(scripted(self.decoder).sequences)
        for s in self._sequences():
            assert held.pop(s.handle) == tuple(s.tokens[: s.evaluated])
            assert s.runs
        prefixes = self.scheduler.prefixes
        kept = {page.handle for page in prefixes._ends} if prefixes else set()
        assert set(held) == kept
        if prefixes:
            assert prefixes.tokens <= prefixes.most_tokens
        for ticket in self.tickets:
            if ticket.done:
                assert all(s.handle < 0 for s in ticket.choices)
        assert not self.scheduler._places.keys() - {s.key for t in self.scheduler._running for s in t.choices}


BEGINNINGS = ((1, 2, 3, 4) * 5, (5, 6, 7, 8, 9, 10, 11, 0) * 4)

prompts = st.builds(
    lambda base, size, tail: (*base[:size], *tail),
    st.sampled_from(BEGINNINGS),
    st.integers(0, 20),
    st.lists(token_ids, min_size=1, max_size=6),
)

penalized = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.9]),
    seed=st.integers(0, 99),
    presence_penalty=st.sampled_from([0.0, 1.5]),
    repeat_penalty=st.sampled_from([1.0, 1.3]),
    repeat_last_n=st.sampled_from([-1, 5]),
    logit_bias=st.sampled_from([(), ((3, 4.0),)]),
)

asked = st.builds(
    Request,
    prompt=prompts,
    sampling=samplings | penalized,
    max_tokens=st.integers(1, 20),
    ends=st.frozensets(token_ids, max_size=1),
    stop=st.none() | st.tuples(token_ids, token_ids),
)


@dataclass(frozen=True)
class Arrival:
    """A request, the passes before it comes, and those before its client leaves."""

    request: Request
    after: int
    leaves: int | None
    salt: str


arrivals = st.lists(
    st.builds(
        Arrival,
        request=asked,
        after=st.integers(0, 3),
        leaves=st.sampled_from([None, None, None, 0, 1, 4]),
        salt=st.sampled_from(["", "other"]),
    ),
    min_size=1,
    max_size=7,
)
