"""Everything about the server that can be set: limits, keys, names."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pilotfish.drafters.recent import MOST_TOKENS as RECENT_TOKENS
from pilotfish.errors import UsageError
from pilotfish.serving.prefixes import MOST_TOKENS
from pilotfish.serving.scheduler import MOST_RUNNING, MOST_WAITING

MIB = 1 << 20

MOST_BODIES = 64 * MIB
"""Bytes of the bodies of all requests that are being read or answered; more only if one may be larger."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server is set.

    Attributes
    ----------
    aliases
        Names of the model beside its own.
    api_keys
        Of these a request must name one; without any, every request is served.
    cors
        Origins whose pages may use the server from a browser; `*` is all.
    hosts
        Names under which a server on loopback is asked, beside those that are known to be this machine's.
    loopback
        Whether it listens on loopback only: then, without keys, requests for other hosts are refused.
    log_prompts
        Whether prompts and answers are logged.
    most_stops, most_choices, most_prompts, most_bad_words, most_biases
        Bounds on a request: stop strings, `n`, prompts of a completion, `bad_words`, ids of `logit_bias`.
    most_letters
        Characters of a stop string or a bad word.
    most_body_bytes
        Largest body of a request, in bytes.
    most_running, most_waiting
        Sequences that share passes; requests that wait beside these.
    prefix_tokens
        Tokens kept of texts that others may begin with; 0 keeps nothing.
    recent_tokens
        Tokens remembered of requests that have ended, to draft from; 0 remembers nothing.
    kv_tokens
        Tokens that answers and kept texts may hold in the KV cache together; None for what memory allows.
    ping_s
        A stream that has nothing to tell sends a comment so often.
    body_s, write_s
        Seconds that a request may take to arrive, and a client to take a piece of its answer.

    Raises
    ------
    UsageError
        A value that makes no sense; the message names it.
    """

    aliases: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    loopback: bool = True
    log_prompts: bool = False
    most_stops: int = 16
    most_choices: int = 16
    most_prompts: int = 128
    most_bad_words: int = 64
    most_biases: int = 1024
    most_letters: int = 1000
    most_body_bytes: int = 8 * MIB
    most_running: int = MOST_RUNNING
    most_waiting: int = MOST_WAITING
    prefix_tokens: int = MOST_TOKENS
    recent_tokens: int = RECENT_TOKENS
    kv_tokens: int | None = None
    ping_s: float = 15.0
    body_s: float = 60.0
    write_s: float = 300.0

    @property
    def most_bodies_bytes(self) -> int:
        """Largest sum of the bodies of requests that are being read or answered, in bytes."""
        return max(MOST_BODIES, self.most_body_bytes)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                for text in value:
                    if not text or not text.isprintable() or text != text.strip():
                        shown = "a key" if field.name == "api_keys" else repr(text[:80])
                        raise UsageError(f"{field.name} has {shown} that is no name", "give printable text")
            elif isinstance(value, int | float) and not isinstance(value, bool):
                least = 0 if field.name in {"prefix_tokens", "recent_tokens"} else 1
                if not value >= least:
                    raise UsageError(f"{field.name} is {value}", f"it is at least {least}")
