"""The thread that a scheduler runs in."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from pilotfish.serving.scheduler import Scheduler

_log = logging.getLogger(__name__)


class Worker:
    """Makes a scheduler's passes while there is something to do, and waits otherwise; a context manager."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._thread = threading.Thread(target=self._run, name="pilotfish scheduler", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def drain(self, timeout_s: float | None = None) -> bool:
        """Take no more requests, and wait until all have ended, which ends the thread.

        Returns
        -------
            Whether they have within `timeout_s` seconds; `close` ends those that are left.
        """
        self.scheduler.drain()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """End all requests and the thread, after the pass under way; closing twice does nothing."""
        self.scheduler.shut()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self.scheduler.wait():
                try:
                    self.scheduler.step()
                except Exception as error:
                    _log.exception("a step failed; the requests that ran end, others go on")
                    self.scheduler.fail(error)
        finally:
            self.scheduler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
