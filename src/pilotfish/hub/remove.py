"""Removing models from our own cache; what other programs keep is never touched."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pilotfish.errors import HubError, UsageError
from pilotfish.hub import hf_cache, pulled
from pilotfish.hub.cache import as_cache_error, cache_dir, final_path, locked_path
from pilotfish.hub.names import HUB, LLAMA_CPP, OLLAMA, HubName, read_hub_name
from pilotfish.hub.pulled import Pulled
from pilotfish.hub.quants import choose, listed, quant_of
from pilotfish.hub.registry import REGISTRY, Entry, entry_of, find


@dataclass(frozen=True, slots=True)
class Removal:
    """What removing a model would delete.

    Attributes
    ----------
    name
        The model.
    files
        Files in our cache, in the order in which they are to go.
    locks
        Lock files that a running pull would hold.
    """

    name: str
    files: tuple[Path, ...]
    locks: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Bytes that will be free."""
        return sum(_size(path) for path in self.files)

    def carry_out(self) -> int:
        """Delete the files; return the bytes freed. Answers that use them now go on.

        Raises
        ------
        CacheError
            A pull of the model is running, or the system refuses.
        """
        freed = 0
        with contextlib.ExitStack() as held:
            for lock in self.locks:
                held.enter_context(locked_path(lock, self.name, None))
            for path in self.files:
                size = _size(path)
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise as_cache_error(error, path) from error
                freed += size
        return freed


def removal(name: str) -> Removal:
    """Find what removing a model would delete: its files, and what a pull of it that broke off left.

    Parameters
    ----------
    name
        Registry name, or `hf:org/repo[:quant]`; the quantization may be left out if only one is there.

    Raises
    ------
    UsageError
        A file of the user's or a model of another program, or a name that makes no sense.
    UnknownModel
        No such name.
    HubError
        It is not in our cache, or several models fit.
    """
    if name.startswith((OLLAMA, LLAMA_CPP)):
        raise UsageError(
            f"{name[:100]} belongs to another program", "remove it there; rm frees only our own cache"
        )
    if name.startswith(HUB):
        hub_name = read_hub_name(name)
        entry = entry_of(hub_name)
        return _of_repository(hub_name) if entry is None else _of_entry(entry)
    # os.path takes any text; pathlib raises on names that are too long, and on homes of unknown users.
    if name not in REGISTRY and os.path.exists(os.path.expanduser(name)):  # noqa: PTH110, PTH111
        raise UsageError(f"{name[:300]} is a path", "delete it yourself; rm takes names of models")
    return _of_entry(find(name))


def _of_entry(entry: Entry) -> Removal:
    path = final_path(entry)
    files = _there(path, path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json"))
    if not files:
        raise _absent(entry.name)
    return Removal(entry.name, files, (path.with_name(f"{path.name}.lock"),))


def _of_repository(name: HubName) -> Removal:
    locks = tuple(pulled.locks(name.repo))
    here = pulled.pulled(name.repo)
    left = tuple(pulled.leftovers(name.repo))
    if name.quant is None and len(here) > 1:
        raise HubError(
            f"several models of {name.repo} are here", f"name one of: {listed(here)}, or remove each"
        )
    if name.quant is None:
        files = (*(file for model in here for file in _files_of(model)), *left)
    else:
        try:
            files = tuple(_files_of(choose(here, name.quant, name.repo)))
        except HubError:
            files = tuple(path for path in left if quant_of(_plain_name(path)) == name.quant.upper())
    if not files:
        raise _absent(str(name), listed(here), elsewhere=bool(hf_cache.models(name.repo)))
    return Removal(str(name), files, locks)


def _files_of(model: Pulled) -> Iterable[Path]:
    """Yield the record first: without it the model is not there."""
    yield model.record
    for part in model.parts:
        yield cache_dir() / part.file


def _plain_name(path: Path) -> str:
    """Return the name of the model's file that a file of our cache is about."""
    return path.name.partition(".gguf")[0] + ".gguf"


def _there(*paths: Path) -> tuple[Path, ...]:
    return tuple(path for path in paths if path.is_file())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _absent(name: str, others: str = "", *, elsewhere: bool = False) -> HubError:
    if elsewhere:
        return HubError(f"{name} is not in our cache but in Hugging Face's own", "remove it with hf cache")
    return HubError(f"{name} is not in the cache", f"there: {others}" if others else "see: pilotfish models")
