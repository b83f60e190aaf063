"""From what the user calls a model to its file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.errors import HubError, OfflineError, UnknownModel, UsageError
from pilotfish.hub import llama_cpp, ollama
from pilotfish.hub.cache import cached_path, final_path
from pilotfish.hub.from_repository import find_here
from pilotfish.hub.names import HUB, LLAMA_CPP, OLLAMA, read_hub_name
from pilotfish.hub.pull import offline_wanted
from pilotfish.hub.registry import REGISTRY, Entry, entry_of, entry_of_file, find
from pilotfish.shards import shard_of

if TYPE_CHECKING:
    from pilotfish.hub.found import Found


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model file and what it is called.

    Attributes
    ----------
    path
        The file, which exists; of a split model the first.
    name
        What the user may call it, or the file's name without its ending.
    entry
        The registry's entry of this very file, None for others.
    stated
        The file's SHA-256 as its store states it; empty if it does not.
    """

    path: Path
    name: str
    entry: Entry | None
    stated: str = ""

    @property
    def sha256(self) -> str:
        """The file's SHA-256 if it is known without reading the file, else empty."""
        return self.stated if self.entry is None else self.entry.sha256


def resolve(model: str, *, offline: bool = False) -> ModelRef:
    """Find the file of a model; nothing is fetched.

    Parameters
    ----------
    model
        Path of a file; a registry name; `hf:org/repo[:quant]`, in our cache or in Hugging Face's own;
        `ollama:NAME[:TAG]` or `llama.cpp:FILE`, in those programs' folders. A file of that path goes first.
    offline
        No network is wanted, which only changes the error.

    Raises
    ------
    UsageError
        An empty name, or a folder.
    UnknownModel
        Neither a file nor a name.
    HubError
        No such file; or a name that is not in the cache, with the command that brings it there.
    OfflineError
        The same, offline.
    ModelError
        A manifest of Ollama's that makes no sense, or that asks for what is not supported.
    """
    if not model:
        raise UsageError("the model's name is empty", f"give a path or one of: {', '.join(REGISTRY)}")
    # os.path takes any text; pathlib raises on names that are too long, and on homes of unknown users.
    path = Path(os.path.expanduser(model))  # noqa: PTH111
    is_folder = os.path.isdir(path)  # noqa: PTH112
    if os.path.isfile(path):  # noqa: PTH113
        return _of_file(path)
    if model.startswith(OLLAMA):
        return _of_found(ollama.find(model))
    if model.startswith(LLAMA_CPP):
        return _of_found(_in_llama_cpp(model))
    if model.startswith(HUB):
        return _of_hub(model, offline=offline or offline_wanted())
    if model not in REGISTRY and (is_folder or os.sep in model or model.endswith(".gguf")):
        if is_folder:
            raise UsageError(f"{model} is a folder", "give the path of a .gguf file")
        raise HubError(
            f"there is no file {model[:300]}",
            f"give the path of a .gguf file, or one of: {', '.join(REGISTRY)}",
        )
    return _of_entry(find(model), model, offline=offline or offline_wanted())


def _of_file(path: Path) -> ModelRef:
    entry = _entry_of(path)
    if entry is not None:
        return ModelRef(path, entry.name, entry)
    shard = shard_of(path.name)
    first = path if shard is None else path.with_name(shard.name(1))
    if shard is None or not first.is_file():
        return ModelRef(path, path.stem, None)
    return ModelRef(first, shard.stem, None)


def _of_found(found: Found) -> ModelRef:
    return ModelRef(found.usable(), found.name, entry_of_file(found.sha256), found.sha256)


def _of_hub(model: str, *, offline: bool) -> ModelRef:
    name = read_hub_name(model)
    entry = entry_of(name)
    if entry is not None and cached_path(entry.name) is not None:
        return _of_entry(entry, model, offline=offline)
    found = find_here(name)
    if found is not None:
        return _of_found(found)
    raise _not_cached(model, offline=offline)


def _of_entry(entry: Entry, model: str, *, offline: bool) -> ModelRef:
    cached = cached_path(entry.name)
    if cached is None:
        raise _not_cached(model, offline=offline)
    return ModelRef(cached, entry.name, entry)


def _not_cached(model: str, *, offline: bool) -> HubError:
    if offline:
        return OfflineError(f"{model} is not in the cache", f"online, type: pilotfish pull {model}")
    return HubError(f"{model} is not in the cache", f"type: pilotfish pull {model}")


def _in_llama_cpp(model: str) -> Found:
    there = llama_cpp.models()
    wanted = model.removesuffix(".gguf")
    for found in there:
        if found.name == wanted:
            return found
    names = ", ".join(found.name for found in there[:8])
    raise UnknownModel(
        f"{model[:300]} is not in llama.cpp's cache at {llama_cpp.folder()}",
        f"there: {names}" if names else "it is empty, or elsewhere: set LLAMA_CACHE",
    )


def _entry_of(path: Path) -> Entry | None:
    """Return the entry whose file in the cache this is."""
    for entry in REGISTRY.values():
        if cached_path(entry.name) is not None and path.samefile(final_path(entry)):
            return entry
    return None
