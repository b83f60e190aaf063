"""A model that is on this machine, wherever."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pilotfish.errors import PilotfishError

OURS, HUGGING_FACE, OLLAMA_STORE, LLAMA_CPP_STORE = "pilotfish", "huggingface", "ollama", "llama.cpp"
"""Whose folder it is in; only ours is ever written to."""


@dataclass(frozen=True, slots=True)
class Found:
    """A model in some store.

    Attributes
    ----------
    name
        What `-m` takes.
    store
        Whose folder it is in.
    path
        Its file, of a split model the first; None if it can't be used.
    size
        Bytes of all its files.
    sha256
        Of its file, as the store states it; empty if it does not, or if there are several files.
    problem
        Why it can't be used; None if it can.
    """

    name: str
    store: str
    path: Path | None = None
    size: int = 0
    sha256: str = ""
    problem: PilotfishError | None = None

    def usable(self) -> Path:
        """Return the path; raise the problem if there is one."""
        if self.path is None:
            assert self.problem is not None
            raise self.problem
        return self.path


def read_small(path: Path, most_bytes: int) -> bytes:
    """Read a small file of someone else's, which may be anything.

    Raises
    ------
    OSError
        It can't be read, is no regular file (a pipe would be waited for), or is larger.
    """
    if not path.is_file():
        raise OSError("it is no regular file")
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(f"it has more than {most_bytes} bytes")
    return data
