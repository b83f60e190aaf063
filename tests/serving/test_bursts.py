"""Texts that begin alike and come together are read once, whatever becomes of the one that reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding import plain, scripted
from pilotfish.engines.scripted import ngrams
from pilotfish.errors import Cancelled, EngineError
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.serving.alike import Alike
from serving.loads import WORTH, Load, service
from strategies import VOCAB, Request

LANGUAGE = ngrams(VOCAB, 2, seed=3)
SYSTEM = tuple(i % 7 for i in range(1000))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Passes that fail fill the log."""
    log = logging.getLogger("pilotfish.serving")
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(logging.NOTSET)


def burst(count: int, kept: int = 0, tail: int = 20) -> Load:
    """Submit requests that begin with the same long text, and go on each with `tail` tokens of its own."""
    load = Load(service(LANGUAGE, kept=kept))
    for n in range(count):
        load.submit(Request((*SYSTEM, *[(n + i) % VOCAB for i in range(tail)]), max_tokens=2))
    return load


def assert_answered(load: Load) -> None:
    for ticket in load.tickets:
        prompt = ticket.choices[0].tokens[: ticket.choices[0].stats.prompt_tokens]
        if ticket.error is None:
            assert load.told(ticket) == plain(LANGUAGE, Request(tuple(prompt), max_tokens=2))[0]


@pytest.mark.parametrize("kept", [0, 4000])
def test_a_beginning_of_requests_that_come_together_is_read_once(kept: int) -> None:
    """With a prefix cache and without; each reads its own end, at most a page more, and its own answer."""
    load = burst(8, kept)
    load.finish()
    assert_answered(load)
    assert len(SYSTEM) + 8 * 20 <= scripted(load.decoder).tokens <= len(SYSTEM) + 8 * (20 + WORTH + 1)
    assert [ticket.reused >= len(SYSTEM) - WORTH for ticket in load.tickets] == [False] + [True] * 7


def test_a_request_that_comes_while_another_reads_its_beginning_shares_it() -> None:
    load = burst(1)
    for _ in range(3):
        load.step()
    load.submit(Request((*SYSTEM, 3), max_tokens=2))
    load.finish()
    assert_answered(load)
    assert scripted(load.decoder).tokens <= len(SYSTEM) + 20 + 1 + 4


def test_the_same_request_many_times_at_once_is_read_once() -> None:
    load = burst(0)
    for n in range(5):
        load.submit(Request(SYSTEM, Sampling(0.9, seed=n), max_tokens=2))
    load.finish()
    assert scripted(load.decoder).tokens == len(SYSTEM) + 4 + 5
    for n, ticket in enumerate(load.tickets):
        assert load.told(ticket) == plain(LANGUAGE, Request(SYSTEM, Sampling(0.9, seed=n), max_tokens=2))[0]


def test_who_has_another_salt_reads_for_itself() -> None:
    load = Load(service(LANGUAGE))
    for salt in ("a", "b"):
        load.submit(Request(SYSTEM, max_tokens=1), salt=salt)
    load.finish()
    assert scripted(load.decoder).tokens == 2 * len(SYSTEM)
    assert [ticket.reused for ticket in load.tickets] == [0, 0]


@given(st.integers(0, 9), st.sampled_from([0, 4000]))
@settings(max_examples=12)
def test_when_the_reader_leaves_another_reads_on_where_it_was(after: int, kept: int) -> None:
    """Nothing that was read is read again, but for a beginning of less than a page."""
    load = burst(4, kept)
    for _ in range(after):
        load.step()
    load.tickets[0].cancel()
    load.finish()
    assert_answered(load)
    assert isinstance(load.tickets[0].error, Cancelled) or after > 8
    assert scripted(load.decoder).tokens <= len(SYSTEM) + 4 * (20 + WORTH + 1)


@given(st.integers(0, 9))
@settings(max_examples=10)
def test_when_the_pass_of_the_reader_fails_those_that_wait_for_it_go_on(fails: int) -> None:
    load = burst(3)
    scripted(load.decoder).failures[fails] = EngineError("out of order")
    load.finish()
    assert_answered(load)
    failed = [ticket.error is not None for ticket in load.tickets]
    assert failed == ([True, False, False] if fails < 7 else [True, True, True] if fails == 8 else failed)


def test_who_has_begun_to_answer_holds_on_to_none_of_those_it_waited_for() -> None:
    """They may be long over."""
    load = burst(3)
    load.submit(Request((*SYSTEM, 3), max_tokens=50))
    while not all(ticket.done for ticket in load.tickets[:3]):
        load.step()
    load.step()
    assert not load.tickets[3].done
    assert not load.scheduler._alike._followers
    load.finish()


def test_nobody_waits_for_one_whose_prompt_is_scored() -> None:
    """It reads slowly; and its own rows are all wanted, so it shares nothing either."""
    load = Load(service(LANGUAGE))
    for _ in range(2):
        s = Sequence(list(SYSTEM), Sampling(), 1, logprobs=0, scores_prompt=True)
        load.watch(load.scheduler.submit(s))
    other = load.submit(Request(SYSTEM, max_tokens=1))
    for _ in range(12):
        load.step()
    assert other.done
    load.finish()
    assert scripted(load.decoder).tokens == 3 * len(SYSTEM)


starts = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 2), st.integers(1, 300), st.integers(0, 3)),
    min_size=2,
    max_size=6,
)


def first_tokens(batch: list[tuple[int, int, int, int]], worth: int) -> list[int]:
    """Return the pass after which each request has its first token."""
    load = Load(service(LANGUAGE))
    load.scheduler._alike = Alike(worth)
    had: dict[int, int] = {}
    waiting = list(batch)
    while waiting or len(had) < len(batch):
        if waiting and (not waiting[0][3] or not load.scheduler.running):
            size, kind, tail, _ = waiting.pop(0)
            load.submit(Request((*SYSTEM[:size], *[7 + kind] * tail), max_tokens=1))
            continue
        if waiting:
            waiting[0] = (*waiting[0][:3], waiting[0][3] - 1)
        load.step()
        for i, ticket in enumerate(load.tickets):
            if load.told(ticket):
                had.setdefault(i, load.scheduler.passes)
    return [had[i] for i in range(len(batch))]


@given(starts)
@settings(max_examples=40)
def test_by_waiting_for_others_all_together_are_done_no_later(
    batch: list[tuple[int, int, int, int]],
) -> None:
    alone, shared = first_tokens(batch, 10**9), first_tokens(batch, 64)
    assert max(shared) <= max(alone) + 1
    assert sum(shared) <= sum(alone) + len(batch)
