"""Log-probabilities as OpenAI tells them: a list of entries in a chat, columns in a completion."""

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


class Offsets:
    """The columns of one completion, which know where in its text each token begins.

    A token that completes no character begins where the next one's text does.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def columns(self, events: Sequence[Event]) -> dict[str, list[object]]:
        """Return `tokens`, `token_logprobs`, `top_logprobs` and `text_offset` of the next events.

        The token itself is always among the likeliest, as in OpenAI's interface, so there may be one more
        than were asked for. The first token of a prompt has none: nothing stands before it.
        """
        offsets: list[object] = []
        for event in events:
            offsets.append(self._offset)
            self._offset += len(event.text)
        return {
            "tokens": [token_text(self._tokenizer, event.token) for event in events],
            "token_logprobs": [event.logprob for event in events],
            "top_logprobs": [self._top(event) for event in events],
            "text_offset": offsets,
        }

    def _top(self, event: Event) -> dict[str, float] | None:
        if event.logprob is None:
            return None
        top: dict[str, float] = {}
        for token, logprob in (*event.top_logprobs, (event.token, event.logprob)):
            top.setdefault(token_text(self._tokenizer, token), logprob)
        return top


def token_text(tokenizer: Tokenizer, token: int) -> str:
    r"""Return a token's text; one that is part of a character is written as `bytes:\xe4\xbd`."""
    raw = tokenizer.shown_bytes(token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
