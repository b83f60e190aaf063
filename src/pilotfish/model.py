"""A model as the layers above see it: an engine, where it came from and, for a target, its text side."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.shards import shard_paths

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.engines.base import Engine
    from pilotfish.text.template import ChatTemplate
    from pilotfish.text.tokenizer import Tokenizer

_CHUNK = 1 << 20
_digests: dict[tuple[tuple[str, int, int], ...], str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An engine and where it came from.

    Attributes
    ----------
    name
        Registry name, or the file's name without its ending.
    engine
        What computes.
    path
        The file, of a split model the first; None if the engine needs none.
    checksum
        SHA-256 of the file if it is known already, else empty.
    isa, threads
        Instruction set and threads of the engine's passes, for reports.
    dispose
        Frees the engine.
    """

    name: str
    engine: Engine
    path: Path | None = None
    checksum: str = ""
    isa: str = "none"
    threads: int = 1
    dispose: Callable[[], None] = field(default=lambda: None)

    def sha256(self) -> str | None:
        """Return the file's SHA-256 as 64 hex digits, None if there is no file."""
        return self.checksum or (None if self.path is None else file_sha256(self.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel(Model):
    """A model that can be talked to: a target.

    Attributes
    ----------
    tokenizer
        What its tokens mean.
    template
        Its chat template, or None for a base model.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | None = None


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 as 64 hex digits; one that has not changed is read once a process.

    Of a model that is split into several files it is that of all their bytes, one file after the other.
    """
    paths = shard_paths(path)
    files = paths if all(one.is_file() for one in paths) else [path]
    states = [one.stat() for one in files]
    key = tuple(
        (str(one), status.st_size, status.st_mtime_ns) for one, status in zip(files, states, strict=True)
    )
    if key not in _digests:
        digest = hashlib.sha256()
        for one in files:
            with one.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
        _digests[key] = digest.hexdigest()
    return _digests[key]
