"""From errors to what OpenAI's clients expect: a status and {"error": {message, type, param, code}}."""

from __future__ import annotations

import logging
from typing import Self

import msgspec
from starlette.responses import Response

from pilotfish.errors import (
    Cancelled,
    EngineError,
    OutOfMemory,
    PilotfishError,
    PromptTooLong,
    QueueFull,
    TemplateError,
    Unavailable,
    UsageError,
)

_log = logging.getLogger(__name__)

INVALID = "invalid_request_error"
RETRY_S = 1
_AGAIN = (429, 503)

_ERRORS: tuple[tuple[type[PilotfishError], int, str, str | None], ...] = (
    (PromptTooLong, 400, INVALID, "context_length_exceeded"),
    (UsageError, 400, INVALID, None),
    (TemplateError, 400, INVALID, None),
    (QueueFull, 429, "rate_limit_error", "queue_full"),
    (Unavailable, 503, "server_error", "unavailable"),
    (OutOfMemory, 503, "server_error", "out_of_memory"),
    (Cancelled, 503, "server_error", "cancelled"),  # by us: the server is shutting down
    (EngineError, 500, "server_error", "engine_error"),
    (PilotfishError, 500, "server_error", None),
)
"""Status, type and code by class of error; the first that fits."""


class Refusal(Exception):
    """An answer that is an error.

    Parameters
    ----------
    status
        HTTP's.
    message
        What is wrong, and how to mend it.
    kind
        OpenAI's `type`.
    code
        OpenAI's `code`, or None.
    param
        The field of the request that is wrong, if it is one.
    retry_s
        After how many seconds to try again.
    headers
        More headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = INVALID,
        code: str | None = None,
        *,
        param: str | None = None,
        retry_s: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        if retry_s is not None:
            self.headers["Retry-After"] = str(retry_s)

    @classmethod
    def field(cls, param: str, message: str, code: str | None = None) -> Self:
        """Return a 400 that names a field."""
        return cls(400, message, code=code, param=param)

    @classmethod
    def busy(cls, message: str, retry_s: int = RETRY_S) -> Self:
        """Return a 429: there is no room now."""
        return cls(429, f"{message}; try again later", "rate_limit_error", "queue_full", retry_s=retry_s)

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """Return what to answer to an error; one that is nobody's fault but ours is logged."""
        if isinstance(error, Refusal):
            return error
        for kind, status, name, code in _ERRORS:
            if isinstance(error, kind):
                return cls(status, str(error), name, code, retry_s=RETRY_S if status in _AGAIN else None)
        _log.error("a request failed", exc_info=error)
        return cls(500, "the server failed; its log says more", "server_error", "internal_error")

    def named(self, param: str) -> Self:
        """Return itself with the field named, if the message is about a field and it is not named yet."""
        if self.status == 400 and self.param is None:
            self.param = param
        return self

    @property
    def body(self) -> dict[str, object]:
        """The JSON of the response."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """Return the response."""
        return json_response(self.body, self.status, self.headers)


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a body of JSON."""
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
