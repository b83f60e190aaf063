"""Who may ask: API keys, and for which host a request is meant."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from pilotfish.errors import shown
from pilotfish.server.refusals import Refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pilotfish.server.settings import Settings

OPEN_PATHS: Final = frozenset({"/health"})
"""Answered without a key: they tell nothing about what is asked."""

KEY: Final = "pilotfish.key"
"""Where the scope of a request has the key that it came with."""

_RESERVED = ("localhost", "internal")


class Guard:
    """Lets requests with a key of the settings through, or all if there are none.

    Without keys, a server on loopback also looks at the host that a request names. A page from elsewhere can
    let its own name point to this machine (DNS rebinding); its requests then come from a browser here, but
    they name that host.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._keys = [key.encode() for key in settings.api_keys]
        self._hosts = {host.lower() for host in settings.hosts}
        self._checks_hosts = settings.loopback and not self._keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http":
            try:
                self._check(scope)
            except Refusal as refusal:
                await refusal.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._checks_hosts:
            host = headers.get("host", "")
            if not self._is_ours(_without_port(host).lower()):
                raise Refusal(
                    403,
                    f"the request is for the host {shown(host)}, which this server does not know; "
                    f"start it with --allowed-host, or with an --api-key",
                    code="host_not_allowed",
                )
        if self._keys and scope["path"] not in OPEN_PATHS:
            scope[KEY] = self._key(headers.get("authorization", ""))

    def _is_ours(self, host: str) -> bool:
        """Whether a name can't be one that somebody elsewhere lets point to this machine."""
        if host in self._hosts or "." not in host or host.rpartition(".")[2] in _RESERVED:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

    def _key(self, authorization: str) -> str:
        kind, _, given = authorization.partition(" ")
        # Headers are decoded as Latin-1, whatever their bytes are; some of a key's may be spaces there.
        raw = given.encode("latin-1").strip(b" \t")
        known = [hmac.compare_digest(raw, key) for key in self._keys]
        if kind.lower() != "bearer" or not any(known):
            raise Refusal(
                401,
                "the API key is missing or wrong; send the header Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return raw.decode("latin-1")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
