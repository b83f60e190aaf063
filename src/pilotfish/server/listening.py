"""The HTTP server itself, in a thread of its own, so that the main thread loads models and hears signals."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from typing import TYPE_CHECKING, Self

import uvicorn

from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from starlette.types import ASGIApp

GRACE_S = 5.0
"""Seconds that answers whose requests were ended have to be written out."""

LOOK_S = 0.5
"""Seconds between two looks at whether a signal has come."""


class Address:
    """Where to listen; the port is taken at once, so that two servers don't load a model each.

    Parameters
    ----------
    host
        A name or an address; `0.0.0.0` and `::` are all of the machine's.
    port
        0 takes one that is free.

    Raises
    ------
    UsageError
        There is no such host, or the port is taken or not allowed.
    """

    def __init__(self, host: str, port: int) -> None:
        if not 0 <= port < 1 << 16:
            raise UsageError(f"port is {port}", "it is from 0 to 65535")
        try:
            family, kind, proto, _, place = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self.socket = socket.socket(family, kind, proto)
        except (OSError, UnicodeError) as error:
            raise UsageError(f"host is {host[:80]!r}: {error}", "give a name or an address") from error
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(place)
            self.socket.listen(1024)
        except OSError as error:
            self.socket.close()
            raise UsageError(
                f"can't listen on {host} port {port}: {error.strerror or error}", "take another --port"
            ) from error
        self.host, self.port = self.socket.getsockname()[:2]

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback

    @property
    def url(self) -> str:
        """What a client here connects to."""
        host = self.host
        if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class Listening:
    """Serves an application at an address, in a thread; a context manager."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        for name in ("uvicorn", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what went wrong is logged where it does
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,  # type: ignore[arg-type]  # passed on to asyncio
        )
        self._address = address
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([address.socket],), name="pilotfish http", daemon=True
        )
        self._thread.start()

    def wait(self, needed: Callable[[], bool] = lambda: True) -> None:
        """Wait until the thread, which does not end by itself, does or is not `needed`; signals are heard."""
        while self._thread.is_alive() and needed():
            self._thread.join(LOOK_S)  # a signal that another thread has taken does not wake this one

    def close(self, *, at_once: bool = False) -> None:
        """End it; unless `at_once`, what is being written has a short time to end."""
        self._server.should_exit = True
        self._server.force_exit = self._server.force_exit or at_once
        self._thread.join(GRACE_S + 10)
        if not self._thread.is_alive():
            self._address.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
