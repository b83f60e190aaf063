"""Ctrl-C, SIGTERM and SIGHUP, from the process's first line to its last: an exit code, never a traceback.

While a command runs, a signal raises: KeyboardInterrupt, or `Terminated`, so that files are closed and what
was begun is put in order. Before and after, while Python imports or is on its way out, the process ends at
once.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

CODE = 128
"""Exit code of a process that a signal ended is this and the signal's number, by convention of shells."""

_raises = False


class Terminated(BaseException):
    """Somebody wants this process to end.

    Parameters
    ----------
    number
        Of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = CODE + number


def handle() -> None:
    """Take over the signals of this process; those that its parent had ignored, as `nohup` does, stay so."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Let signals raise within the block."""
    global _raises  # noqa: PLW0603 - signals are the process's, too
    _raises = True
    try:
        yield
    finally:
        _raises = False


def _end(number: int, _frame: FrameType | None) -> None:
    if not _raises:
        os._exit(CODE + number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(number)
