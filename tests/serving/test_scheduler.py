"""Requests share passes: answers don't depend on it, nobody starves, and errors stay where they belong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding import plain, scripted
from pilotfish.engines.scripted import Rule, ngrams
from pilotfish.errors import (
    Cancelled,
    EngineError,
    NumericsError,
    OutOfMemory,
    PromptTooLong,
    UsageError,
)
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence, Token
from pilotfish.serving.ticket import Ticket
from serving.loads import Arrival, Load, arrivals, asked, service
from strategies import MAKERS, VOCAB, Request, draft_model, drafter_names, good_drafter_names, rules

LANGUAGE = ngrams(VOCAB, 2, seed=3)
LONG = tuple(i % 7 for i in range(4000))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Hostile drafters and failing passes fill the log."""
    logs = [logging.getLogger(f"pilotfish.{name}") for name in ("drafters.guard", "serving")]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    yield
    for log in logs:
        log.setLevel(logging.NOTSET)


def play(load: Load, batch: list[Arrival]) -> None:
    """Submit the requests at their times, let clients leave at theirs, and run to the end."""
    leaving: list[tuple[int, Ticket]] = []
    now = 0
    for arrival in batch:
        for _ in range(arrival.after):
            load.step()
            now += 1
            for at, ticket in leaving:
                if at <= now:
                    ticket.cancel()
        ticket = load.submit(arrival.request, salt=arrival.salt)
        if arrival.leaves is not None:
            leaving.append((now + arrival.leaves, ticket))
    while leaving:
        now += 1
        for at, ticket in leaving:
            if at <= now:
                ticket.cancel()
        leaving = [(at, ticket) for at, ticket in leaving if at > now]
        load.step()
    load.finish()


# The answers


@given(rules, arrivals, drafter_names, st.integers(0, 8), st.sampled_from([0, 8, 40, 400]), st.integers(1, 5))
@settings(max_examples=120)
def test_an_answer_is_the_same_alone_and_under_any_load(
    rule: Rule, batch: list[Arrival], name: str, length: int, kept: int, most_running: int
) -> None:
    """With any drafter, greedy or sampled, with what is kept of other texts, and clients that leave."""
    load = Load(service(rule, MAKERS[name](rule), length, kept=kept, most_running=most_running))
    play(load, batch)
    for arrival, ticket in zip(batch, load.tickets, strict=True):
        told, reason = plain(rule, arrival.request)
        heard = load.told(ticket)
        if ticket.error is None:
            assert (heard, ticket.choices[0].finish_reason) == (told, reason)
        else:
            assert isinstance(ticket.error, Cancelled)
            assert arrival.leaves is not None
            assert heard == told[: len(heard)]
        stats = ticket.choices[0].stats
        assert stats.accepted <= stats.drafted
        assert stats.accepted == sum(t.drafted_by is not None for t in load.heard[id(ticket)])


@given(rules, arrivals, good_drafter_names, st.integers(0, 8), st.sampled_from([0, 40]), st.integers(60, 140))
@settings(max_examples=100)
def test_an_answer_is_the_same_when_memory_runs_out(
    rule: Rule, batch: list[Arrival], name: str, length: int, kept: int, room: int
) -> None:
    """Requests that lose their cache read their text again; one that never fits has an error."""
    load = Load(service(rule, MAKERS[name](rule), length, kept=kept))
    scripted(load.decoder).room = room
    play(load, batch)
    for arrival, ticket in zip(batch, load.tickets, strict=True):
        told, reason = plain(rule, arrival.request)
        heard = load.told(ticket)
        if ticket.error is None:
            assert (heard, ticket.choices[0].finish_reason) == (told, reason)
        else:
            assert isinstance(ticket.error, Cancelled)
            assert heard == told[: len(heard)]


@given(
    rules, st.lists(asked, min_size=1, max_size=3), good_drafter_names, st.integers(0, 6), st.integers(2, 4)
)
@settings(max_examples=40)
def test_choices_of_one_request_are_those_that_each_would_be_alone(
    rule: Rule, batch: list[Request], name: str, length: int, count: int
) -> None:
    """The prompt is read once; memory that runs out changes nothing."""
    load = Load(service(rule, MAKERS[name](rule), length, kept=40))
    scripted(load.decoder).room = 250
    seeds = [
        [
            Request(r.prompt, Sampling(temperature=0.9, seed=r.sampling.seed, choice=i), r.max_tokens, r.ends)
            for i in range(count)
        ]
        for r in batch
    ]
    tickets = [load.submit(*choices) for choices in seeds]
    load.finish()
    for ticket, choices in zip(tickets, seeds, strict=True):
        assert ticket.error is None
        for i, choice in enumerate(choices):
            assert load.told(ticket, i) == plain(rule, choice)[0]


def test_memory_that_runs_out_does_preempt_and_drop_what_is_kept() -> None:
    """Else the test above would claim nothing."""
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 4, kept=40))
    scripted(load.decoder).room = 100
    first = load.submit(Request((1,) * 40, max_tokens=3))
    load.finish()
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 4, kept=40))
    scripted(load.decoder).room = 100
    first = load.submit(Request((1,) * 30, max_tokens=30))
    second = load.submit(Request((2,) * 30, max_tokens=30))
    load.finish()
    assert (first.preempted, second.preempted) == (0, 1)
    assert first.ended_s is not None
    assert second.ended_s is not None
    assert first.ended_s < second.ended_s
    for ticket, token in ((first, 1), (second, 2)):
        assert load.told(ticket) == plain(LANGUAGE, Request((token,) * 30, max_tokens=30))[0]


def tight(*wanted: int) -> list[Ticket]:
    """Ask for so many tokens behind prompts of 30 where memory is short, and run to the end."""
    load = Load(service(LANGUAGE, most_running=len(wanted)))
    scripted(load.decoder).room = 100
    asked = [Request((n,) * 30, max_tokens=most) for n, most in enumerate(wanted)]
    tickets = [load.submit(request) for request in asked]
    load.finish()
    assert [load.told(ticket) for ticket in tickets] == [plain(LANGUAGE, request)[0] for request in asked]
    return tickets


def ends(tickets: list[Ticket]) -> list[int]:
    """Return the tickets' numbers in the order in which they ended."""
    return sorted(range(len(tickets)), key=lambda i: tickets[i].ended_s or 0)


def test_a_request_that_lost_its_cache_goes_on_once_another_has_ended() -> None:
    """Not only when nobody else runs."""
    tickets = tight(10, 60, 10)
    assert [ticket.preempted for ticket in tickets] == [0, 0, 1]
    assert ends(tickets) == [0, 2, 1]


def test_a_request_that_lost_its_cache_keeps_its_place_in_the_order_of_arrival() -> None:
    """Those that came later don't overtake it, and are asked before it the next time."""
    load = Load(service(LANGUAGE, most_running=2))
    scripted(load.decoder).room = 100
    asked = [Request((n,) * 30, max_tokens=most) for n, most in enumerate((30, 40, 40))]
    tickets = [load.submit(request) for request in asked]
    load.finish()
    assert [ticket.preempted for ticket in tickets] == [0, 1, 1]
    assert ends(tickets) == [0, 1, 2]
    assert [load.told(ticket) for ticket in tickets] == [plain(LANGUAGE, request)[0] for request in asked]


def test_when_a_request_that_lost_its_cache_is_cancelled_the_next_one_gets_its_place() -> None:
    """There may be room for it, though nobody who runs has ended."""
    load = Load(service(LANGUAGE, most_running=2))
    scripted(load.decoder).room = 100
    asked = [Request((n,) * 30, max_tokens=most) for n, most in enumerate((60, 40, 2))]
    first, lost, small = [load.submit(request) for request in asked]
    while not lost.preempted:
        load.step()
    load.step()
    assert (load.scheduler.running, load.scheduler.waiting) == (1, 2)
    lost.cancel()
    load.step()
    assert (load.scheduler.running, load.scheduler.waiting) == (2, 0)
    load.finish()
    assert ends([first, lost, small]) == [1, 2, 0]
    assert [load.told(ticket) for ticket in (first, small)] == [
        plain(LANGUAGE, request)[0] for request in (asked[0], asked[2])
    ]


def test_when_memory_runs_out_half_of_what_is_kept_is_dropped_first() -> None:
    load = Load(service(LANGUAGE, kept=64))
    for n in (1, 2):
        load.submit(Request((n,) * 32, max_tokens=1))
        while load.step():
            pass
    assert load.scheduler.prefixes is not None
    assert load.scheduler.prefixes.tokens == 64
    scripted(load.decoder).room = 90
    load.submit(Request((3,) * 40, max_tokens=1))
    load.step()
    assert load.scheduler.prefixes.tokens == 64  # 40 of the new text, and 24 of the 32 that were left
    load.finish()


def test_a_request_that_does_not_fit_alone_ends_with_the_error() -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 4, kept=40))
    scripted(load.decoder).room = 50
    ticket, other = load.submit(Request((1,) * 40, max_tokens=30)), load.submit(Request((2,), max_tokens=9))
    load.finish()
    assert isinstance(ticket.error, OutOfMemory)
    told = plain(LANGUAGE, Request((1,) * 40, max_tokens=30))[0]
    assert load.told(ticket) == told[:11]  # 50 evaluated, and the pending one
    assert load.told(other) == plain(LANGUAGE, Request((2,), max_tokens=9))[0]


# Cancelling


@given(st.integers(0, 8))
@settings(max_examples=9)
def test_a_client_that_leaves_frees_its_own_place_before_the_next_pass(after: int) -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 2, most_running=2))
    stays, leaves, waits = (load.submit(Request((n,) * 200, max_tokens=30)) for n in (1, 2, 3))
    for _ in range(after):
        load.step()
    assert waits.begun_s is None
    leaves.cancel()
    load.step()
    assert leaves.done
    assert isinstance(leaves.error, Cancelled)
    assert waits.begun_s is not None
    assert all(s.handle < 0 for s in leaves.choices)
    load.finish()
    for ticket, n in ((stays, 1), (waits, 3)):
        assert load.told(ticket) == plain(LANGUAGE, Request((n,) * 200, max_tokens=30))[0]


def test_a_client_that_leaves_while_it_waits_is_not_begun() -> None:
    load = Load(service(LANGUAGE, most_running=1, most_waiting=1))
    load.submit(Request((1,), max_tokens=9))
    load.step()
    waiting = load.submit(Request((2,)))
    waiting.cancel()
    load.step()
    assert waiting.done
    assert waiting.begun_s is None
    load.submit(Request((3,), max_tokens=2))
    load.finish()


# Errors


def test_logits_that_are_no_numbers_end_one_request_only() -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 4, kept=400))
    scripted(load.decoder).nan_at.add(30)
    bad = load.submit(Request((1,) * 20, max_tokens=20))
    good = [load.submit(Request((n,) * 5, max_tokens=20)) for n in range(3)]
    read = load.submit(Request((1,) * 40, max_tokens=3))
    load.finish()
    assert isinstance(bad.error, NumericsError)
    assert load.told(bad) == plain(LANGUAGE, Request((1,) * 20, max_tokens=20))[0][:10]
    for n, ticket in enumerate(good):
        assert load.told(ticket) == plain(LANGUAGE, Request((n,) * 5, max_tokens=20))[0]
    assert read.error is None


@pytest.mark.parametrize("at", [1, 3])
def test_a_stop_that_raises_ends_one_request_only(at: int) -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 4))
    heard: list[int] = []

    def stop(token: int) -> bool:
        heard.append(token)
        if len(heard) == at:
            raise ValueError("no stop")
        return False

    sequence = Sequence([1, 2], Sampling(), 9, stop=stop)
    ticket = load.watch(load.scheduler.submit(sequence))
    other = load.submit(Request((3,), max_tokens=9))
    load.finish()
    with pytest.raises(ValueError, match="no stop"):
        list(ticket)
    assert load.told(other) == plain(LANGUAGE, Request((3,), max_tokens=9))[0]


@given(st.integers(0, 9), st.booleans())
@settings(max_examples=20)
def test_a_pass_that_fails_ends_all_that_share_it_and_the_others_get_their_turn(
    fails: int, read: bool
) -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 2, most_running=2, kept=40))
    size = 200 if read else 3
    tickets = [load.submit(Request((n,) * size, max_tokens=12)) for n in range(4)]
    scripted(load.decoder).failures[fails] = EngineError("out of order")
    load.finish()
    failed = [ticket for ticket in tickets if ticket.error is not None]
    assert 1 <= len(failed) <= 2
    assert all(str(ticket.error) == "out of order" for ticket in failed)
    for n, ticket in enumerate(tickets):
        told = plain(LANGUAGE, Request((n,) * size, max_tokens=12))[0]
        assert load.told(ticket) == (told if ticket.error is None else told[: len(load.told(ticket))])


def test_an_interrupted_pass_can_be_made_again() -> None:
    """Ctrl-C while a program steps by itself: nothing is lost."""
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 2))
    tickets = [load.submit(Request((n,) * 150, max_tokens=12)) for n in range(2)]
    for at in range(5):
        scripted(load.decoder).failures[scripted(load.decoder).passes] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            load.step()
        assert scripted(load.decoder).passes == at
        load.step()
    load.finish()
    for n, ticket in enumerate(tickets):
        assert load.told(ticket) == plain(LANGUAGE, Request((n,) * 150, max_tokens=12))[0]


def test_a_listener_that_raises_loses_its_own_request_only() -> None:
    def listener(_ticket: Ticket, _tokens: list[Token]) -> None:
        raise RuntimeError("not listening")

    load = Load(service(LANGUAGE))
    sequence = Request((1,), max_tokens=9).sequence()
    deaf = load.watch(load.scheduler.submit(sequence, listener=listener))
    other = load.submit(Request((3,), max_tokens=9))
    load.finish()
    assert isinstance(deaf.error, Cancelled)
    assert load.told(other) == plain(LANGUAGE, Request((3,), max_tokens=9))[0]


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (Request(()), UsageError, "the prompt is empty"),
        (Request((1,), max_tokens=0), UsageError, "max_tokens is 0"),
        (Request((1,) * 8192), PromptTooLong, "the prompt has 8192 tokens"),
    ],
)
def test_a_request_that_can_not_be_answered_is_refused_at_once(
    request_: Request, error: type[Exception], words: str
) -> None:
    load = Load(service(LANGUAGE))
    with pytest.raises(error, match=words):
        load.submit(request_)
    assert not load.step()


def test_more_answers_than_may_run_are_refused() -> None:
    scheduler = service(LANGUAGE, most_running=2)
    with pytest.raises(UsageError, match="3 answers are wanted"):
        scheduler.submit(*(Request((1,)).sequence() for _ in range(3)))


@pytest.mark.parametrize("limits", [{"most_running": 0}, {"most_running": 129}, {"most_waiting": 0}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(limits))):
        service(LANGUAGE, **limits)


# What is kept of texts


def test_a_beginning_in_common_is_read_once() -> None:
    load = Load(service(LANGUAGE, kept=400))
    load.submit(Request((1,) * 100, max_tokens=2))
    while load.step():
        pass
    before = scripted(load.decoder).tokens
    ticket = load.submit(Request((1,) * 98 + (2,) * 5, max_tokens=1))
    while load.step():
        pass
    assert ticket.reused == 96
    assert scripted(load.decoder).tokens - before == 7
    load.finish()


def test_the_answer_is_kept_for_the_next_question() -> None:
    """A conversation goes on from where it was."""
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 4, kept=400))
    first = load.submit(Request((1,) * 10, max_tokens=31))
    while load.step():
        pass
    talk = (1,) * 10 + tuple(load.told(first)) + (5, 6)
    second = load.submit(Request(talk, max_tokens=9))
    while load.step():
        pass
    assert second.reused == 40
    assert load.told(second) == plain(LANGUAGE, Request(talk, max_tokens=9))[0]
    load.finish()


def test_who_has_another_salt_shares_nothing() -> None:
    load = Load(service(LANGUAGE, kept=400))
    for salt in ("a", "b", "a"):
        load.submit(Request((1,) * 50, max_tokens=2), salt=salt)
        while load.step():
            pass
    assert [ticket.reused for ticket in load.tickets] == [0, 0, 48]
    load.finish()


def test_a_prompt_that_is_scored_is_read_whole_and_scored_the_same() -> None:
    def scored(scheduler_kept: int) -> list[Sequence]:
        load = Load(service(LANGUAGE, kept=scheduler_kept))
        made = []
        for _ in range(2):
            s = Sequence([1, 2, 3, 4] * 20, Sampling(), 3, logprobs=2, scores_prompt=True)
            load.watch(load.scheduler.submit(s))
            load.submit(Request((7,) * 60, max_tokens=3))
            load.finish()
            made.append(s)
        return made

    cold, warm = scored(0), scored(400)
    assert len(cold[0].prompt_logprobs) == 80
    assert all(s.prompt_logprobs == cold[0].prompt_logprobs for s in [*cold, *warm])
