"""From prompts to replies: tokenized beside the event loop, submitted all or none."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from pilotfish.errors import PromptTooLong
from pilotfish.sequence import too_long
from pilotfish.server.refusals import Refusal
from pilotfish.server.sampling_fields import SamplingFields, naming

if TYPE_CHECKING:
    from pilotfish.answer import Choice, Event
    from pilotfish.options import Options
    from pilotfish.server.context import Context
    from pilotfish.server.service import Reply, Service


async def submit(
    context: Context,
    prompts: Callable[[], Sequence[Sequence[int]]],
    options: Options,
    asked: SamplingFields,
    *,
    param: str,
) -> list[Reply]:
    """Submit prompts in the partition of their request, and return a reply for each.

    Parameters
    ----------
    prompts
        Makes the ids of the prompts; called in another thread.
    param
        The field that they come from, which a refusal names.

    Raises
    ------
    Refusal, PilotfishError
        One of them can't be answered, or not now; then none is.
    """
    service, limit = context.service, asked.draft_limit

    def made() -> list[list[Choice]]:
        make = functools.partial(service.choices, options=options, draft_limit=limit)
        return [naming(functools.partial(make, tokens)) for tokens in prompts()]

    replies: list[Reply] = []
    try:
        for choices in await service.in_thread(made):
            reply = service.submit(choices, salt=context.salt(asked.cache_salt))
            replies.append(reply)
    except Exception as error:
        for reply in replies:
            reply.cancel()
        refusal = Refusal.of(error)
        raise (refusal.named(param) if isinstance(error, PromptTooLong) else refusal) from None
    return replies


def encoded(service: Service, text: str, *, bos: bool | None = None) -> list[int]:
    """Return the ids of a text; one that can't fit the context is not tokenized, which would take long.

    Raises
    ------
    PromptTooLong
        It has more bytes than the context's tokens can have.
    """
    least = len(text.encode("utf-8", "replace")) // service.longest_token
    if least >= service.context:
        raise too_long(f"at least {least}", service.context)
    return service.target.tokenizer.encode(text, special=True, bos=bos, beside=True)


async def merged(replies: Sequence[Reply]) -> AsyncIterator[tuple[int, list[Event]]]:
    """Yield the index of a reply and its next events, whichever comes first, until all have ended."""
    if len(replies) == 1:
        async for events in replies[0]:
            yield 0, events
        return
    waiting = {asyncio.ensure_future(anext(reply, None)): i for i, reply in enumerate(replies)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                i = waiting.pop(task)
                more = task.result()
                if more is not None:
                    yield i, more
                    waiting[asyncio.ensure_future(anext(replies[i], None))] = i
    finally:
        for task in waiting:
            task.cancel()
