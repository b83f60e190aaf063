"""Log-probabilities as OpenAI's chat tells them: each token as text and as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.answer import Event
    from pilotfish.text.tokenizer import Tokenizer


def entries(tokenizer: Tokenizer, events: Sequence[Event]) -> list[dict[str, object]]:
    """Return one entry a token, that of an end token included."""
    return [
        {
            **_entry(tokenizer, event.token, event.logprob),
            "top_logprobs": [_entry(tokenizer, token, logprob) for token, logprob in event.top_logprobs],
        }
        for event in events
    ]


def _entry(tokenizer: Tokenizer, token: int, logprob: float | None) -> dict[str, object]:
    raw = tokenizer.shown_bytes(token)
    return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}
