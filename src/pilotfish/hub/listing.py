"""What a repository of the hub has: models' files, with sizes and checksums as the hub's API states them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pilotfish.errors import HubError
from pilotfish.hub.names import is_plain
from pilotfish.hub.offered import Offered, RepoFile, models_among
from pilotfish.hub.web import HubRefused, endpoint, get_json

_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MOST_BYTES = 1 << 44


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at one commit.

    Attributes
    ----------
    repo
        `organisation/name`.
    revision
        The commit, so that all files are of one version whatever is changed in between; `main` if unknown.
    licence
        As the publisher states it; may be empty.
    family
        `general.architecture` of its models, as the hub read it; may be empty.
    models
        What can be had.
    """

    repo: str
    revision: str
    licence: str
    family: str
    models: tuple[Offered, ...]


def ask_for(repo: str) -> Repository:
    """Ask the hub what a repository has.

    Names that would not do as names of files are left out: a listing is made by strangers.

    Raises
    ------
    HubUnreachable
        The hub gives no answer.
    HubError
        There is no such repository, it may not be read, or the answer makes no sense.
    """
    url = f"{endpoint()}/api/models/{repo}?blobs=true"
    try:
        answer = get_json(url)
    except HubRefused as error:
        raise explained(error, repo) from None
    if not isinstance(answer, Mapping) or not isinstance(answer.get("siblings"), list):
        raise HubError(f"{url}: the hub's answer lists no files", "check HF_ENDPOINT")
    files = [file for item in answer["siblings"] if (file := _file(item)) is not None]
    commit = answer.get("sha")
    return Repository(
        repo,
        commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else "main",
        _word(answer.get("cardData"), "license"),
        _word(answer.get("gguf"), "architecture"),
        models_among(files),
    )


def explained(error: HubRefused, repo: str) -> HubRefused:
    """Say what a refusal means; the hub answers 401 also for what is not there, so as not to tell."""
    page = f"{endpoint()}/{repo}"
    if error.code == "GatedRepo" or (error.status == 403 and not error.code):
        message = f"{repo} is gated: the hub answers {error.status}"
        hint = f"accept its terms at {page}, and set HF_TOKEN to a token of that account"
    elif error.status in {401, 404} and error.code in {"RepoNotFound", ""}:
        message = f"the hub has no repository {repo}, or it is private: it answers {error.status}"
        hint = "check the name; for a private one set HF_TOKEN"
    else:
        return error
    return HubRefused(message, hint, error.status, error.code)


def _file(item: object) -> RepoFile | None:
    """Read one entry of the listing, None if it is not a model's file or is not to be trusted."""
    if not isinstance(item, Mapping):
        return None
    path, lfs = item.get("rfilename"), item.get("lfs")
    if not isinstance(path, str) or not path.endswith(".gguf") or not is_plain(path):
        return None
    large: Mapping[object, object] = lfs if isinstance(lfs, Mapping) else {}
    size = large.get("size", item.get("size"))
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _MOST_BYTES:
        return None
    sha256 = large.get("sha256")
    known = isinstance(sha256, str) and _SHA256.fullmatch(sha256)
    return RepoFile(path, size, str(sha256) if known else "")


def _word(table: object, key: str) -> str:
    value = table.get(key) if isinstance(table, Mapping) else None
    return value if isinstance(value, str) and len(value) <= 100 and value.isprintable() else ""
