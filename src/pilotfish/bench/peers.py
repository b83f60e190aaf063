"""Other implementations that run the same model file, to be timed beside ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pilotfish import memory
from pilotfish.errors import UsageError

LLAMA_CPP = "llama.cpp"
PEERS = (LLAMA_CPP,)

LLAMA_CPP_PACKAGE = "llama-cpp-python==0.3.36"
"""The interface below Python changes between versions; the extra `peers` and `make peers` name this one."""

INSTALL_LLAMA_CPP = (
    "type: make peers; or: CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-cache-dir "
    f"--no-binary llama-cpp-python {LLAMA_CPP_PACKAGE}"
)
"""Compiled here: the wheels that can be fetched are compiled for processors of long ago."""


class Peer(Protocol):
    """One sequence in another implementation, threads and cache type as ours."""

    @property
    def name(self) -> str:
        """Key of its curve in reports."""
        ...

    @property
    def version(self) -> str:
        """Which version of what is measured."""
        ...

    @property
    def build(self) -> str:
        """How it was compiled, in its own words."""
        ...

    def hold(self, tokens: Sequence[int]) -> None:
        """Put these tokens, and nothing else, into the cache."""
        ...

    def run(self, tokens: Sequence[int]) -> None:
        """Evaluate one pass behind the held tokens, with the logits of each of its tokens; timed."""
        ...

    def read(self, tokens: Sequence[int]) -> None:
        """Read a prompt into an empty cache as fast as it goes, without logits; timed."""
        ...

    def restore(self) -> None:
        """Hold again what `hold` was given; called after each `run` and `read`."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...


def check_peer(name: str) -> None:
    """Raise UsageError if a peer can't be measured; asked before a model is loaded.

    Raises
    ------
    UsageError
        An unknown name, or a package that is missing.
    """
    if name not in PEERS:
        raise UsageError(f"peer is {name!r}", f"known are: {', '.join(PEERS)}")
    if importlib.util.find_spec("llama_cpp") is None:
        raise UsageError(f"--peer {name} needs llama-cpp-python", INSTALL_LLAMA_CPP)


def open_peer(name: str, model: Path, *, room: int, threads: int) -> Peer:
    """Load a model file into a peer.

    Parameters
    ----------
    name
        One of `PEERS`.
    model
        The GGUF file that ours has loaded.
    room
        Most tokens that will be cached.
    threads
        Threads of a pass.

    Raises
    ------
    UsageError
        As `check_peer`, or a package that can't be imported.
    OutOfMemory
        No room for a second copy of the weights.
    EngineError
        The peer can't load the file.
    """
    check_peer(name)
    memory.check_room(f"a second copy of {model.name} for {name}", model.stat().st_size, memory.free_bytes())
    try:
        from pilotfish.bench.peer_llama_cpp import LlamaCpp  # noqa: PLC0415 - an extra
    except (ImportError, OSError, RuntimeError) as error:  # the last two: its library can't be loaded
        raise UsageError(f"llama-cpp-python can't be imported: {error}", INSTALL_LLAMA_CPP) from error
    return LlamaCpp(model, room=room, threads=threads)
