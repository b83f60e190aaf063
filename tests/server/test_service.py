"""The service: text is made beside the engine's thread, observers hear of all that ends, closing ends all."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from decoding import assert_nothing_is_left, scripted
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.scripted import copying, sure_of
from pilotfish.errors import Cancelled, EngineError, PromptTooLong, QueueFull, Unavailable
from pilotfish.options import Options
from pilotfish.server.log import RequestLog, line
from pilotfish.server.service import Reply, Service
from pilotfish.server.settings import Settings
from pilotfish.server.usage import speculation
from pilotfish.stats import Stats
from pilotfish.text.detokenizer import Detokenizer
from server.asgi import CHAT, PATIENCE_S, running, server, settled, until
from tiny import VOCAB_SIZE, tiny_model

PROMPT = list(b"abc")


def made(
    drafting: Drafting | None = None,
    *,
    run: bool = False,
    **more: Any,
) -> Service:
    """Return a service whose model repeats the prompt."""
    ticks = iter(range(10**6))
    return Service(
        tiny_model(copying(VOCAB_SIZE, 3)),
        drafting,
        Settings(prefix_tokens=0, **more),
        clock=lambda: float(next(ticks)),
        draft_length=3 if drafting else "auto",
        run=run,
    )


async def passes(service: Service, count: int = 10_000) -> None:
    for _ in range(count):
        goes_on = service.scheduler.step()
        await settled(3)
        if not goes_on:
            break


def test_a_reply_gives_the_events_of_each_pass_and_what_is_unread_together() -> None:
    async def scenario() -> None:
        service = made(Drafting(Wish(suffix=True)))
        reply = service.start(PROMPT, Options(max_tokens=20))
        lists: list[list[str]] = []
        for _ in range(4):
            service.scheduler.step()
            lists.append([event.text for event in await anext(reply)])
        assert [len(one) for one in lists] == [1, 1, 4, 4]
        await passes(service)
        lists.append([event.text for event in await anext(reply)])
        assert "".join("".join(one) for one in lists) == ("abc" * 7)[:20]
        with pytest.raises(StopAsyncIteration):
            await anext(reply)

    running(scenario)


def test_text_is_made_on_the_loop_and_in_the_engines_thread_only_for_stop_strings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where: set[str] = set()
    push = Detokenizer.push

    def noted(self: Detokenizer, token: int) -> str:
        where.add(threading.current_thread().name)
        return push(self, token)

    monkeypatch.setattr(Detokenizer, "push", noted)

    async def answer(options: Options) -> str:
        with made(run=True) as service:
            [choice] = await service.start(PROMPT, options).result()
            return choice.text

    assert asyncio.run(answer(Options(max_tokens=9))) == "abcabcabc"
    assert where == {"MainThread"}
    where.clear()
    assert asyncio.run(answer(Options(max_tokens=9, stop="ca"))) == "ab"
    assert where == {"pilotfish scheduler"}


def test_what_takes_long_is_done_beside_the_loop() -> None:
    async def scenario() -> str:
        with made() as service:
            return await service.in_thread(lambda: threading.current_thread().name)

    assert running(scenario).startswith("pilotfish text")


def fails(_reply: Reply) -> None:
    raise ZeroDivisionError


def test_observers_hear_once_of_each_request_that_ends_however_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> list[Reply]:
        service = made()
        heard: list[Reply] = []
        service.observers += [heard.append, fails]
        whole = service.start(PROMPT, Options(max_tokens=5))
        left = service.start(PROMPT, Options(max_tokens=5))
        await passes(service, 2)
        left.cancel()
        await passes(service)
        scripted(service.scheduler.decoder).failures[scripted(service.scheduler.decoder).passes] = (
            EngineError("")
        )
        broken = service.start(PROMPT, Options(max_tokens=5))
        await passes(service)
        assert heard == [left, whole, broken]
        assert_nothing_is_left(service.scheduler.decoder)
        return heard

    left, whole, broken = running(scenario)
    assert isinstance(left.error, Cancelled)
    assert whole.error is None
    assert isinstance(broken.error, EngineError)
    assert sum("observer" in record.message for record in caplog.records) == 3


def test_a_reply_that_has_ended_can_not_be_cancelled() -> None:
    async def scenario() -> None:
        service = made()
        reply = service.start(PROMPT, Options(max_tokens=2))
        await passes(service)
        reply.cancel()
        assert not reply.ticket.cancelled
        assert [choice.text for choice in await reply.result()] == ["ab"]

    running(scenario)


def test_refusals_of_the_scheduler_are_raised_at_once_and_leave_nothing() -> None:
    async def scenario() -> None:
        service = made(most_waiting=1)
        with pytest.raises(PromptTooLong):
            service.start([1] * 5000, Options())
        reply = service.start(PROMPT, Options(max_tokens=2))
        with pytest.raises(QueueFull):
            service.start(PROMPT, Options())
        assert service._replies == {reply}
        reply.cancel()
        await passes(service)
        assert not service._replies

    running(scenario)


def test_a_loop_that_is_gone_ends_its_requests() -> None:
    """As when the HTTP server's thread ends before the engine's."""
    service = made()

    async def asks() -> Reply:
        return service.start(PROMPT, Options(max_tokens=50))

    reply = asyncio.run(asks())
    service.scheduler.step()
    assert reply.ticket.cancelled
    service.scheduler.step()
    assert service.scheduler.running == 0
    assert_nothing_is_left(service.scheduler.decoder)


def test_closing_ends_what_runs_and_waits_with_an_error_and_twice_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread makes one pass, then waits to be closed: else the answers might end before."""

    async def scenario() -> None:
        service = made(run=True, most_running=1)
        scheduler, may_go_on = service.scheduler, threading.Event()
        step, shut = scheduler.step, scheduler.shut

        def step_twice_at_most() -> bool:
            assert not scheduler.passes or may_go_on.wait(60)
            return step()

        def let_go_on() -> None:
            shut()
            may_go_on.set()

        monkeypatch.setattr(scheduler, "step", step_twice_at_most)
        monkeypatch.setattr(scheduler, "shut", let_go_on)
        replies = [service.start(PROMPT, Options(max_tokens=4000)) for _ in range(3)]
        await anext(replies[0])
        service.close()
        service.close()
        for reply in replies:
            with pytest.raises(Cancelled):
                await reply.result()
        assert not service.alive

    running(scenario)


def test_what_is_being_tokenized_when_the_server_shuts_down_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two requests are in the threads, two wait for one: each gets a 503 of OpenAI's shape."""
    begun, goes_on = threading.Semaphore(0), threading.Event()
    choices = Service.choices

    def slow(self: Service, *given: Any, **more: Any) -> Any:
        begun.release()
        goes_on.wait(PATIENCE_S)
        return choices(self, *given, **more)

    monkeypatch.setattr(Service, "choices", slow)

    async def scenario() -> None:
        asked = server({})
        calls = [asked.post(CHAT, {"messages": [{"role": "user", "content": "hello"}]}) for _ in range(4)]
        await until(lambda: begun.acquire(blocking=False))
        await until(lambda: begun.acquire(blocking=False))
        await until(lambda: asked.service._texts._work_queue.qsize() == 2)
        asked.service.close()
        goes_on.set()
        for call in calls:
            await call.end()
            assert (call.status, call.error["type"]) == (503, "server_error")
            assert call.error["code"] == "unavailable"
            assert call.response_headers["retry-after"] == "1"
        with pytest.raises(Unavailable):
            await asked.service.in_thread(list)

    running(scenario)


def test_a_request_is_one_line_of_what_it_took() -> None:
    """The clock of this service advances by a second whenever it is asked."""

    async def scenario() -> str:
        service = made(Drafting(Wish(suffix=True)))
        reply = service.start(PROMPT, Options(max_tokens=13))
        reply.endpoint, reply.label = "/v1/completions", "cmpl-1"
        await passes(service)
        return line(reply)

    assert running(scenario) == (
        "/v1/completions cmpl-1 length, prompt 3 (0 cached), 13 tokens, queued 1.000 s, "
        "first after 8.000 s, 0.4 tokens/s, 8 of 8 drafted accepted (100%), 3.00 tokens per pass"
    )


def test_lines_say_who_left_and_what_failed() -> None:
    async def scenario() -> tuple[str, str]:
        service = made()
        left = service.start(PROMPT, Options())
        left.cancel()
        await passes(service)
        scripted(service.scheduler.decoder).nan_at = {4}
        broken = service.start(PROMPT, Options())
        await passes(service)
        return line(left), line(broken)

    left, broken = running(scenario)
    assert left.startswith("- - cancelled, prompt 3")
    assert broken.startswith("- - failed (NumericsError), prompt 3 (0 cached), 1 tokens")


def test_prompts_and_answers_are_logged_only_if_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(*, texts: bool) -> list[str]:
        caplog.clear()
        service = made()
        service.observers.append(RequestLog(service.target.tokenizer if texts else None))
        service.start(list("né\n".encode()), Options(max_tokens=4))
        await passes(service)
        return [record.getMessage() for record in caplog.records if record.name == "pilotfish.requests"]

    with caplog.at_level(logging.INFO, logger="pilotfish.requests"):
        [only] = running(lambda: scenario(texts=False))
        assert "né" not in only
        lines = running(lambda: scenario(texts=True))
    assert lines == [only, " prompt 'né\\n'", " answer 'é\\n\ufffd'"]
    assert all("\n" not in one for one in lines)


def test_the_histogram_counts_drafts_by_how_many_tokens_were_accepted() -> None:
    """Against counting drafts one by one."""
    drafts = [(3, 0), (3, 3), (2, 1), (4, 1), (1, 1), (5, 2)]
    stats = [Stats(), Stats()]
    for i, (drafted, accepted) in enumerate(drafts):
        stats[i % 2].count_draft(drafted, accepted)
    found = speculation(stats)
    assert found["acceptance_histogram"] == [sum(a == j for _, a in drafts) for j in range(6)]
    assert found["num_spec_steps"] == 6
    assert found["num_draft_tokens"] == 18
    assert found["num_accepted_draft_tokens"] == 8
    assert found["mean_acceptance_length"] == pytest.approx(1 + 8 / 6)
    assert found["draft_acceptance_rate"] == pytest.approx(8 / 18)
    assert found["num_spec_tokens"] == 5
    assert speculation([Stats()])["acceptance_histogram"] == []


def test_answers_that_have_ended_are_drafted_from_within_their_partition_only() -> None:
    """On a model that repeats nothing within an answer."""

    def rule(tokens: tuple[int, ...]) -> Any:
        return sure_of((tokens[-1] * 7 + 13) % 251, VOCAB_SIZE)

    async def scenario() -> list[int]:
        service = Service(
            tiny_model(rule),
            Drafting(Wish(suffix=True)),
            Settings(prefix_tokens=0),
            draft_length=4,
            run=False,
        )
        accepted = []
        for salt in ("mine", "mine", "other"):
            reply = service.start(PROMPT, Options(max_tokens=60), salt=salt)
            await passes(service)
            accepted.append(reply.choices[0].sequence.stats.accepted)
        return accepted

    first, again, other = running(scenario)
    assert first == other == 0
    assert again > 40
