"""What passes cost on this machine, and what guesses were worth, remembered between processes.

One small file in the cache folder holds it for the models last used. It is worth a few steps, never an error:
what can't be read, or makes no sense, is measured anew; what can't be written is not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.hub.cache import cache_dir
from pilotfish.processor import cpu_name

if TYPE_CHECKING:
    from pilotfish.costs import Costs
    from pilotfish.drafters.beliefs import Beliefs
    from pilotfish.model import Model

FILE = "costs.json"

BELIEFS = "beliefs"
"""Where an entry has what guesses were worth."""

MOST = 64
"""Most entries kept; the oldest go first."""

LARGEST_BYTES = 1 << 20
"""A larger file is not ours."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The entry of some models on this machine.

    Attributes
    ----------
    key
        Names models, processor, instruction set, threads and version.
    path
        The file.
    """

    key: str
    path: Path

    @classmethod
    def of(cls, target: Model, draft: Model | None) -> Remembered:
        """Return the entry of a target and its draft model in the cache folder."""
        models = [_identity(target), "none" if draft is None else f"{_identity(draft)} {_read_bytes(draft)}"]
        parts = (*models, cpu_name(), target.isa, str(target.threads), _version())
        return cls(hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32], cache_dir() / FILE)

    def load(self, costs: Costs, beliefs: Beliefs) -> bool:
        """Restore what is remembered; return whether costs were."""
        entry = self._read().get(self.key)
        if not isinstance(entry, dict):
            return False
        with contextlib.suppress(ValueError):
            beliefs.restore(entry.get(BELIEFS))
        try:
            costs.restore(entry)
        except ValueError:
            return False
        return True

    def save(self, costs: Costs, beliefs: Beliefs) -> None:
        """Remember what was learned, if anything was, in place of what was remembered."""
        if not costs.target.passes:
            return
        entries = self._read()
        entries.pop(self.key, None)
        entries[self.key] = {**costs.as_dict(), BELIEFS: beliefs.as_dict()}
        kept = dict(list(entries.items())[-MOST:])
        with contextlib.suppress(OSError, ValueError):
            self._replace(json.dumps(kept, allow_nan=False))

    def _read(self) -> dict[str, Any]:
        try:
            with self.path.open("rb") as file:
                data = file.read(LARGEST_BYTES + 1)
            entries = json.loads(data) if len(data) <= LARGEST_BYTES else None
        except (OSError, ValueError, RecursionError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def _replace(self, text: str) -> None:
        """Write the file as a whole: who reads it meanwhile finds the old one or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{FILE}.", dir=self.path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise


def _identity(model: Model) -> str:
    """Return the checksum if it is known; else name, size and time of the file, which are read at once."""
    if model.checksum or model.path is None:
        return model.checksum or model.name
    try:
        status = model.path.stat()
    except OSError:
        return model.name
    return f"{model.path.name} {status.st_size} {status.st_mtime_ns}"


def _read_bytes(model: Model) -> object:
    """Return what one token reads: a slimmed draft model is another one."""
    return getattr(model.engine, "read_bytes", None)


def _version() -> str:
    try:
        return version("pilotfish")
    except PackageNotFoundError:
        return "unknown"
