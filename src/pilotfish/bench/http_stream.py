"""A small HTTP client for measuring servers: it streams events, takes times, and can leave at any moment.

One connection a request, over h11, which uvicorn brings. Other clients are heavier than what they would
measure, and none of them can be told exactly when to hang up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and what it wants to be told.

    Attributes
    ----------
    key
        API key, or None.
    """

    host: str
    port: int
    key: str | None = None

    @classmethod
    def of(cls, url: str, key: str | None = None) -> Address:
        """Read `http://HOST:PORT`, with anything behind it."""
        parts = urlsplit(url)
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, key)


class HttpError(Exception):
    """A server that did not answer as it should: no connection, a status, or an end in the middle."""


class Response:
    """An answer that arrives: iterate over its pieces; leaving the block closes the connection.

    Attributes
    ----------
    status
        HTTP status.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status = 0
        self._reader, self._writer = reader, writer
        self._wire = h11.Connection(our_role=h11.CLIENT)

    async def send(self, address: Address, method: str, path: str, body: bytes) -> None:
        """Send a whole request."""
        headers = [("Host", f"{address.host}:{address.port}"), ("Connection", "close")]
        if address.key is not None:
            headers.append(("Authorization", f"Bearer {address.key}"))
        if body:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        request = h11.Request(method=method, target=path, headers=headers)
        parts = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        self._writer.write(b"".join(self._wire.send(part) or b"" for part in parts))
        await self._writer.drain()

    async def head(self) -> int:
        """Wait for the status, and return it."""
        while not isinstance(event := await self._next(), h11.Response):
            pass
        self.status = event.status_code
        return self.status

    async def must_be_200(self) -> None:
        """Wait for the status; one that is not 200 is an HttpError with the beginning of what was said."""
        if await self.head() != 200:
            said = (await self.read())[:500].decode(errors="replace")
            raise HttpError(f"status {self.status}: {said}")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        if not self.status:
            await self.head()
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def events(self) -> AsyncIterator[str]:
        """Yield the data of server-sent events up to `[DONE]`; comments, which keep it alive, are left out.

        Raises
        ------
        HttpError
            The stream ended without `[DONE]`.
        """
        rest = b""
        async for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    data = line[5:].strip().decode()
                    if data == "[DONE]":
                        return
                    yield data
        raise HttpError("the stream ended without [DONE]")

    async def _next(self) -> object:
        """Return the next event of the connection, waiting for more bytes if need be."""
        try:
            while (event := self._wire.next_event()) is h11.NEED_DATA:
                self._wire.receive_data(await self._reader.read(CHUNK))
        except h11.RemoteProtocolError as error:
            raise HttpError(f"the server broke off: {error}") from error
        return event


@contextlib.asynccontextmanager
async def request(
    address: Address, path: str, body: Mapping[str, Any] | None = None
) -> AsyncIterator[Response]:
    """Open a connection and send a request: GET, or POST with a body as JSON.

    However the block is left, the connection ends with it at once, so leaving early is hanging up.

    Raises
    ------
    HttpError
        There is no connection, or the server broke it off.
    """
    sent = b"" if body is None else json.dumps(body).encode()
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            response = Response(reader, writer)
            await response.send(address, "GET" if body is None else "POST", path, sent)
            yield response
        finally:
            writer.transport.abort()
    except OSError as error:
        raise HttpError(f"no connection to {address.host}:{address.port}: {error}") from error


async def fetch(address: Address, path: str, body: Mapping[str, Any] | None = None) -> bytes:
    """Return the body of an answer.

    Raises
    ------
    HttpError
        There is none, or its status is not 200.
    """
    async with request(address, path, body) as response:
        said = await response.read()
        if response.status != 200:
            raise HttpError(
                f"{path} was answered with {response.status}: {said[:500].decode(errors='replace')}"
            )
        return said
