"""Who is let in: nobody while the model loads or the server drains; counts those who are inside."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pilotfish.server.refusals import RETRY_S, Refusal

if TYPE_CHECKING:
    from pilotfish.server.service import Service

LOADING, OPEN, DRAINING = "loading", "ok", "draining"


class Gate:
    """Closed until `open`; `drain` closes it for new requests and waits for those inside.

    `open` and `drain` may be called from any thread.

    Parameters
    ----------
    most
        Requests inside at most; those beyond are refused before their body is read.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._service: Service | None = None
        self._state = LOADING
        self._inside = 0
        self._changed = threading.Condition()

    @property
    def state(self) -> str:
        """`loading`, `ok` or `draining`."""
        return self._state

    @property
    def inside(self) -> int:
        """Requests that are being read, run, or answered."""
        return self._inside

    @property
    def service(self) -> Service:
        """The service.

        Raises
        ------
        Refusal
            503 while it is loading.
        """
        if self._service is None:
            raise self._closed("the model is being loaded")
        return self._service

    def open(self, service: Service) -> None:
        """Let requests in."""
        self._service = service
        self._state = OPEN

    def drain(self, seconds: float) -> bool:
        """Let nobody in any more, wait for those inside, and return whether all have left in time."""
        self._state = DRAINING
        with self._changed:
            return self._changed.wait_for(lambda: not self._inside, seconds)

    @contextlib.contextmanager
    def entered(self) -> Iterator[Service]:
        """Let a request in.

        Raises
        ------
        Refusal
            503 while loading or draining, 429 if there are too many.
        """
        service = self.service
        if self._state == DRAINING:
            raise self._closed("the server is shutting down")
        if not service.alive:
            raise self._closed("the thread that answers has ended")
        if self._inside >= self._most:
            raise Refusal.busy(f"{self._inside} requests are being answered already")
        with self._changed:
            self._inside += 1
        try:
            yield service
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def _closed(self, why: str) -> Refusal:
        return Refusal(503, f"{why}; try again later", "server_error", "unavailable", retry_s=RETRY_S)
