"""From what the user calls a model to its file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pilotfish.errors import HubError, OfflineError, UsageError
from pilotfish.hub.cache import cached_path, final_path
from pilotfish.hub.pull import offline_wanted
from pilotfish.hub.registry import REGISTRY, Entry, find


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model file and what it is called.

    Attributes
    ----------
    path
        The file, which exists.
    name
        The registry name, or the file's name without its ending.
    entry
        The registry's entry, None for a file of one's own.
    """

    path: Path
    name: str
    entry: Entry | None


def resolve(model: str, *, offline: bool = False) -> ModelRef:
    """Find the file of a model; nothing is fetched.

    Parameters
    ----------
    model
        Path of a file, or a registry name. A file of that path goes first.
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
    """
    if not model:
        raise UsageError("the model's name is empty", f"give a path or one of: {', '.join(REGISTRY)}")
    # os.path takes any text; pathlib raises on names that are too long, and on homes of unknown users.
    path = Path(os.path.expanduser(model))  # noqa: PTH111
    is_folder = os.path.isdir(path)  # noqa: PTH112
    if os.path.isfile(path):  # noqa: PTH113
        entry = _entry_of(path)
        return ModelRef(path, entry.name if entry else path.stem, entry)
    if model.startswith("hf:"):
        raise HubError(
            f"{model[:300]}: models of the hub outside the registry can't be pulled yet",
            f"fetch the file and give its path, or use one of: {', '.join(REGISTRY)}",
        )
    if model not in REGISTRY and (is_folder or os.sep in model or model.endswith(".gguf")):
        if is_folder:
            raise UsageError(f"{model} is a folder", "give the path of a .gguf file")
        raise HubError(
            f"there is no file {model[:300]}",
            f"give the path of a .gguf file, or one of: {', '.join(REGISTRY)}",
        )
    entry = find(model)
    cached = cached_path(model)
    if cached is not None:
        return ModelRef(cached, model, entry)
    if offline or offline_wanted():
        raise OfflineError(f"{model} is not in the cache", f"online, type: pilotfish pull {model}")
    raise HubError(f"{model} is not in the cache", f"type: pilotfish pull {model}")


def _entry_of(path: Path) -> Entry | None:
    """Return the entry whose file in the cache this is."""
    for entry in REGISTRY.values():
        if cached_path(entry.name) is not None and path.samefile(final_path(entry)):
            return entry
    return None
