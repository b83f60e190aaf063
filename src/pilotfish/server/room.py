"""How much memory the bodies of requests may take together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Room:
    """Bytes of the bodies of all requests that are being read or answered; used on one event loop.

    Parameters
    ----------
    most
        There are no more at any time.

    Attributes
    ----------
    taken
        Bytes now.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    @contextlib.contextmanager
    def share(self) -> Iterator[Share]:
        """Give a request a share, which is empty, and take it back in the end."""
        share = Share(self)
        try:
            yield share
        finally:
            share.empty()


class Share:
    """What one request has of a room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._bytes = 0

    def grow(self, count: int) -> bool:
        """Take so many bytes more, if there is room for them, and return whether there is."""
        if self._room.taken + count > self._room.most:
            return False
        self._room.taken += count
        self._bytes += count
        return True

    def empty(self) -> None:
        """Give back all of it."""
        self._room.taken -= self._bytes
        self._bytes = 0
