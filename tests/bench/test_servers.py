"""Servers that are measured are started, read and ended; one that does not start says why."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from pilotfish.bench import servers
from pilotfish.bench.http_stream import Address, HttpError
from pilotfish.bench.servers import Server, ServerFailed, figures, idle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCRAPE = """# HELP pilotfish:num_requests_running Answers.
# TYPE pilotfish:num_requests_running gauge
pilotfish:num_requests_running{{model_name="a b"}} {running}
pilotfish:num_requests_waiting{{model_name="a b"}} 0.0
pilotfish:request_success_total{{finished_reason="stop"}} 3.0
pilotfish:request_success_total{{finished_reason="length"}} 4.0
pilotfish:latency_bucket{{le="1.0"}} 9.0
"""


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_server_ends_on_sigterm_and_what_it_wrote_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys, time; print('x is served at http://127.0.0.1:81/v1', file=sys.stderr, flush=True); "
    monkeypatch.setattr(servers, "ours_command", lambda _model, _options: program(text + "time.sleep(600)"))
    with Server.ours("x") as server:
        assert server.address == Address("127.0.0.1", 81)
        assert server.resident_bytes > 1_000_000
        assert "is served at" in server.stop()
    assert server.stop() == ""


def test_a_server_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        servers, "ours_command", lambda _model, _options: program("raise SystemExit('no model')")
    )
    with pytest.raises(ServerFailed, match="no model"):
        Server.ours("x")


def test_llama_cpp_says_where_it_listens_and_what_it_is(tmp_path: Path) -> None:
    script = tmp_path / "peer.py"
    script.write_text('print(\'{"url": "http://127.0.0.1:82", "build": "AVX2"}\', flush=True); input()')
    with Server.llama_cpp(sys.executable, script, tmp_path) as server:
        assert (server.address, server.about) == (Address("127.0.0.1", 82), {"build": "AVX2"})
    script.write_text("raise SystemExit('no xllamacpp')")
    with pytest.raises(ServerFailed, match="no xllamacpp"):
        Server.llama_cpp(sys.executable, script, tmp_path)


def scraped(monkeypatch: pytest.MonkeyPatch, *running: int) -> None:
    """Let scrapes say that so many requests run, one after the other."""
    left = list(running)

    async def fetch(_address: Address, path: str, _body: Mapping[str, object] | None = None) -> bytes:
        assert path == "/metrics"
        return SCRAPE.format(running=left.pop(0)).encode()

    monkeypatch.setattr(servers, "fetch", fetch)
    monkeypatch.setattr(servers, "LOOK_S", 0)


def test_figures_are_summed_over_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    scraped(monkeypatch, 2)
    assert asyncio.run(figures(Address("", 0))) == {
        "num_requests_running": 2.0,
        "num_requests_waiting": 0.0,
        "request_success_total": 7.0,
    }


def test_idle_waits_until_nobody_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    scraped(monkeypatch, 2, 1, 0)
    assert asyncio.run(idle(Address("", 0)))["num_requests_running"] == 0
    scraped(monkeypatch, 1)
    with pytest.raises(HttpError, match="though all clients are gone"):
        asyncio.run(idle(Address("", 0), within_s=-1))
