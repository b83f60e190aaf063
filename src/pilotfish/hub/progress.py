"""How a pull says what it does; what is shown is the caller's choice."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO


class Progress(Protocol):
    """Listens to a pull.

    `start` and `finish` enclose one stretch of work, and may come several times; in a stretch that succeeds,
    `done_bytes` plus the sum of all `advance` is `total_bytes`. A `message` may come at any time.
    """

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """Begin a stretch of `total_bytes`, of which `done_bytes` were done earlier."""
        ...

    def advance(self, n: int) -> None:
        """Count `n` more bytes."""
        ...

    def message(self, text: str) -> None:
        """Take one line of text."""
        ...

    def finish(self) -> None:
        """End the stretch, whether done or given up."""
        ...


class SilentProgress:
    """Shows nothing."""

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """Do nothing."""

    def advance(self, n: int) -> None:
        """Do nothing."""

    def message(self, text: str) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class PlainProgress:
    """Writes whole lines: for logs, and terminals that want no control codes.

    A stretch has a line when a tenth was completed, but never two within `QUIET_S`; a short one has none.

    Parameters
    ----------
    stream
        Where to write; stderr by default.
    clock
        Seconds from any start.
    """

    QUIET_S = 2.0

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._label = ""
        self._total = 0
        self._done = 0
        self._tenth = 0
        self._written_s = 0.0

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """Note the size of the stretch; say where it goes on from."""
        self._label, self._total, self._done = label, total_bytes, done_bytes
        self._tenth = self._tenths()
        self._written_s = self._clock()
        if done_bytes:
            self.message(
                f"{label}: {in_megabytes(done_bytes)} of {in_megabytes(total_bytes)} are here already"
            )

    def advance(self, n: int) -> None:
        """Write a line if it is time."""
        self._done += n
        tenth = self._tenths()
        now = self._clock()
        if tenth > self._tenth and now - self._written_s >= self.QUIET_S:
            self._tenth, self._written_s = tenth, now
            done, total = in_megabytes(self._done), in_megabytes(self._total)
            self.message(f"{self._label}: {tenth * 10} % ({done} of {total})")

    def message(self, text: str) -> None:
        """Write the line."""
        print(text, file=self._stream or sys.stderr, flush=True)

    def finish(self) -> None:
        """Do nothing: what comes next says how it ended."""

    def _tenths(self) -> int:
        return self._done * 10 // max(self._total, 1)


def in_megabytes(size: int) -> str:
    """Write a number of bytes in megabytes of 10^6, as disks and package indexes do."""
    return f"{size / 1e6:,.1f} MB"
