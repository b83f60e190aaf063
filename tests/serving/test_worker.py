"""The thread: clients of any thread are answered, it waits when idle, survives, and ends cleanly."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from decoding import assert_nothing_is_left, plain, scripted
from pilotfish.drafters.recent import RecentTexts
from pilotfish.engines.scripted import ngrams
from pilotfish.errors import Cancelled, Unavailable, UsageError
from pilotfish.sequence import Token
from pilotfish.serving.ticket import Ticket
from pilotfish.serving.worker import Worker
from serving.loads import service
from strategies import VOCAB, Request, draft_model

LANGUAGE = ngrams(VOCAB, 2, seed=3)
pytestmark = pytest.mark.timeout(60)


def test_clients_of_several_threads_get_the_answers_that_each_would_get_alone() -> None:
    scheduler = service(LANGUAGE, draft_model(LANGUAGE), kept=400, most_running=3)

    def ask(n: int) -> list[int]:
        return [t.id for t in scheduler.submit(Request((1, 2, 3, 4, n), max_tokens=20 + n).sequence())]

    with Worker(scheduler), ThreadPoolExecutor(8) as clients:
        told = list(clients.map(ask, [n % VOCAB for n in range(40)]))
    for n, ids in enumerate(told):
        assert ids == plain(LANGUAGE, Request((1, 2, 3, 4, n % VOCAB), max_tokens=20 + n % VOCAB))[0]
    assert_nothing_is_left(scheduler.decoder)


def test_it_steps_only_while_there_is_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = service(LANGUAGE)
    calls = []
    step = scheduler.step
    monkeypatch.setattr(scheduler, "step", lambda: calls.append(step()))
    with Worker(scheduler):
        for n in range(3):
            list(scheduler.submit(Request((n,), max_tokens=5).sequence()))
    assert len(calls) == scheduler.passes == 15


def test_a_listener_hears_in_the_scheduler_thread_and_the_last_call_says_it_is_done() -> None:
    scheduler, ended = service(LANGUAGE, draft_model(LANGUAGE)), threading.Event()
    heard: list[tuple[str, list[int], bool]] = []

    def listener(ticket: Ticket, tokens: list[Token]) -> None:
        heard.append((threading.current_thread().name, [t.id for t in tokens], ticket.done))
        if ticket.done:
            ended.set()

    with Worker(scheduler):
        ticket = scheduler.submit(Request((1,), max_tokens=12).sequence(), listener=listener)
        assert ended.wait(30)
        with pytest.raises(UsageError, match="a listener gets the tokens"):
            next(ticket)
    assert {name for name, _, _ in heard} == {"pilotfish scheduler"}
    assert [done for _, _, done in heard] == [False] * (len(heard) - 1) + [True]
    assert [id_ for _, ids, _ in heard for id_ in ids] == plain(LANGUAGE, Request((1,), max_tokens=12))[0]


def test_a_client_may_cancel_from_its_own_thread() -> None:
    scheduler, begun, go_on = service(LANGUAGE), threading.Event(), threading.Event()
    sequence = Request((1,), max_tokens=8000).sequence()

    def waits(_token: int) -> bool:
        begun.set()
        return not go_on.wait(30)

    sequence.stop = waits
    with Worker(scheduler):
        ticket = scheduler.submit(sequence)
        assert begun.wait(30)
        ticket.cancel()
        go_on.set()
        next(ticket)
        with pytest.raises(Cancelled, match="its client left"):
            next(ticket)
        assert list(scheduler.submit(Request((1,), max_tokens=2).sequence()))


def test_closing_ends_requests_that_run_and_that_wait_and_frees_all() -> None:
    scheduler = service(LANGUAGE, draft_model(LANGUAGE), kept=400, most_running=1)
    worker = Worker(scheduler)
    tickets = [scheduler.submit(Request((1,) * 9, max_tokens=8000).sequence()) for _ in range(3)]
    next(tickets[0])
    worker.close()
    worker.close()
    for ticket in tickets:
        with pytest.raises(Cancelled):
            list(ticket)
    assert_nothing_is_left(scheduler.decoder)
    with pytest.raises(Unavailable, match="no more requests"):
        scheduler.submit(Request((1,)).sequence())


def test_draining_lets_those_that_run_and_wait_end_and_takes_no_more() -> None:
    scheduler = service(LANGUAGE, draft_model(LANGUAGE), kept=400, most_running=1)
    worker = Worker(scheduler)
    tickets = [scheduler.submit(Request((n,) * 9, max_tokens=200).sequence()) for n in range(3)]
    assert worker.drain(30)
    with pytest.raises(Unavailable, match="no more requests"):
        scheduler.submit(Request((1,)).sequence())
    for n, ticket in enumerate(tickets):
        assert [t.id for t in ticket] == plain(LANGUAGE, Request((n,) * 9, max_tokens=200))[0]
    assert worker.drain(0)
    worker.close()
    assert_nothing_is_left(scheduler.decoder)


def test_an_idle_worker_drains_at_once() -> None:
    assert Worker(service(LANGUAGE)).drain(30)


def test_what_is_left_when_the_time_to_drain_is_over_can_be_ended() -> None:
    worker, go_on = Worker(service(LANGUAGE)), threading.Event()
    sequence = Request((1,), max_tokens=4000).sequence()
    sequence.stop = lambda _token: not go_on.wait(30)
    ticket = worker.scheduler.submit(sequence)
    assert not worker.drain(0)
    worker.scheduler.shut()
    go_on.set()
    worker.close()
    with pytest.raises(Cancelled):
        list(ticket)
    assert_nothing_is_left(worker.scheduler.decoder)


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), MemoryError()])
def test_a_step_that_fails_in_any_way_costs_those_that_run_and_not_the_thread(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scheduler = service(LANGUAGE)
    plan, faults = scheduler._plan, [error]

    def faulty() -> object:
        if faults:
            raise faults.pop()
        return plan()

    monkeypatch.setattr(scheduler, "_plan", faulty)
    with Worker(scheduler):
        with pytest.raises(type(error)):
            list(scheduler.submit(Request((1,), max_tokens=5).sequence()))
        assert len(list(scheduler.submit(Request((1,), max_tokens=5).sequence()))) == 5
    assert not scripted(scheduler.decoder).sequences


def test_an_end_that_fails_is_told_to_its_client_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is kept of a text for later ones is nobody's answer."""
    scheduler = service(LANGUAGE)
    scheduler.recent = RecentTexts()
    monkeypatch.setattr(scheduler.recent, "add", None)
    with Worker(scheduler) as worker:
        for _ in range(2):
            assert len(list(scheduler.submit(Request((1,), max_tokens=5).sequence()))) == 5
        assert worker.alive
    assert len([record for record in caplog.records if "put away" in record.getMessage()]) == 2
    assert_nothing_is_left(scheduler.decoder)
