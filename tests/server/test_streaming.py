"""Streams: pings while waiting, clients that leave or read slowly, errors early and late."""

from __future__ import annotations

from typing import Any

import pytest

from decoding import assert_nothing_is_left, scripted
from pilotfish.engines.scripted import copying
from pilotfish.errors import EngineError, OutOfMemory
from pilotfish.server.settings import Settings
from server.asgi import CHAT, COMPLETIONS, Call, Server, both, running, server, settled, until
from tiny import VOCAB_SIZE, tiny_model

GREEDY = {"messages": [{"role": "user", "content": "go on"}], "temperature": 0}
LONG = {**GREEDY, "max_tokens": 200, "stream": True}


def quiet(**settings: Any) -> Server:
    """Return a server that makes a pass when the test says so."""
    return server(
        target=tiny_model(copying(VOCAB_SIZE, 3)), settings=Settings(prefix_tokens=0, **settings), run=False
    )


def idle(made: Server) -> bool:
    scheduler = made.service.scheduler
    assert_nothing_is_left(scheduler.decoder)
    return (scheduler.running, scheduler.waiting) == (0, 0)


def test_a_comment_is_sent_every_15_seconds_while_nothing_comes_and_none_otherwise() -> None:
    async def scenario() -> Call:
        made = quiet()
        call = made.post(CHAT, {**LONG, "max_tokens": 3})
        await made.submitted()
        assert call.messages == []
        for pings in (1, 2):
            await settled()
            assert made.naps.sleeping == 1
            made.naps.end()
            await settled()
            assert call.frames == [": ping"] * pings
        assert call.status == 200
        await made.finish(call)
        assert set(made.naps.lengths) == {15.0, Settings().body_s}
        return call

    call = running(scenario)
    assert [frame for frame in call.frames if frame.startswith(":")] == [": ping"] * 2
    assert call.frames[:2] == [": ping"] * 2
    assert call.events[-1] is None


def test_a_stream_is_not_to_be_kept_by_caches_and_proxies() -> None:
    async def scenario() -> Call:
        made = quiet()
        call = made.post(CHAT, {**LONG, "max_tokens": 1})
        await made.submitted()
        await made.finish(call)
        return call

    headers = running(scenario).response_headers
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-length" not in headers


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_client_that_leaves_is_gone_before_the_next_pass_and_others_go_on(path: str, stream: bool) -> None:
    """Of two that run and one that waits, one of each leaves."""

    async def scenario() -> None:
        made = quiet(most_running=2)
        scheduler = made.service.scheduler
        body = {**LONG, "stream": stream, "prompt": "go on"}
        del body["messages" if path == COMPLETIONS else "prompt"]
        stays, leaves = made.post(path, body), made.post(path, body)
        await made.submitted(2)
        await made.step(5)
        waits = made.post(path, body)
        await made.submitted(3)
        assert (scheduler.running, scheduler.waiting) == (2, 1)
        leaves.leave()
        waits.leave()
        await leaves.end()
        await waits.end()
        before = scripted(scheduler.decoder).tokens
        await made.step()
        assert (scheduler.running, scheduler.waiting) == (1, 0)
        assert scripted(scheduler.decoder).tokens == before + 1
        await made.finish(stays)
        if stream:
            assert stays.events[-1] is None
        else:
            assert stays.json["usage"]["completion_tokens"] == 200
        assert idle(made)

    running(scenario)


def test_of_several_prompts_none_goes_on_when_the_client_leaves() -> None:
    async def scenario() -> None:
        made = quiet()
        call = made.post(COMPLETIONS, {"prompt": ["a", "b", "c"], "max_tokens": 200, "n": 2, "stream": True})
        await made.submitted(3)
        await made.step(3)
        call.leave()
        await call.end()
        await made.step()
        assert idle(made)

    running(scenario)


def test_what_a_slow_reader_has_not_read_becomes_one_large_event_and_stops_nobody() -> None:
    async def scenario() -> tuple[Call, Call]:
        made = quiet()
        slow, other = made.post(CHAT, LONG), made.post(CHAT, LONG)
        await made.submitted(2)
        await made.step(5)
        slow.pause()
        await made.finish(other)
        await settled()
        assert not made.service._replies  # both have ended; of one the text is not fetched yet
        slow.resume()
        await slow.end()
        return slow, other

    slow, other = running(scenario)
    texts = [
        "".join(event["choices"][0]["delta"].get("content", "") for event in call.events[:-1])
        for call in (slow, other)
    ]
    assert texts[0] == texts[1]
    assert len(other.events) == 200 + 3
    assert len(slow.events) < 15


def test_a_client_that_takes_nothing_for_long_counts_as_gone() -> None:
    async def scenario() -> None:
        made = quiet(write_s=77)
        call = made.post(CHAT, LONG)
        await made.submitted()
        await made.step(3)
        call.pause()
        while 77 not in made.naps.lengths:
            await made.step()
        made.naps.end()
        await call.end()
        await made.step()
        assert idle(made)

    running(scenario)


def test_who_asks_again_before_reading_does_not_keep_a_place_for_ever() -> None:
    """An answer that is no stream waits behind what was not read of the last one on the same connection."""

    async def scenario() -> None:
        made = quiet(write_s=77, most_running=1, most_waiting=1)
        calls = [made.post("/tokenize", {"prompt": "a"}) for _ in range(2)]
        for call in calls:
            call.pause()
        await until(lambda: made.naps.lengths.count(77) == 2)
        assert (await made.post("/tokenize", {"prompt": "a"}).end()).status == 429
        made.naps.end()
        for call in calls:
            await call.end()
        assert (await made.post("/tokenize", {"prompt": "a"}).end()).status == 200

    running(scenario)


def test_an_error_before_the_first_event_has_its_status() -> None:
    async def scenario() -> None:
        made = quiet()
        engine = scripted(made.service.scheduler.decoder)
        for error, status, code in (
            (EngineError("it broke", ""), 500, "engine_error"),
            (OutOfMemory("no room", ""), 503, "out_of_memory"),
            (ZeroDivisionError("secret"), 500, "internal_error"),
        ):
            engine.failures[engine.passes] = error
            if isinstance(error, OutOfMemory):
                engine.room = 0
            call, whole = made.post(CHAT, LONG), made.post(CHAT, {**LONG, "stream": False})
            await made.submitted(2)
            await made.finish(call, whole)
            for one in (call, whole):
                assert (one.status, one.error["code"], one.error["type"]) == (status, code, "server_error")
                assert "secret" not in one.text
            engine.room = None
            assert idle(made)

    running(scenario)


def test_an_error_in_the_middle_is_the_last_event_and_another_request_goes_on() -> None:
    """Logits that are no numbers are one request's own error."""

    async def scenario() -> tuple[Call, Call]:
        made = quiet()
        short = {**LONG, "messages": [{"role": "user", "content": "g"}]}
        fails, other = made.post(CHAT, LONG), made.post(CHAT, {**short, "max_tokens": 10})
        await made.submitted(2)
        await made.step(3)
        scripted(made.service.scheduler.decoder).nan_at = {60}
        await made.finish(fails, other)
        assert idle(made)
        return fails, other

    fails, other = running(scenario)
    assert fails.status == 200
    *events, last = fails.events
    assert last["error"]["type"] == "server_error"
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert all("error" not in event for event in events)
    assert sum(bool(event["choices"][0]["delta"].get("content")) for event in events) > 3
    assert other.events[-1] is None


def test_a_server_that_shuts_down_says_so_in_the_stream() -> None:
    async def scenario() -> Call:
        made = quiet()
        call = made.post(CHAT, LONG)
        await made.submitted()
        await made.step(3)
        made.service.scheduler.close()
        return await call.end()

    assert running(scenario).events[-1]["error"]["code"] == "cancelled"


def test_requests_of_several_loops_and_threads_are_answered_at_once() -> None:
    """The thread of the scheduler answers; each stream is put together on its own loop."""
    made = server(target=tiny_model(copying(VOCAB_SIZE, 3)))

    async def scenario() -> list[Call]:
        return await both(*(made.post(CHAT, {**LONG, "max_tokens": 20 + i}).end() for i in range(12)))

    calls = running(scenario)
    for i, call in enumerate(calls):
        *events, end = call.events
        assert end is None
        assert events[-1]["timings"]["predicted_n"] == 20 + i
    made.service.close()


def test_a_fault_of_ours_is_logged_and_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """So the client does not take half an answer for a whole one."""

    async def scenario() -> None:
        made = quiet()
        call = made.post(CHAT, LONG)

        async def broken(_message: object) -> None:
            raise ZeroDivisionError

        call._send = broken  # type: ignore[assignment]
        await made.submitted()
        await made.step(2)
        with pytest.raises(ZeroDivisionError):
            await call.end()
        await made.step()
        assert idle(made)

    running(scenario)
    assert caplog.records[-1].getMessage() == "an answer could not be written"
