"""A conversation as prompts: each turn of the user with all that was said before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pilotfish.bench.prompts import Prompt
    from pilotfish.model import TextModel


class Asked(NamedTuple):
    """One turn: its number from 1 on, its name, and the ids to answer."""

    number: int
    name: str
    ids: list[int]


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

    def ask_each(self, prompt: Prompt, turns: str, context: int, skipped: list[str]) -> Iterator[Asked]:
        """Ask a prompt's turns, the `first` or `all`; the answer to each must be heard before the next.

        It ends at a turn that does not fit the context; the turn's name is then added to `skipped`, once.
        """
        for number, turn in enumerate(prompt.turns if turns == "all" else prompt.turns[:1], 1):
            asked = Asked(number, prompt.id if number == 1 else f"{prompt.id}/{number}", self.ask(turn))
            if len(asked.ids) >= context:
                if asked.name not in skipped:
                    skipped.append(asked.name)
                return
            yield asked
