"""`GET /tokenizer_info`, as vLLM has it: with it and /tokenize, lm_eval needs no tokenizer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.server.logprob_fields import token_text
from pilotfish.server.refusals import json_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pilotfish.server.context import Context


async def answer(context: Context, request: Request) -> Response:
    """Return what begins and ends a text, as text, and the chat template; null is what the model has not."""
    del request
    target = context.service.target
    tokenizer = target.tokenizer

    def written(token: int | None) -> str | None:
        return None if token is None else token_text(tokenizer, token)

    return json_response(
        {
            "tokenizer_class": str(tokenizer.vocabulary.model),
            "bos_token": written(tokenizer.bos_id),
            "eos_token": written(tokenizer.vocabulary.eos_id),
            "chat_template": None if target.template is None else target.template.source,
            "vocab_size": tokenizer.token_count,
            "model_max_length": context.service.context,
        }
    )
