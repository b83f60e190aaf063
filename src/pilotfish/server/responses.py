"""`POST /v1/responses`: one answer, of which nothing is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from pilotfish.server import models
from pilotfish.server.chat import prompt_of
from pilotfish.server.context import fresh_id
from pilotfish.server.logprob_fields import entries
from pilotfish.server.reading import read
from pilotfish.server.refusals import Refusal, json_response
from pilotfish.server.responses_events import Json, Writer
from pilotfish.server.responses_fields import ResponsesRequest
from pilotfish.server.sampling_fields import options_of
from pilotfish.server.streaming import EventStream, frame, unless_left
from pilotfish.server.submitting import submit
from pilotfish.server.usage import figures, usage

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pilotfish.answer import Event
    from pilotfish.server.context import Context
    from pilotfish.server.service import Reply


async def answer(context: Context, request: Request) -> Response:
    """Answer a request."""
    asked = await read(request, context, ResponsesRequest)
    model = models.checked(context, asked.model)
    asked.check()
    try:
        options = options_of(
            asked,
            context.settings,
            context.service.context if asked.max_output_tokens is None else asked.max_output_tokens,
            logprobs=asked.wants_logprobs,
            top_logprobs=asked.top_logprobs or 0,
        )
        [reply] = await submit(
            context, lambda: [prompt_of(context.service, asked.messages())], options, asked, param="input"
        )
    except Refusal as refusal:
        raise _renamed(refusal) from None
    reply.endpoint, reply.label = "/v1/responses", fresh_id("resp").replace("-", "_")
    writer = Writer(asked, options, model, reply.label, fresh_id("msg").replace("-", "_"), int(context.now()))
    if asked.stream:
        frames = (frame(event, event["type"]) async for event in _events(context, writer, reply))
        return EventStream(
            frames,
            context.settings,
            leave=reply.cancel,
            done=b"",
            failed=lambda refusal: frame(writer.failure(refusal), "response.failed"),
            sleep=context.sleep,
        )
    try:
        return json_response(await unless_left(request.receive, _whole(context, writer, reply)))
    finally:
        reply.cancel()


def _renamed(refusal: Refusal) -> Refusal:
    """Name a field as it is called here: what templates and options complain of has other names."""
    other = {"messages": "input", "max_tokens": "max_output_tokens"}
    refusal.param = other.get(refusal.param or "", refusal.param)
    return refusal


async def _whole(context: Context, writer: Writer, reply: Reply) -> Json:
    logprobs: list[Json] = []
    async for events in reply:
        logprobs += _logprobs(context, reply, events)
    return writer.whole(reply.choices[0].text, logprobs, *_ending(context, reply))


async def _events(context: Context, writer: Writer, reply: Reply) -> AsyncIterator[Json]:
    """Yield a stream's events: what is asked, then text as it comes, one event a pass, then the whole."""
    for event in writer.opening():
        yield event
    begun, said = False, []
    async for events in reply:
        if not begun:
            begun = True
            for event in writer.begin():
                yield event
        text = "".join(event.text for event in events)
        logprobs = _logprobs(context, reply, events)
        said += logprobs
        if text or logprobs:
            yield writer.delta(text, logprobs)
    for event in writer.end(reply.choices[0].text, said, *_ending(context, reply)):
        yield event


def _ending(context: Context, reply: Reply) -> tuple[Any, Json, Json, int]:
    """Return why an answer ended, its usage, its figures, and the time."""
    reason = reply.choices[0].sequence.finish_reason
    counted: Json = usage([reply])
    return (
        reason,
        {
            "input_tokens": counted["prompt_tokens"],
            "input_tokens_details": {**counted["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": counted["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counted["total_tokens"],
        },
        dict(figures([reply])),
        int(context.now()),
    )


def _logprobs(context: Context, reply: Reply, events: list[Event]) -> list[Json]:
    if reply.choices[0].sequence.logprobs is None:
        return []
    return list(entries(context.service.target.tokenizer, events))
