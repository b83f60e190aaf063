"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from pilotfish.errors import TemplateError, shown
from pilotfish.sequence import too_long
from pilotfish.server import models
from pilotfish.server.context import fresh_id
from pilotfish.server.logprob_fields import entries
from pilotfish.server.reading import read
from pilotfish.server.refusals import Refusal, json_response
from pilotfish.server.sampling_fields import SamplingFields, options_of
from pilotfish.server.streaming import EventStream, frame, unless_left
from pilotfish.server.submitting import encoded, submit
from pilotfish.server.usage import figures, usage

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pilotfish.answer import Event
    from pilotfish.server.context import Context
    from pilotfish.server.service import Reply, Service

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Roles of messages, and what templates call them."""


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """A message; what OpenAI's answers have beside text may be sent back, if there is nothing in it."""

    role: str
    content: str | list[dict[str, object]] | None = None
    name: str | None = None
    refusal: str | None = None
    audio: object = None
    annotations: object = None
    function_call: object = None
    tool_calls: object = None
    tool_call_id: object = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`include_obfuscation` would pad events against who can see their sizes; only false is taken."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(SamplingFields, kw_only=True):
    """The body of a request."""

    messages: list[Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


async def answer(context: Context, request: Request) -> Response:
    """Answer a request."""
    asked = await read(request, context, ChatRequest)
    model = models.checked(context, asked.model)
    wants_usage = streams_usage(asked.stream, asked.stream_options)
    options = options_of(
        asked,
        context.settings,
        budget(context, asked.max_tokens, asked.max_completion_tokens),
        logprobs=bool(asked.logprobs),
        top_logprobs=asked.top_logprobs or 0,
        names={} if asked.max_completion_tokens is None else {"max_tokens": "max_completion_tokens"},
    )
    [reply] = await submit(
        context, lambda: [prompt_of(context.service, texts(asked.messages))], options, asked, param="messages"
    )
    reply.endpoint, reply.label = "/v1/chat/completions", fresh_id("chatcmpl")
    head = {
        "id": reply.label,
        "object": "chat.completion.chunk" if asked.stream else "chat.completion",
        "created": int(context.now()),
        "model": model,
        "system_fingerprint": context.fingerprint,
    }
    if asked.stream:
        frames = (frame(event) async for event in _chunks(context, head, reply, wants_usage=wants_usage))
        return EventStream(frames, context.settings, leave=reply.cancel, sleep=context.sleep)
    try:
        return json_response(await unless_left(request.receive, _whole(context, head, reply)))
    finally:
        reply.cancel()


def streams_usage(stream: bool | None, options: StreamOptions | None) -> bool:  # noqa: FBT001 - a field
    """Return whether a stream ends with its usage.

    Raises
    ------
    Refusal
        `stream_options` without `stream`.
    """
    if options is not None and not stream:
        raise Refusal.field("stream_options", "stream_options is set, but stream is not; set stream too")
    if options is not None and options.include_obfuscation:
        raise Refusal.field(
            "stream_options.include_obfuscation",
            "stream_options.include_obfuscation is not supported; leave it out",
            "unsupported_parameter",
        )
    return options is not None and bool(options.include_usage)


def budget(context: Context, max_tokens: int | None, max_completion_tokens: int | None) -> int:
    """Return the most tokens of an answer: what the context leaves, if nothing else is asked for.

    Raises
    ------
    Refusal
        Two values that differ.
    """
    given = {limit for limit in (max_tokens, max_completion_tokens) if limit is not None}
    if len(given) > 1:
        raise Refusal.field("max_tokens", "max_tokens and max_completion_tokens differ; give one of them")
    return given.pop() if given else context.service.context


def texts(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return messages as templates take them.

    Raises
    ------
    Refusal
        400, naming what is not a text.
    """
    if not messages:
        raise Refusal.field("messages", "there are no messages; give at least one")
    return [_text(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _text(where: str, message: Message) -> dict[str, str]:
    if message.role not in ROLES:
        tools = "; this server calls no tools" if message.role in {"tool", "function"} else ""
        raise Refusal.field(
            f"{where}.role", f"{where}.role is {shown(message.role)}; it is one of {', '.join(ROLES)}{tools}"
        )
    for name in ("refusal", "audio", "annotations", "function_call", "tool_calls", "tool_call_id"):
        if getattr(message, name):
            raise Refusal.field(
                f"{where}.{name}", f"{where}.{name} is not supported; leave it out", "unsupported_parameter"
            )
    if message.content is None:
        raise Refusal.field(f"{where}.content", f"{where}.content is missing; it is a text")
    content = message.content
    if not isinstance(content, str):
        content = "\n".join(_part(f"{where}.content[{i}]", part) for i, part in enumerate(content))
    found = {"role": ROLES[message.role], "content": content}
    return found if message.name is None else {**found, "name": message.name}


def _part(where: str, part: Mapping[str, object]) -> str:
    kind, text = part.get("type"), part.get("text")
    if kind not in ("text", "input_text", "output_text"):
        raise Refusal.field(
            f"{where}.type", f"{where}.type is {shown(kind)}; only text is supported", "unsupported_parameter"
        )
    if not isinstance(text, str):
        raise Refusal.field(f"{where}.text", f"{where}.text is missing; it is a text")
    return text


def prompt_of(service: Service, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Return what the model's template makes of messages, as ids.

    Raises
    ------
    Refusal
        The model has no template.
    TemplateError
        The template fails on these messages.
    PromptTooLong
        The context has no room for what comes of them.
    """
    target = service.target
    if target.template is None:
        raise Refusal.of(
            TemplateError(
                f"{target.name} has no chat template", "a base model can only complete: /v1/completions"
            )
        ).named("messages")
    if len(messages) >= service.context:  # a message is a token at least, and a template takes its time
        raise too_long(f"at least {len(messages)}", service.context)
    try:
        text = target.template.render(messages, add_generation_prompt=True)
    except TemplateError as error:
        raise Refusal.of(error).named("messages") from None
    return encoded(service, text, bos=False)


async def _whole(context: Context, head: Mapping[str, object], reply: Reply) -> dict[str, object]:
    """Wait for the answer and return the response."""
    said: dict[int, list[Event]] = {}
    async for events in reply:
        for event in events:
            said.setdefault(event.choice, []).append(event)
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": _logprobs(context, choice.sequence.logprobs, said.get(i, [])),
            "finish_reason": choice.sequence.finish_reason,
        }
        for i, choice in enumerate(reply.choices)
    ]
    seed = reply.choices[0].sequence.sampling.seed
    return {**head, "choices": choices, "usage": usage([reply]), "seed": seed, **figures([reply])}


async def _chunks(
    context: Context, head: Mapping[str, object], reply: Reply, *, wants_usage: bool
) -> AsyncIterator[dict[str, object]]:
    """Yield a stream's events: the role, text as it comes, why it ended; then the usage if that is wanted."""
    nothing: dict[str, object] = {"usage": None} if wants_usage else {}
    begun: set[int] = set()
    unended = len(reply.choices)
    async for events in reply:
        for index, group in by_choice(events):
            if index not in begun:
                begun.add(index)
                yield {**head, "choices": [_delta(index, {"role": "assistant", "content": ""})], **nothing}
            text = "".join(event.text for event in group)
            logprobs = _logprobs(context, reply.choices[index].sequence.logprobs, group)
            if text or logprobs:
                yield {**head, "choices": [_delta(index, {"content": text}, logprobs)], **nothing}
            if (reason := group[-1].finish_reason) is not None:
                unended -= 1
                last = {} if unended or wants_usage else _ending(reply)
                yield {**head, "choices": [_delta(index, {}, reason=reason)], **nothing, **last}
    if wants_usage:
        yield {**head, "choices": [], "usage": usage([reply]), **_ending(reply)}


def _ending(reply: Reply) -> dict[str, object]:
    return {"seed": reply.choices[0].sequence.sampling.seed, **figures([reply])}


def _delta(
    index: int, delta: Mapping[str, object], logprobs: object = None, reason: str | None = None
) -> dict[str, object]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def _logprobs(context: Context, wanted: int | None, events: Sequence[Event]) -> dict[str, object] | None:
    if wanted is None:
        return None
    return {"content": entries(context.service.target.tokenizer, events), "refusal": None}


def by_choice(events: Sequence[Event]) -> Iterator[tuple[int, list[Event]]]:
    """Yield the events of each choice together, in order of the choices."""
    for index in sorted({event.choice for event in events}):
        yield index, [event for event in events if event.choice == index]
