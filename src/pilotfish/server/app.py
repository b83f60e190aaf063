"""The routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Route

from pilotfish.server import chat, completions, models, responses, tokenizer_info, tokens
from pilotfish.server.context import Context
from pilotfish.server.gate import Gate
from pilotfish.server.guard import KEY, Guard
from pilotfish.server.health import health
from pilotfish.server.log import log_refusal
from pilotfish.server.metrics import scrape
from pilotfish.server.reading import ClientLeft
from pilotfish.server.refusals import Refusal
from pilotfish.server.room import Room
from pilotfish.server.streaming import EventStream, watched

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from pilotfish.server.room import Share
    from pilotfish.server.service import Service
    from pilotfish.server.settings import Settings
    from pilotfish.server.streaming import Sleep

_log = logging.getLogger(__name__)

Answer = Callable[[Context, Request], Awaitable["Response"]]

ASKED: tuple[tuple[str, str, Answer], ...] = (
    ("/v1/chat/completions", "POST", chat.answer),
    ("/v1/responses", "POST", responses.answer),
    ("/v1/completions", "POST", completions.answer),
    ("/tokenize", "POST", tokens.tokenize),
    ("/detokenize", "POST", tokens.detokenize),
    ("/tokenizer_info", "GET", tokenizer_info.answer),
    ("/v1/models", "GET", models.listed),
    ("/v1/models/{model:path}", "GET", models.one),
)
"""Path, method and answer of what the model is needed for."""


class Endpoint:
    """Lets a request in, answers it, and turns what is raised into an answer of OpenAI's shape.

    Who only looks (GET) is let in also while the server is full or drains.
    """

    def __init__(self, answer: Answer, gate: Gate, room: Room, settings: Settings, clock: Clock) -> None:
        self._answer = answer
        self._gate = gate
        self._room = room
        self._settings = settings
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, to its last byte."""
        try:
            with self._entered(scope) as service, self._room.share() as share:
                context = self._context(service, scope, share)
                response = await self._response(context, Request(scope, receive))
                if isinstance(response, EventStream):  # minds its own time, piece by piece
                    await response(scope, receive, send)
                else:  # may have to wait behind what this client has not read of an earlier answer
                    limit_s = self._settings.write_s
                    await watched(response(scope, receive, send), self._clock.sleep, limit_s)
        except Refusal as refusal:
            log_refusal(scope, refusal)
            await refusal.response()(scope, receive, send)
        except ClientLeft:
            pass
        except Exception:
            _log.exception("an answer could not be written")
            raise  # so that the connection is closed

    async def _response(self, context: Context, request: Request) -> Response:
        try:
            return await self._answer(context, request)
        except (ClientLeft, Refusal):
            raise
        except Exception as error:
            raise Refusal.of(error) from None

    def _entered(self, scope: Scope) -> contextlib.AbstractContextManager[Service]:
        if scope["method"] == "POST":
            return self._gate.entered()
        return contextlib.nullcontext(self._gate.service)

    def _context(self, service: Service, scope: Scope, share: Share) -> Context:
        clock, key = self._clock, scope.get(KEY, "")
        return Context(service, self._settings, clock.started, clock.now, clock.sleep, share, key)


class Clock:
    """The time of day, and waiting; a test has its own."""

    def __init__(self, now: Callable[[], float] = time.time, sleep: Sleep = asyncio.sleep) -> None:
        self.now = now
        self.sleep = sleep
        self.started = int(now())


def make_app(serving: Service | Gate, settings: Settings, *, clock: Clock | None = None) -> Starlette:
    """Return the application.

    Parameters
    ----------
    serving
        The service, or a gate behind which it will be once it is loaded.
    settings
        Limits, keys, names.
    clock
        The time of day, by default the real one.
    """
    gate = serving if isinstance(serving, Gate) else gate_of(settings)
    if not isinstance(serving, Gate):
        gate.open(serving)
    clock = clock or Clock()
    middleware = [Middleware(Guard, settings=settings)]
    if settings.cors:
        middleware.insert(
            0,
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.cors),
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
            ),
        )

    async def healthy(_request: Request) -> Response:
        return health(gate)

    async def measured(_request: Request) -> Response:
        return scrape(gate)

    routes = [
        Route("/health", healthy, methods=["GET"]),
        Route("/metrics", measured, methods=["GET"]),
    ]
    room = Room(settings.most_bodies_bytes)
    routes += [
        Route(path, Endpoint(answer, gate, room, settings, clock), methods=[method])
        for path, method, answer in ASKED
    ]
    return Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={HTTPException: _refused},  # type: ignore[dict-item]
    )


def gate_of(settings: Settings) -> Gate:
    """Return a gate that lets in what can run or wait, and no more."""
    return Gate(settings.most_running + settings.most_waiting)


async def _refused(request: Request, error: HTTPException) -> Response:
    """Answer for a path that does not exist, or another method than its own."""
    if error.status_code == 404:
        refusal = Refusal(404, f"there is no {request.url.path[:80]}; see docs/server.md", code="unknown_url")
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow")
        refusal = Refusal(
            405,
            f"{request.method} is not allowed for {request.url.path[:80]}; use {allowed}",
            code="method_not_allowed",
        )
    else:
        refusal = Refusal(error.status_code, str(error.detail))
    refusal.headers |= dict(error.headers or {})
    return refusal.response()
