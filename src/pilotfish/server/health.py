"""`GET /health`: whether requests are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.server.gate import OPEN, Gate
from pilotfish.server.refusals import RETRY_S, Refusal, json_response

if TYPE_CHECKING:
    from starlette.responses import Response


def health(gate: Gate) -> Response:
    """Return 200 while requests are let in, 503 before, while the server drains, or if its thread is gone."""
    state = gate.state
    if state == OPEN and gate.service.alive:
        return json_response({"status": state})
    if state == OPEN:
        state = "failed"
    refusal = Refusal(
        503, f"the server is not answering: {state}", "server_error", "unavailable", retry_s=RETRY_S
    )
    return json_response({"status": state, **refusal.body}, 503, refusal.headers)
