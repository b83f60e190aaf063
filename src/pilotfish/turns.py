"""Taking turns on one engine: answers of several threads advance step by step, first come, first served."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Turns:
    """A fair lock, with a list of things to do once it is free.

    A plain lock would let the thread that just stepped take the next step too, and the others wait for long.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # on a re-entrant lock: `soon` may be called by a finalizer
        self._queue: deque[object] = deque()
        self._pending: deque[Callable[[], object]] = deque()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for those who came before, then let the block run alone."""
        ticket = object()
        try:
            with self._changed:
                self._queue.append(ticket)
                self._changed.wait_for(lambda: self._queue[0] is ticket)
            yield
        finally:
            with self._changed:
                try:
                    if self._queue and self._queue[0] is ticket:
                        self._do_pending()
                finally:  # a second Ctrl-C must not keep the turn for ever
                    with contextlib.suppress(ValueError):
                        self._queue.remove(ticket)
                    self._changed.notify_all()

    def soon(self, action: Callable[[], object]) -> None:
        """Do it now if nobody has a turn, else at the end of the turn; never waits."""
        with self._changed:
            self._pending.append(action)
            if not self._queue:
                self._do_pending()

    def _do_pending(self) -> None:
        while self._pending:
            self._pending.popleft()()
