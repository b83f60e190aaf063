"""`POST /tokenize` and `POST /detokenize`, with the field names of vLLM and of llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pilotfish.errors import PromptTooLong, shown
from pilotfish.server import models
from pilotfish.server.chat import Message, prompt_of, texts
from pilotfish.server.logprob_fields import token_text
from pilotfish.server.reading import read
from pilotfish.server.refusals import Refusal, json_response
from pilotfish.server.submitting import encoded

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pilotfish.server.context import Context


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """One of `prompt`, `content` (llama.cpp's name for it) and `messages`."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """The ids."""

    model: str | None = None
    tokens: list[int]


async def tokenize(context: Context, request: Request) -> Response:
    """Return the ids of a text, or of what the chat template makes of messages."""
    asked = await read(request, context, TokenizeRequest)
    models.checked(context, asked.model)
    named = {"prompt": asked.prompt, "content": asked.content, "messages": asked.messages}
    given = [(name, text) for name, text in named.items() if text is not None]
    if len(given) != 1:
        raise Refusal.field("prompt", f"{len(given)} texts are given; give prompt, or content, or messages")
    begins = [one for one in (asked.add_special_tokens, asked.add_special) if one is not None]
    service, (name, text) = context.service, given[0]

    def work() -> list[int]:
        if not isinstance(text, str):
            return prompt_of(service, texts(text))
        # As a prompt is read, unless the beginning-of-text token is not wanted.
        return encoded(service, text, bos=False if begins[:1] == [False] else None)

    try:
        ids = await service.in_thread(work)
    except PromptTooLong as error:
        raise Refusal.of(error).named(name) from None
    found: dict[str, object] = {"count": len(ids), "max_model_len": service.context, "tokens": ids}
    if asked.return_token_strs:
        found["token_strs"] = [token_text(service.target.tokenizer, token) for token in ids]
    return json_response(found)


async def detokenize(context: Context, request: Request) -> Response:
    """Return the text of ids; special tokens are shown as they are written."""
    asked = await read(request, context, DetokenizeRequest)
    models.checked(context, asked.model)
    tokenizer = context.service.target.tokenizer
    most = context.settings.most_body_bytes // context.service.longest_token
    if len(asked.tokens) > most:  # an id of a few digits may stand for a hundred bytes
        raise Refusal.field(
            "tokens", f"tokens has {len(asked.tokens)} ids; at most {most} are allowed, so send them in parts"
        )
    for token in asked.tokens:
        if not 0 <= token < tokenizer.token_count:
            raise Refusal.field(
                "tokens", f"tokens has the id {shown(token)}; ids go from 0 to {tokenizer.token_count - 1}"
            )
    text = await context.service.in_thread(lambda: tokenizer.decode(asked.tokens, special=True))
    return json_response({"prompt": text, "content": text})
