"""Fetching from the Hugging Face hub: one file over HTTP, in ranges, so that it can go on after a break."""

from __future__ import annotations

import contextlib
import http.client
import urllib.parse
from typing import TYPE_CHECKING

from pilotfish.errors import ChecksumError, HubError
from pilotfish.hub.web import BREAKS, ask, endpoint, reason

if TYPE_CHECKING:
    from pilotfish.hub.partial import Partial
    from pilotfish.hub.progress import Progress
    from pilotfish.hub.wanted import Wanted

_NEWS_BYTES = 1 << 20
_CHUNK = 1 << 18
_COMMIT_BYTES = 32 << 20


def url_of(repo: str, revision: str, file: str) -> str:
    """Return the address of a repository's file."""
    return f"{endpoint()}/{repo}/resolve/{revision}/{urllib.parse.quote(file)}"


def fetch(wanted: Wanted, url: str, partial: Partial, progress: Progress) -> None:
    """Append to the partial what is missing of the file at an address.

    After a break the rest is asked for again, up to three times in a row without news. However this ends, the
    bytes that came are kept.

    Raises
    ------
    HubUnreachable
        No answer within `CONNECT_S`.
    ChecksumError
        The hub says that its file has other bytes; none was fetched.
    HubError
        The hub refuses, has a file of another size, or the connection keeps breaking.
    CacheError
        The disk is full or can't be written.
    """
    breaks = 0
    while partial.size < wanted.size:
        before = partial.size
        try:
            _fetch_rest(url, wanted, partial, progress)
        except (http.client.HTTPException, OSError) as error:
            breaks = 1 if partial.size - before >= _NEWS_BYTES else breaks + 1
            if breaks > BREAKS:
                raise HubError(
                    f"the connection to {endpoint()} keeps breaking, now at byte {partial.size:,} of "
                    f"{wanted.size:,}: {reason(error)}",
                    "pull again to go on from there",
                ) from error
            progress.message(
                f"the connection broke at byte {partial.size:,} ({reason(error)}); going on from there"
            )


def _fetch_rest(url: str, wanted: Wanted, partial: Partial, progress: Progress) -> None:
    answer = ask(url, partial.size)
    with contextlib.closing(answer.body) as body:
        if answer.sha256 is not None and answer.sha256 != wanted.sha256:
            raise ChecksumError(
                f"{url}: the hub's file has other bytes: "
                f"expected sha256 {wanted.sha256}, got {answer.sha256}",
                "pull again later, or from another source",
            )
        if partial.size and not _starts_at(body, partial.size):
            progress.message("the hub does not go on in mid-file; starting from the first byte")
            partial.restart()
        whole = _whole_size(body)
        if whole is not None and whole != wanted.size:
            raise HubError(f"{url}: the hub's file has {whole:,} bytes instead of {wanted.size:,}")
        progress.start(wanted.name, wanted.size, partial.size)
        try:
            _copy(body, wanted, partial, progress)
        finally:
            progress.finish()
            partial.commit()


def _copy(body: http.client.HTTPResponse, wanted: Wanted, partial: Partial, progress: Progress) -> None:
    fresh = 0
    while partial.size < wanted.size:
        chunk = body.read1(min(_CHUNK, wanted.size - partial.size))
        if not chunk:
            raise http.client.IncompleteRead(b"", wanted.size - partial.size)
        partial.append(chunk)
        progress.advance(len(chunk))
        fresh += len(chunk)
        if fresh >= _COMMIT_BYTES:
            partial.commit()
            fresh = 0


def _starts_at(body: http.client.HTTPResponse, start: int) -> bool:
    return body.status == http.client.PARTIAL_CONTENT and (
        body.headers.get("Content-Range") or ""
    ).startswith(f"bytes {start}-")


def _whole_size(body: http.client.HTTPResponse) -> int | None:
    """Return the whole file's size, if the answer tells it."""
    if body.status == http.client.PARTIAL_CONTENT:
        size = (body.headers.get("Content-Range") or "").rpartition("/")[2]
    else:
        size = body.headers.get("Content-Length") or ""
    return int(size) if size.isdecimal() else None
