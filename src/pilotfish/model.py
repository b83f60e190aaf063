"""A model as the layers above see it: an engine, where it came from and, for a target, its text side."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.engines.base import Engine
    from pilotfish.text.template import ChatTemplate
    from pilotfish.text.tokenizer import Tokenizer

_digests: dict[tuple[str, int, int], str] = {}


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
        The file; None if the engine needs none.
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
    """Return a file's SHA-256 as 64 hex digits; one that has not changed is read once a process."""
    status = path.stat()
    key = (str(path), status.st_size, status.st_mtime_ns)
    if key not in _digests:
        with path.open("rb") as file:
            _digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _digests[key]
