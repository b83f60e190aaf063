"""Pulling a model by the name of its repository: asking what there is, choosing, fetching every file."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from pilotfish.errors import HubError, OfflineError
from pilotfish.hub import from_hub, hf_cache
from pilotfish.hub.cache import check_room, locked
from pilotfish.hub.fetching import fetch_checked, is_right
from pilotfish.hub.listing import Repository, ask_for, explained
from pilotfish.hub.names import HUB, HubName
from pilotfish.hub.progress import in_megabytes
from pilotfish.hub.pulled import HubPart, Pulled, pulled
from pilotfish.hub.quants import Choice, choose, listed, tag_of
from pilotfish.hub.web import HubRefused, HubUnreachable, endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pilotfish.hub.found import Found
    from pilotfish.hub.partial import Partial
    from pilotfish.hub.progress import Progress


class Here(Choice, Protocol):
    """A model of a repository that is on this machine."""

    def found(self) -> Found:
        """Return where it is."""
        ...


def find_here(name: HubName) -> Found | None:
    """Return the model if it is on this machine: in our cache, or in Hugging Face's own.

    Without a quantization it is the one that `choose` takes of those that are here.

    Raises
    ------
    HubError
        Several of those that are here fit.
    """
    stores: tuple[Sequence[Here], ...] = (pulled(name.repo), hf_cache.models(name.repo))
    for here in filter(None, stores):
        try:
            return choose(here, name.quant, name.repo).found()
        except HubError:
            if name.quant is None:
                raise
    return None


def pull_model(name: HubName, *, offline: bool, progress: Progress) -> Path:
    """Bring a model of a repository into the cache, and return its (first) file.

    One that is named with its quantization and is here already is not asked for again.

    Raises
    ------
    OfflineError
        It is not here, and no network, or none wanted.
    ChecksumError
        What was fetched is not what the hub promised; it was removed.
    HubError
        There is no such repository or model, it may not be read, or the connection keeps breaking.
    CacheError
        The cache can't be written, or the disk is or would be full. What was fetched is kept.
    """
    here = find_here(name) if name.quant is not None or offline else None
    if here is not None:
        progress.message(f"{here.name} is here already: {here.path}")
        return here.usable()
    if offline:
        raise OfflineError(
            f"{name} is not in the cache, and offline is wanted", f"online, type: pilotfish pull {name}"
        )
    try:
        repository = ask_for(name.repo)
    except HubUnreachable as error:
        raise OfflineError(
            f"{name} is not in the cache, and {error.message}", f"with a network, type: pilotfish pull {name}"
        ) from error
    model = _chosen(repository, name, progress)
    with locked(model.parts[0], progress):
        if any(other.offered == model.offered for other in pulled(name.repo)):
            progress.message(f"{model.name} is here already: {model.path}")
        else:
            _fetch(model, progress)
    return model.path


def _chosen(repository: Repository, name: HubName, progress: Progress) -> Pulled:
    offered = choose(repository.models, name.quant, name.repo)
    tag = tag_of(offered, repository.models)
    if name.quant is None and len(repository.models) > 1:
        progress.message(
            f"no quantization is named, so {tag}; {HUB}{name.repo} has {listed(repository.models)}"
        )
    for part in offered.parts:
        if not part.sha256:
            raise HubError(
                f"the hub states no SHA-256 of {part.path}, so that it can't be checked",
                "fetch it yourself, and give its path",
            )
    model = Pulled(name.repo, tag, repository.revision, repository.licence, offered)
    files = f" in {len(model.parts)} files" if len(model.parts) > 1 else ""
    licence = repository.licence or "not stated"
    family = f"family {repository.family}, " if repository.family else ""
    progress.message(f"{model.name}: {family}licence {licence}, {in_megabytes(model.size)}{files}")
    return model


def _fetch(model: Pulled, progress: Progress) -> None:
    """Fetch what is missing, then note that the model is there; its lock is held."""
    with contextlib.suppress(OSError):
        model.record.unlink()  # of an older version, whose files are replaced now
    missing = [part for part in model.parts if not is_right(part, progress)]  # of an interrupted pull
    progress.message(f"from {endpoint()}/{model.repo}, commit {model.revision}")
    for index, part in enumerate(missing):
        later = sum(other.size for other in missing[index + 1 :])

        def fetch(partial: Partial, part: HubPart = part, later: int = later) -> None:
            check_room(part, partial.size, later)
            url = from_hub.url_of(model.repo, model.revision, part.name)
            try:
                from_hub.fetch(part, url, partial, progress)
            except HubRefused as error:
                raise explained(error, model.repo) from None

        fetch_checked(part, fetch, progress)
    model.write_record()
