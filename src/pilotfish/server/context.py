"""What an endpoint has at hand: the service, the settings, the clock."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.server.room import Share
    from pilotfish.server.service import Service
    from pilotfish.server.settings import Settings
    from pilotfish.server.streaming import Sleep


@dataclass(frozen=True, slots=True)
class Context:
    """One request's surroundings.

    Attributes
    ----------
    service, settings
        Who answers, and within which limits.
    started
        When the server was started, in seconds since 1970.
    now
        Seconds since 1970.
    sleep
        What pings and patience are measured with.
    share
        What the request may keep of its body.
    key
        The API key that the request came with, or none.
    """

    service: Service
    settings: Settings
    started: int
    now: Callable[[], float]
    sleep: Sleep
    share: Share
    key: str = ""

    def salt(self, cache_salt: str | None) -> str:
        """Return the partition of a request: what it leaves behind is found by those of the same one."""
        parts = [self.key, cache_salt or ""]
        return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """What answers depend on beside the request: OpenAI's `system_fingerprint`."""
        from pilotfish import __version__  # noqa: PLC0415 - the package imports the library, not the server

        target = self.service.target
        what = f"{__version__} {target.name} {target.checksum} {target.isa}"
        return f"fp_{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def fresh_id(prefix: str) -> str:
    """Return an id that no other answer has, such as `chatcmpl-…`."""
    return f"{prefix}-{secrets.token_hex(12)}"
