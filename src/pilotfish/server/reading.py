"""From the bytes of a request to a struct: nothing is ignored, and what is wrong is named."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from pilotfish.errors import shown, shown_name
from pilotfish.server.bulk import LARGE, check_bulk
from pilotfish.server.fields import HARMLESS, UNSUPPORTED
from pilotfish.server.refusals import Refusal
from pilotfish.server.settings import MIB

if TYPE_CHECKING:
    from starlette.requests import Request

    from pilotfish.server.context import Context
    from pilotfish.server.room import Share

S = TypeVar("S", bound=msgspec.Struct)

DISCARDED: Final = 4
"""Bodies are read, and dropped, up to so many times the limit, so that the client hears why."""

_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


class ClientLeft(Exception):
    """The client closed the connection; there is nobody to answer."""


async def read_body(request: Request, context: Context) -> bytes:
    """Return the body of a request.

    Raises
    ------
    Refusal
        Too large (413), not JSON by its own account (415), not there in time (408), or no room for it (429).
    ClientLeft
        The client has gone.
    """
    _check_headers(request)
    limit_s = context.settings.body_s
    reading = asyncio.ensure_future(_read(request, context.settings.most_body_bytes, context.share))
    patience = asyncio.ensure_future(context.sleep(limit_s))
    try:
        await asyncio.wait((reading, patience), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            raise Refusal(
                408, f"the body did not arrive within {limit_s:g} s; send it faster", headers=_CLOSE
            )
        return reading.result()
    finally:
        reading.cancel()
        patience.cancel()


_CLOSE: Final = {"Connection": "close"}


def _check_headers(request: Request) -> None:
    """Refuse what says that it is no JSON.

    A page in a browser can send a form or plain text anywhere without being asked first whether it may; JSON
    it can't. So this also keeps pages of others from asking.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    if not json and (kind or "origin" in request.headers):
        raise Refusal(
            415, f"the content type is {shown(kind)}; send the header Content-Type: application/json"
        )
    coding = request.headers.get("content-encoding", "identity")
    if coding != "identity":
        raise Refusal(415, f"the content encoding is {shown(coding)}; send the body as it is")


async def _read(request: Request, most: int, share: Share) -> bytes:
    body, size, fits = bytearray(), 0, True
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        piece = message.get("body", b"")
        size += len(piece)
        fits = fits and size <= most and share.grow(len(piece))
        if fits:
            body += piece
        elif body:
            body = bytearray()
            share.empty()
        if not message.get("more_body", False) or size > DISCARDED * most:
            break
    if size > most:
        raise Refusal(
            413,
            f"the body is larger than {most} bytes ({most / MIB:g} MiB); send less, or start the server with "
            "a larger --max-body",
            code="request_too_large",
            headers=_CLOSE,
        )
    if not fits:
        raise Refusal.busy("the requests that are being answered take all the room that there is for bodies")
    return bytes(body)


def read_json(body: bytes) -> dict[str, object]:
    """Return the object that a body is.

    Raises
    ------
    Refusal
        It is not UTF-8, not JSON, nested too deeply, has a number that is none, or is no object.
    """
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, f"the body can't be read: {error}; send a JSON object in UTF-8") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply; send less nested JSON") from None
    except ValueError:
        raise Refusal(400, "the body has a number that is too large; send a smaller one") from None
    if not isinstance(found, dict):
        raise Refusal(400, f"the body is {shown(found)}; send a JSON object")
    return found


def read_fields(given: Mapping[str, object], kind: type[S]) -> S:
    """Return the struct of an endpoint, having refused by name what it does not know.

    A field of another endpoint's or server's that changes nothing as it is given, such as `tools: []`, is
    dropped: `fields.HARMLESS` says which. A null is no value, as in OpenAI's interface.

    Raises
    ------
    Refusal
        400, with the field as `param`.
    """
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    kept: dict[str, object] = {}
    for name, value in given.items():
        if value is None:
            if name not in known and name not in HARMLESS and name not in UNSUPPORTED:
                raise _unsupported(name)
        elif name in known:
            kept[name] = value
        elif not (name in HARMLESS and HARMLESS[name](value)):
            raise _unsupported(name, value)
    try:
        return msgspec.convert(kept, type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except OverflowError:
        raise Refusal(400, "the body has a number that is too large; send a smaller one") from None


async def read(request: Request, context: Context, kind: type[S]) -> S:
    """Return the struct that the body of a request is."""
    body = await read_body(request, context)

    def work() -> S:
        check_bulk(body)
        return read_fields(read_json(body), kind)

    return work() if len(body) <= LARGE else await context.service.in_thread(work)


def _unsupported(name: str, value: object = None) -> Refusal:
    why = UNSUPPORTED.get(name, "")
    with_value = f" with the value {shown(value)}" if name in HARMLESS and value is not None else ""
    return Refusal.field(
        name[:80],
        f"{shown_name(name)} is not supported{with_value}{': ' + why if why else ''}; leave it out",
        "unsupported_parameter",
    )


def _invalid(error: msgspec.ValidationError) -> Refusal:
    found = _PATH.match(str(error))
    what, path = (found["what"], found["path"] or "") if found else (str(error), "")
    unknown = re.search(r"contains unknown field `(.*)`$", what, re.DOTALL)
    if unknown:
        name = f"{path}.{unknown[1]}" if path else unknown[1]
        return Refusal.field(
            name[:80], f"{shown_name(name)} is not supported; leave it out", "unsupported_parameter"
        )
    missing = re.search(r"missing required field `(.*)`$", what, re.DOTALL)
    if missing:
        name = f"{path}.{missing[1]}" if path else missing[1]
        return Refusal.field(name, f"{name} is missing", "missing_required_parameter")
    if not path:
        return Refusal(400, what)
    return Refusal.field(path[:80], f"{path[:80]} is wrong: {what.replace('`', '')}", "invalid_type")
