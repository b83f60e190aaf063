"""Fetching one file into the cache: it gets its name once its checksum was found right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.errors import ChecksumError
from pilotfish.hub.cache import as_cache_error, final_path
from pilotfish.hub.partial import Partial, sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pilotfish.hub.progress import Progress
    from pilotfish.hub.wanted import Wanted


def fetch_checked(wanted: Wanted, fetch: Callable[[Partial], None], progress: Progress) -> Path:
    """Fetch, check and name a file; start once more from nothing if an earlier try's bytes were wrong.

    Parameters
    ----------
    wanted
        The file; its lock is held.
    fetch
        Appends to a partial what is missing.
    progress
        Hears what is going on.

    Raises
    ------
    ChecksumError
        The bytes fetched are not those promised; they were removed.
    """
    with Partial(wanted) as partial:
        resumed = partial.size > 0
        fetch(partial)
        try:
            path = partial.finish(progress)
        except ChecksumError as error:
            if not resumed:
                raise
            progress.message(
                f"{error.message}; an earlier try's bytes may be to blame, so once more from nothing"
            )
            path = None
    if path is None:
        return fetch_checked(wanted, fetch, progress)
    progress.message(f"sha256 {wanted.sha256} is right: {path}")
    return path


def is_right(wanted: Wanted, progress: Progress) -> bool:
    """Tell whether the file is in the cache already; its bytes are read for that.

    Raises
    ------
    CacheError
        It is there and can't be read.
    """
    path = final_path(wanted)
    try:
        if not path.is_file() or path.stat().st_size != wanted.size:
            return False
        return sha256_of(path, wanted, progress) == wanted.sha256
    except OSError as error:
        raise as_cache_error(error, path) from error
