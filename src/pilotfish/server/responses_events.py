"""What /v1/responses answers: the response as an object, and the events that it is streamed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pilotfish.options import Options
    from pilotfish.sequence import FinishReason
    from pilotfish.server.refusals import Refusal
    from pilotfish.server.responses_fields import ResponsesRequest

Json = dict[str, Any]


@dataclass(slots=True)
class Writer:
    """Writes one response: a message of one text, in the making or whole.

    Attributes
    ----------
    request, options
        What was asked for, and how it is answered.
    model
        The name that the client used.
    response_id, message_id
        Unique names, "resp_…" and "msg_…".
    created_s
        When it was asked for, in seconds since 1970.
    events
        Events written so far; each has its number.
    """

    request: ResponsesRequest
    options: Options
    model: str
    response_id: str
    message_id: str
    created_s: int
    events: int = field(default=0, init=False)

    def opening(self) -> list[Json]:
        """Return the events before there is any text."""
        return [
            self._event(f"response.{state}", response=self.response("in_progress", []))
            for state in ("created", "in_progress")
        ]

    def begin(self) -> list[Json]:
        """Return the events that open the message."""
        return [
            self._event("response.output_item.added", output_index=0, item=self._message("in_progress", [])),
            self._of_text("response.content_part.added", part=self._part("", [])),
        ]

    def delta(self, text: str, logprobs: Sequence[Json]) -> Json:
        """Return the event of some more text; `logprobs` has one entry a token, none if none are wanted."""
        return self._of_text("response.output_text.delta", delta=text, logprobs=logprobs)

    def end(
        self, text: str, logprobs: Sequence[Json], reason: FinishReason, usage: Json, more: Json, now_s: int
    ) -> list[Json]:
        """Return the events that close the message and the response; parameters as for `whole`."""
        message = self._written(text, logprobs, reason)
        whole = self.whole(text, logprobs, reason, usage, more, now_s)
        return [
            self._of_text("response.output_text.done", text=text, logprobs=logprobs),
            self._of_text("response.content_part.done", part=self._part(text, logprobs)),
            self._event("response.output_item.done", output_index=0, item=message),
            self._event(f"response.{whole['status']}", response=whole),
        ]

    def failure(self, refusal: Refusal) -> Json:
        """Return the last event of a stream that an error ended."""
        return self._event("response.failed", response=self.failed(refusal))

    def failed(self, refusal: Refusal) -> Json:
        """Return the response that an error ended; its text so far is in the events."""
        code = "rate_limit_exceeded" if refusal.status == 429 else "server_error"
        return {**self.response("failed", []), "error": {"code": code, "message": refusal.message}}

    def whole(
        self, text: str, logprobs: Sequence[Json], reason: FinishReason, usage: Json, more: Json, now_s: int
    ) -> Json:
        """Return the whole response.

        Parameters
        ----------
        text
            All of it.
        logprobs
            One entry a token, none if none are wanted.
        reason
            Why it ended: `length` makes it incomplete.
        usage
            In this endpoint's names.
        more
            Fields beside OpenAI's.
        now_s
            When it ended, in seconds since 1970.
        """
        cut = reason == "length"
        response = self.response(
            "incomplete" if cut else "completed", [self._written(text, logprobs, reason)]
        )
        if cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            response["completed_at"] = now_s
        return {**response, "usage": usage, **more}

    def response(self, status: str, output: list[Json]) -> Json:
        """Return the response as far as it is known before its end."""
        asked, options = self.request, self.options
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_s,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "max_tool_calls": None,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": True if asked.parallel_tool_calls is None else asked.parallel_tool_calls,
            "previous_response_id": None,
            "prompt_cache_key": asked.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": asked.safety_identifier,
            "service_tier": "default",
            "store": False,
            "temperature": options.temperature,
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": asked.top_logprobs or 0,
            "top_p": options.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": asked.user,
            "metadata": asked.metadata or {},
            "seed": options.seed,
        }

    def _written(self, text: str, logprobs: Sequence[Json], reason: FinishReason) -> Json:
        status = "incomplete" if reason == "length" else "completed"
        return self._message(status, [self._part(text, logprobs)])

    def _message(self, status: str, content: list[Json]) -> Json:
        return {
            "id": self.message_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _part(self, text: str, logprobs: Sequence[Json]) -> Json:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _of_text(self, kind: str, **fields: object) -> Json:
        return self._event(kind, item_id=self.message_id, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> Json:
        number = self.events
        self.events += 1
        return {"type": kind, "sequence_number": number, **fields}
