"""What the layers below a pull need to know of a file that is to be in the cache."""

from __future__ import annotations

from typing import Protocol


class Wanted(Protocol):
    """A file: an entry of the registry, or a file of some repository of the hub."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    @property
    def file(self) -> str:
        """Where it is in the cache, relative to the cache's folder."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def sha256(self) -> str:
        """Of the whole file, 64 lower-case hex digits."""
        ...
