"""A conversation as prompts: each turn of the user with all that was said before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.model import TextModel


class Conversation:
    """Turns through the chat template; or, `raw` or for a base model, one growing text.

    Parameters
    ----------
    model
        Whose tokens and template count.
    raw
        Leave the template out.
    """

    def __init__(self, model: TextModel, *, raw: bool) -> None:
        self._tokenizer = model.tokenizer
        self._template = None if raw else model.template
        self._messages: list[dict[str, str]] = []

    def ask(self, turn: str) -> list[int]:
        """Return the ids to answer when the user says this."""
        self._messages.append({"role": "user", "content": turn})
        if self._template is None:
            text = "\n".join(message["content"] for message in self._messages)
            return self._tokenizer.encode(text, special=True)
        text = self._template.render(self._messages, add_generation_prompt=True)
        return self._tokenizer.encode(text, special=True, bos=False)

    def hear(self, answer: list[int]) -> None:
        """Take the answer's ids."""
        self._messages.append({"role": "assistant", "content": self._tokenizer.decode(answer)})
