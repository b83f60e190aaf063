"""`POST /v1/completions`: prompts as text or as token ids, one or several."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pilotfish.errors import shown
from pilotfish.logprobs import MOST_TOP
from pilotfish.server import models
from pilotfish.server.chat import StreamOptions, by_choice, streams_usage
from pilotfish.server.context import fresh_id
from pilotfish.server.logprob_fields import Offsets
from pilotfish.server.reading import read
from pilotfish.server.refusals import Refusal, json_response
from pilotfish.server.sampling_fields import SamplingFields, options_of
from pilotfish.server.streaming import EventStream, frame, unless_left
from pilotfish.server.submitting import encoded, merged, submit
from pilotfish.server.usage import figures, usage

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pilotfish.answer import Event
    from pilotfish.server.context import Context
    from pilotfish.server.service import Reply, Service

MAX_TOKENS = 16
"""Most tokens of a completion whose request names no number; OpenAI's default."""


class CompletionRequest(SamplingFields, kw_only=True):
    """The body of a request."""

    prompt: str | list[object]
    max_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: int | None = None
    echo: bool | None = None


async def answer(context: Context, request: Request) -> Response:
    """Answer a request."""
    asked = await read(request, context, CompletionRequest)
    model = models.checked(context, asked.model)
    wants_usage = streams_usage(asked.stream, asked.stream_options)
    if asked.logprobs is not None and not 0 <= asked.logprobs <= MOST_TOP:
        raise Refusal.field("logprobs", f"logprobs is {asked.logprobs}; it is from 0 to {MOST_TOP}")
    scores_only = asked.max_tokens == 0 and bool(asked.echo)
    limit = MAX_TOKENS if asked.max_tokens is None else asked.max_tokens
    options = options_of(
        asked,
        context.settings,
        1 if scores_only else limit,
        logprobs=asked.logprobs is not None,
        top_logprobs=asked.logprobs or 0,
        echo=bool(asked.echo),
    )
    most = min(context.settings.most_prompts, context.settings.most_waiting)  # each has a place of its own
    service = context.service
    replies = await submit(
        context,
        lambda: [_ids(service, where, prompt) for where, prompt in _listed(asked.prompt, most)],
        options,
        asked,
        param="prompt",
    )
    label = fresh_id("cmpl")
    for reply in replies:
        reply.endpoint, reply.label, reply.scores_only = "/v1/completions", label, scores_only
    making = Completion(
        context,
        {
            "id": label,
            "object": "text_completion",
            "created": int(context.now()),
            "model": model,
            "system_fingerprint": context.fingerprint,
        },
        replies,
        scores_only=scores_only,
    )
    if asked.stream:
        frames = (frame(event) async for event in making.chunks(wants_usage=wants_usage))
        return EventStream(frames, context.settings, leave=making.leave, sleep=context.sleep)
    try:
        return json_response(await unless_left(request.receive, making.whole()))
    finally:
        making.leave()


class Completion:
    """A completion in the making; choice j of prompt i has the index i * n + j.

    Parameters
    ----------
    head
        What all of its events begin with.
    scores_only
        Whether only the prompt is wanted: the one token that had to be made is not shown.
    """

    def __init__(
        self, context: Context, head: Mapping[str, object], replies: Sequence[Reply], *, scores_only: bool
    ) -> None:
        self._head = head
        self._replies = replies
        self._scores_only = scores_only
        choices = [choice for reply in replies for choice in reply.choices]
        self._n = len(replies[0].choices)
        tokenizer = context.service.target.tokenizer
        self._offsets = [
            None if choice.sequence.logprobs is None else Offsets(tokenizer) for choice in choices
        ]

    def leave(self) -> None:
        """Cancel what has not ended."""
        for reply in self._replies:
            reply.cancel()

    async def whole(self) -> dict[str, object]:
        """Wait for all answers and return the response."""
        said: list[list[Event]] = [[] for _ in self._offsets]
        async for index, events in self._news():
            said[index] += events
        choices = [self._choice(index, events, self._reason(events)) for index, events in enumerate(said)]
        return {**self._head, "choices": choices, "usage": self._usage(), **self._ending()}

    async def chunks(self, *, wants_usage: bool) -> AsyncIterator[dict[str, object]]:
        """Yield a stream's events: text as it comes, why it ended; then the usage if that is wanted."""
        nothing: dict[str, object] = {"usage": None} if wants_usage else {}
        unended = len(self._offsets)
        async for index, events in self._news():
            shown_choice = self._choice(index, events, None)
            if shown_choice["text"] or (shown_choice["logprobs"] and self._visible(events)):
                yield {**self._head, "choices": [shown_choice], **nothing}
            if (reason := self._reason(events)) is not None:
                unended -= 1
                last = {} if unended or wants_usage else self._ending()
                yield {**self._head, "choices": [_chosen(index, "", None, reason)], **nothing, **last}
        if wants_usage:
            yield {**self._head, "choices": [], "usage": self._usage(), **self._ending()}

    async def _news(self) -> AsyncIterator[tuple[int, list[Event]]]:
        async for i, events in merged(self._replies):
            for index, group in by_choice(events):
                yield i * self._n + index, group

    def _visible(self, events: Sequence[Event]) -> Sequence[Event]:
        return [event for event in events if event.echo] if self._scores_only else events

    def _choice(self, index: int, events: Sequence[Event], reason: str | None) -> dict[str, object]:
        visible = self._visible(events)
        offsets = self._offsets[index]
        text = "".join(event.text for event in visible)
        return _chosen(index, text, None if offsets is None else offsets.columns(visible), reason)

    def _reason(self, events: Sequence[Event]) -> str | None:
        reason = events[-1].finish_reason
        return "length" if self._scores_only and reason is not None else reason

    def _usage(self) -> dict[str, object]:
        return usage(self._replies)

    def _ending(self) -> dict[str, object]:
        return {"seed": self._replies[0].choices[0].sequence.sampling.seed, **figures(self._replies)}


def _chosen(index: int, text: str, logprobs: object, reason: str | None) -> dict[str, object]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _listed(prompt: str | list[object], most: int) -> list[tuple[str, str | list[object]]]:
    """Return prompts with the names of their fields: one text, one list of ids, or a list of either.

    Raises
    ------
    Refusal
        400: a list that is empty, too long, or of something else.
    """
    if isinstance(prompt, str):
        return [("prompt", prompt)]
    if not prompt:
        raise Refusal.field("prompt", "the prompt is empty; give a text, token ids, or a list of these")
    if all(isinstance(item, int) for item in prompt):
        return [("prompt", prompt)]
    if len(prompt) > most:
        raise Refusal.field("prompt", f"prompt has {len(prompt)} prompts; at most {most} are allowed")
    found: list[tuple[str, str | list[object]]] = []
    for i, item in enumerate(prompt):
        if not isinstance(item, str | list):
            raise Refusal.field(f"prompt[{i}]", f"prompt[{i}] is {shown(item)}; give texts, or lists of ids")
        found.append((f"prompt[{i}]", item))
    return found


def _ids(service: Service, where: str, prompt: str | list[object]) -> list[int]:
    """Return the ids of one prompt.

    Raises
    ------
    Refusal
        400: it is empty, or has something that is no id.
    """
    if isinstance(prompt, str):
        ids = encoded(service, prompt)
    else:
        count = service.target.tokenizer.token_count
        ids = [token for token in prompt if isinstance(token, int) and 0 <= token < count]
        if len(ids) < len(prompt) or any(isinstance(token, bool) for token in prompt):
            wrong = next(
                token
                for token in prompt
                if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < count
            )
            raise Refusal.field(where, f"{where} has the id {shown(wrong)}; ids go from 0 to {count - 1}")
    if not ids:
        raise Refusal.field(where, f"{where} is empty; give at least one token to continue from")
    return ids
