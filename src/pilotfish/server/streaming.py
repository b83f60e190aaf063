"""Server-sent events: framing, pings, clients that leave, clients that read slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import Response

from pilotfish.server.reading import ClientLeft
from pilotfish.server.refusals import Refusal

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from pilotfish.server.settings import Settings

T = TypeVar("T")
Sleep = Callable[[float], Coroutine[Any, Any, None]]

PING: Final = b": ping\n\n"
DONE: Final = b"data: [DONE]\n\n"
HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def frame(event: object, name: str | None = None) -> bytes:
    """Return an event as it is sent; `name` is its type, which OpenAI's older interfaces have not."""
    data = b"data: " + msgspec.json.encode(event) + b"\n\n"
    return data if name is None else b"event: " + name.encode() + b"\n" + data


async def left(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first(*futures: asyncio.Future[Any]) -> None:
    """Wait until one of them is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def unless_left(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; if the client leaves meanwhile, the work is cancelled.

    Raises
    ------
    ClientLeft
        It left.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(left(receive))
    try:
        await _first(task, gone)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def watched(
    sending: Awaitable[None], sleep: Sleep, limit_s: float, *gone: asyncio.Future[None]
) -> None:
    """Send; a client that takes nothing for too long counts as one that has left.

    Raises
    ------
    ClientLeft
        It did, or one of `gone` is done.
    """
    task = asyncio.ensure_future(sending)
    await asyncio.sleep(0)  # mostly it is done then
    if not task.done():
        nap = asyncio.ensure_future(sleep(limit_s))
        try:
            await _first(task, nap, *gone)
            if not task.done():
                raise ClientLeft
        finally:
            nap.cancel()
            task.cancel()
    task.result()


class EventStream(Response):
    """A stream of frames, in the order in which they are yielded; then `[DONE]`, unless `done` is empty.

    The response begins with the first frame or the first ping, so what fails before that gets its proper
    status. A later error is an event, and the last one. While a client does not read, nothing is taken from
    `frames`.

    Parameters
    ----------
    frames
        Yields what is sent.
    leave
        Called once, at the end: whatever was asked for is not wanted any more.
    failed
        Makes the frame of an error.
    sleep
        `asyncio.sleep`, or a test's.
    """

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        settings: Settings,
        *,
        leave: Callable[[], None],
        done: bytes = DONE,
        failed: Callable[[Refusal], bytes] = lambda refusal: frame(refusal.body),
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(headers=HEADERS, media_type="text/event-stream")
        del self.headers["content-length"]
        self._frames = frames
        self._settings = settings
        self._leave = leave
        self._done = done
        self._failed = failed
        self._sleep = sleep
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it all.

        Raises
        ------
        Refusal
            What failed before anything was sent.
        ClientLeft
            The client has gone.
        """
        del scope
        gone = asyncio.ensure_future(left(receive))
        try:
            await self._run(send, gone)
        finally:
            gone.cancel()
            self._leave()

    async def _run(self, send: Send, gone: asyncio.Future[None]) -> None:
        try:
            while (piece := await self._next(send, gone)) is not None:
                await self._write(send, gone, piece)
            await self._write(send, gone, self._done)
        except ClientLeft:
            raise
        except Exception as error:
            refusal = Refusal.of(error)
            if not self._begun:
                raise refusal from None
            await self._write(send, gone, self._failed(refusal))
        await self._watched(send({"type": "http.response.body", "body": b"", "more_body": False}), gone)

    async def _next(self, send: Send, gone: asyncio.Future[None]) -> bytes | None:
        """Return the next frame, None at the end; send pings while there is none."""
        task = asyncio.ensure_future(anext(self._frames, None))
        try:
            while not task.done():
                nap = asyncio.ensure_future(self._sleep(self._settings.ping_s))
                await _first(task, nap, gone)
                nap.cancel()
                if gone.done():
                    raise ClientLeft
                if not task.done():
                    await self._write(send, gone, PING)
            return task.result()
        finally:
            task.cancel()

    async def _write(self, send: Send, gone: asyncio.Future[None], body: bytes) -> None:
        if not self._begun:
            self._begun = True
            start: MutableMapping[str, Any] = {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
            await self._watched(send(start), gone)
        if body:
            message = {"type": "http.response.body", "body": body, "more_body": True}
            await self._watched(send(message), gone)

    async def _watched(self, sending: Awaitable[None], gone: asyncio.Future[None]) -> None:
        await watched(sending, self._sleep, self._settings.write_s, gone)
