"""The server on loopback: real connections, clients that hang up, and addresses that can't be had."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from decoding import assert_nothing_is_left
from pilotfish.engines.scripted import copying
from pilotfish.errors import UsageError
from pilotfish.server.app import make_app
from pilotfish.server.listening import Address, Listening
from pilotfish.server.service import Service
from pilotfish.server.settings import Settings
from server.asgi import CHAT, PATIENCE_S
from tiny import VOCAB_SIZE, tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(60)
BODY = {"messages": [{"role": "user", "content": "go on"}], "temperature": 0}


@contextmanager
def listening(**settings: Any) -> Iterator[tuple[Service, Address]]:
    """Serve a model that goes on for long."""
    chosen = Settings(prefix_tokens=0, **settings)
    address = Address("127.0.0.1", 0)
    with (
        Service(tiny_model(copying(VOCAB_SIZE, 3), context=1 << 20), None, chosen) as service,
        Listening(make_app(service, chosen), address),
    ):
        yield service, address


def post(address: Address, body: dict[str, Any]) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
    connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
    return connection


def ended(service: Service, *, running: int = 0) -> None:
    """Wait until no more than so many requests run, by a listener rather than a clock."""
    changed = threading.Event()
    for _ in range(20_000):
        if service.scheduler.running + service.scheduler.waiting <= running:
            return
        changed.wait(0.001)
    raise AssertionError("they go on")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_frees_its_place_and_another_goes_on(stream: bool) -> None:
    with listening() as (service, address):
        leaves = post(address, {**BODY, "stream": stream, "max_tokens": 1 << 19})
        if stream:
            response = leaves.getresponse()
            assert response.status == 200
            assert response.readline().startswith(b"data: {")
        stays = post(address, {**BODY, "stream": True, "max_tokens": 300}).getresponse()
        assert stays.readline().startswith(b"data: {")
        leaves.close()
        if stream:
            response.close()
        assert stays.read().endswith(b"data: [DONE]\n\n")
        ended(service)
        assert_nothing_is_left(service.scheduler.decoder)


def test_a_client_that_does_not_read_holds_no_more_than_the_buffers_of_its_connection() -> None:
    """The answer goes on to its end, and its events are put together when there is room again."""
    tokens = 3000
    with listening() as (service, address):
        address.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        slow = socket.create_connection((address.host, address.port), timeout=PATIENCE_S)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({**BODY, "stream": True, "max_tokens": tokens}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
        slow.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        other = post(address, {**BODY, "max_tokens": 50}).getresponse()
        assert json.loads(other.read())["usage"]["completion_tokens"] == 50
        ended(service)
        received = bytearray()
        while piece := slow.recv(1 << 16):
            received += piece
        slow.close()
    frames = [part for part in bytes(received).split(b"\n\n") if b"data: {" in part]
    assert b"data: [DONE]" in received
    assert len(frames) < tokens / 2


def test_several_requests_use_one_connection() -> None:
    with listening() as (_, address):
        connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
        for path, status in (("/health", 200), ("/v1/models", 200), ("/nowhere", 404), ("/metrics", 200)):
            connection.request("GET", path)
            response = connection.getresponse()
            assert response.status == status
            assert response.read()
        connection.close()


def test_a_chunked_body_beyond_the_limit_is_refused_while_it_is_read() -> None:
    with listening(most_body_bytes=1000) as (_, address):
        connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
        pieces = (b"a" * 500 for _ in range(6))
        connection.request("POST", CHAT, pieces, {"content-type": "application/json"}, encode_chunked=True)
        response = connection.getresponse()
        assert response.status == 413
        assert json.loads(response.read())["error"]["code"] == "request_too_large"


def test_closing_ends_it_while_clients_are_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilotfish.server.listening.GRACE_S", 0.1)
    with listening() as (_, address):
        response = post(address, {**BODY, "stream": True, "max_tokens": 1 << 19}).getresponse()
        assert response.readline().startswith(b"data: {")
    with pytest.raises(OSError):  # noqa: PT011 - of which kind it is, is the system's choice
        socket.create_connection((address.host, address.port), timeout=PATIENCE_S)


def test_waiting_ends_when_the_thread_that_answers_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the command ends, with an error, and whoever watches over it starts it again."""
    monkeypatch.setattr("pilotfish.server.listening.LOOK_S", 0.001)
    chosen, address, looks = Settings(prefix_tokens=0), Address("127.0.0.1", 0), iter([True, True, False])
    with (
        Service(tiny_model(copying(VOCAB_SIZE, 3)), None, chosen) as service,
        Listening(make_app(service, chosen), address) as listens,
    ):
        listens.wait(needed=lambda: next(looks))
        assert next(looks, None) is None
        service.close()
        listens.wait(needed=lambda: service.alive)


def test_an_address_that_is_taken_or_not_known_is_said_before_anything_is_loaded() -> None:
    first = Address("127.0.0.1", 0)
    with pytest.raises(UsageError, match=f"can't listen on 127.0.0.1 port {first.port}"):
        Address("127.0.0.1", first.port)
    first.socket.close()
    for host in ("nowhere.invalid", "a" * 300, "300.1.1.1.1"):
        with pytest.raises(UsageError, match="host is"):
            Address(host, 0)
    for port in (-1, 65536):
        with pytest.raises(UsageError, match="port is"):
            Address("127.0.0.1", port)


def test_an_address_knows_whether_it_is_loopback_and_how_it_is_reached() -> None:
    for host, loopback, shown in (
        ("127.0.0.1", True, "http://127.0.0.1"),
        ("localhost", True, "http://"),
        ("0.0.0.0", False, "http://127.0.0.1"),  # noqa: S104 - it is closed at once
    ):
        address = Address(host, 0)
        address.socket.close()
        assert address.is_loopback == loopback
        assert address.url.startswith(shown)
        assert address.url.endswith(f":{address.port}")
