"""Names of the files of a model that is split into several: `STEM-00001-of-00003.gguf` and so on.

The naming is llama.cpp's (`llama-gguf-split`); what the files have to say of each other is checked where they
are read, in `engines.native.container`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the files: what all names begin with, its number (from 1), and how many there are."""

    stem: str
    number: int
    count: int

    def name(self, number: int) -> str:
        """Return the name of the file of this number."""
        return f"{self.stem}-{number:05d}-of-{self.count:05d}.gguf"


def shard_of(name: str) -> Shard | None:
    """Read the name of a file, None if it is not that of a split model's file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    shard = Shard(found["stem"], int(found["number"]), int(found["count"]))
    return shard if 1 <= shard.number <= shard.count else None


def shard_paths(path: Path) -> list[Path]:
    """Return the files of the model that a file belongs to, in order; they need not exist."""
    shard = shard_of(path.name)
    if shard is None:
        return [path]
    return [path.with_name(shard.name(number)) for number in range(1, shard.count + 1)]
