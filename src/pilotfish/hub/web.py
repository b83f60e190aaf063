"""Requests to the Hugging Face hub: HTTP with time limits, a token that only the hub sees, clear refusals.

The standard library's client is used: the session that `huggingface_hub` offers is another library's from one
major version to the next, and its own downloader keeps partial files where the other source can't go on with
them.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import queue
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, TYPE_CHECKING, NamedTuple

from pilotfish.errors import HubError, OfflineError, UsageError

if TYPE_CHECKING:
    from email.message import Message

CONNECT_S = 10.0
"""Longest wait for the hub's first answer, name look-up and redirects included."""
STALL_S = 30.0
"""Longest silence within a file."""
LISTING_S = 60.0
"""Longest time that a listing may take altogether."""
MOST_LISTING_BYTES = 32 << 20
"""A repository of 100,000 files, the most that the hub advises, has a listing of about 25 MB."""
BREAKS = 3
"""How often in a row a request is made again after its connection broke without news."""
_CHUNK = 1 << 18
_SHA256 = re.compile(r"[0-9a-f]{64}")


class HubUnreachable(OfflineError):
    """The hub gives no answer at all: no network, no such host, or it takes too long."""


class HubRefused(HubError):
    """The hub answers with an error.

    Attributes
    ----------
    status
        HTTP's number.
    code
        What the hub says in `X-Error-Code`, such as `GatedRepo` or `RepoNotFound`; may be empty.
    """

    def __init__(self, message: str, hint: str, status: int, code: str) -> None:
        super().__init__(message, hint)
        self.status = status
        self.code = code


class Answer(NamedTuple):
    """An answer whose body is still to be read, and the SHA-256 that the hub promises for it, if it does."""

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


def get_json(url: str) -> object:
    """Return what the hub answers as JSON; a connection that breaks is tried again.

    Raises
    ------
    HubUnreachable
        No answer within `CONNECT_S`.
    HubRefused
        The hub answers with an error.
    HubError
        The answer is too large, takes too long, breaks again and again, or is no JSON.
    """
    broken: Exception | None = None
    for _ in range(BREAKS + 1):
        try:
            data = _read_all(url)
            break
        except (http.client.HTTPException, OSError) as error:
            broken = error
    else:
        assert broken is not None
        raise HubError(f"the connection to {endpoint()} keeps breaking: {reason(broken)}", "try again")
    try:
        parsed: object = json.loads(data)
    except (ValueError, RecursionError):
        raise HubError(
            f"{url}: the hub's answer is no JSON, it starts with {data[:40]!r}", "check HF_ENDPOINT"
        ) from None
    return parsed


def _read_all(url: str) -> bytes:
    started = time.monotonic()
    data = bytearray()
    with contextlib.closing(ask(url).body) as body:
        promised = body.headers.get("Content-Length") or ""
        while chunk := body.read1(_CHUNK):
            data += chunk
            if len(data) > MOST_LISTING_BYTES:
                raise HubError(
                    f"{url}: the hub's answer has more than {MOST_LISTING_BYTES >> 20} MiB",
                    "fetch the file you want and give its path",
                )
            if time.monotonic() - started > LISTING_S:
                raise HubError(f"{url}: the hub's answer takes more than {LISTING_S:.0f} s", "try again")
    if promised.isdecimal() and len(data) < int(promised):
        raise http.client.IncompleteRead(bytes(data[:0]), int(promised) - len(data))
    return bytes(data)


def ask(url: str, start: int = 0) -> Answer:
    """Return the hub's answer to a request for the file from byte `start` on.

    The request runs in a thread because a name look-up can't be given a time limit.

    Raises
    ------
    HubUnreachable
        No answer within `CONNECT_S`.
    HubRefused
        The hub answers with an error.
    """
    outcome: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
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


def _open(url: str, start: int) -> Answer:
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
        code = (error.headers.get("X-Error-Code") or "")[:40]
        error.close()
        raise HubRefused(
            f"the hub answers {error.code} {error.reason} for {url}", _hint(error.code), error.code, code
        ) from None
    except urllib.error.URLError as error:
        raise HubUnreachable(f"the hub can't be reached: {endpoint()}: {reason(error)}") from error
    except UnicodeError:
        raise HubError("the hub's token has characters that no token has", "check HF_TOKEN") from None
    return Answer(body, _promised_sha256(body.headers) or redirects.sha256)


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


def _hint(status: int) -> str:
    if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
        return "unset HF_TOKEN, or set it to a token that may read the file"
    if status == http.client.TOO_MANY_REQUESTS:
        return "wait a few minutes"
    return ""


def reason(error: Exception) -> str:
    """Say in a few words why a request failed."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, http.client.IncompleteRead):
        return "it ended too early"
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner) or type(inner).__name__
