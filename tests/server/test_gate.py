"""Nobody is let in while the model loads or the server drains; those inside are counted, and waited for."""

from __future__ import annotations

import threading

import pytest

from pilotfish.engines.scripted import copying
from pilotfish.server.app import Clock, gate_of, make_app
from pilotfish.server.gate import Gate
from pilotfish.server.refusals import Refusal
from pilotfish.server.service import Service
from pilotfish.server.settings import Settings
from server.asgi import CHAT, Naps, Server, ask, look, running, server, until
from tiny import VOCAB_SIZE, tiny_model

BODY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}


def closed(settings: Settings | None = None) -> tuple[Server, Gate]:
    """Return a server that is still loading."""
    settings = settings or Settings()
    gate, naps = gate_of(settings), Naps()
    service = Service(tiny_model(copying(VOCAB_SIZE, 3)), None, settings, run=False)
    return Server(service, make_app(gate, settings, clock=Clock(sleep=naps.sleep)), naps), gate


def test_while_the_model_loads_everything_is_503_and_health_says_why() -> None:
    made, gate = closed()
    for call in (ask(made, CHAT, BODY), look(made, "/v1/models"), look(made, "/metrics")):
        assert (call.status, call.error["code"]) == (503, "unavailable")
        assert call.response_headers["retry-after"] == "1"
    health = look(made, "/health")
    assert (health.status, health.json["status"]) == (503, "loading")
    gate.open(made.service)
    assert look(made, "/health").json == {"status": "ok"}
    assert look(made, "/v1/models").status == 200


def test_draining_lets_nobody_in_waits_for_those_inside_and_says_whether_they_left() -> None:
    async def scenario() -> None:
        made, gate = closed()
        gate.open(made.service)
        call = made.post(CHAT, BODY)
        await made.submitted()
        left: list[bool] = []
        drain = threading.Thread(target=lambda: left.append(gate.drain(60)))
        drain.start()
        await until(lambda: gate.state == "draining")
        refused = await made.post(CHAT, BODY).end()
        assert (refused.status, refused.error["code"]) == (503, "unavailable")
        assert "retry-after" in refused.response_headers
        health = await made.get("/health").end()
        assert (health.status, health.json["status"]) == (503, "draining")
        assert (await made.get("/v1/models").end()).status == 200
        assert left == []
        await made.finish(call)
        assert call.json["usage"]["completion_tokens"] == 3
        drain.join(20)
        assert left == [True]
        assert gate.drain(0)

    running(scenario)


def test_draining_ends_after_its_time() -> None:
    gate = Gate(5)
    gate.open(server({}).service)
    with gate.entered():
        assert not gate.drain(0)


def test_more_requests_than_may_run_and_wait_are_told_to_come_again() -> None:
    async def scenario() -> None:
        gate, made = Gate(2), server({}, run=False)
        gate.open(made.service)
        made.app = make_app(gate, Settings())
        inside = [made.post(CHAT, BODY) for _ in range(2)]
        await made.submitted(2)
        refused = await made.post(CHAT, BODY).end()
        assert (refused.status, refused.error["type"]) == (429, "rate_limit_error")
        assert refused.response_headers["retry-after"] == "1"
        assert (await made.get("/metrics").end()).status == 200
        assert refused.read_bytes == 0
        for call in inside:
            call.leave()
            await call.end()
        assert gate.inside == 0
        again = made.post(CHAT, BODY)
        await made.submitted()
        await made.finish(again)
        assert again.status == 200

    running(scenario)


def test_who_has_left_is_counted_out_whatever_happened() -> None:
    gate = Gate(1)
    gate.open(server({}).service)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), gate.entered():
            raise ZeroDivisionError
    assert gate.inside == 0


def test_a_service_whose_thread_is_gone_is_not_healthy_and_takes_nobody() -> None:
    made = server({})
    made.service.close()
    assert look(made, "/health").json["status"] == "failed"
    assert ask(made, CHAT, BODY).status == 503


def test_a_gate_that_is_closed_has_no_service() -> None:
    with pytest.raises(Refusal, match="being loaded"):
        _ = Gate(1).service
