"""What is served, and under which names: `/v1/models`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.errors import shown
from pilotfish.server.refusals import Refusal, json_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pilotfish.server.context import Context


def names(context: Context) -> list[str]:
    """Return the model's own name, then the others."""
    return list(dict.fromkeys([context.service.target.name, *context.settings.aliases]))


def checked(context: Context, model: str | None) -> str:
    """Return the name that a request gives the model; one that names none gets what there is.

    Raises
    ------
    Refusal
        404 for a name that nothing is served under.
    """
    known = names(context)
    if model is None:
        return known[0]
    if model not in known:
        raise Refusal(
            404,
            f"the model {shown(model)} does not exist; served here: {', '.join(known)}",
            code="model_not_found",
            param="model",
        )
    return model


async def listed(context: Context, request: Request) -> Response:
    """Answer `GET /v1/models`."""
    del request
    return json_response({"object": "list", "data": [_card(context, name) for name in names(context)]})


async def one(context: Context, request: Request) -> Response:
    """Answer `GET /v1/models/NAME`."""
    return json_response(_card(context, checked(context, request.path_params["model"])))


def _card(context: Context, name: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": context.started,
        "owned_by": "pilotfish",
        "root": context.service.target.name,
        "max_model_len": context.service.context,
    }
