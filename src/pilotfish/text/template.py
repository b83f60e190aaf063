"""Chat templates: messages to the prompt text the model was trained on."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jinja2.exceptions import TemplateError as JinjaError

from pilotfish.errors import TemplateError, UsageError
from pilotfish.text.sandbox import BUDGET, Budget, environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KEY: Final = "tokenizer.chat_template"
_LONGEST_SOURCE = 1 << 17
_WORK = 3_000_000
_LARGEST = 1 << 20


class _Refusal(Exception):
    """The template called `raise_exception`."""


class ChatTemplate:
    """A compiled chat template; the source is untrusted and runs in a sandbox with a budget.

    Attributes
    ----------
    source
        The jinja2 source.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        """Compile.

        Parameters
        ----------
        source
            jinja2, as Hugging Face's chat templates are written.
        special_tokens
            Variables such as `bos_token` that the template may use.

        Raises
        ------
        TemplateError
            Too long, or not valid jinja2.
        """
        if len(source) > _LONGEST_SOURCE:
            raise TemplateError(
                f"the chat template has {len(source)} characters; {_LONGEST_SOURCE} are allowed", _HINT
            )
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        token = BUDGET.set(Budget(_WORK, _LARGEST))
        try:
            self._template = environment().from_string(source)
        except Exception as error:
            raise _failure(error) from None
        finally:
            BUDGET.reset(token)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> ChatTemplate:
        """Take the template and the special tokens from the metadata of a GGUF file.

        Raises
        ------
        TemplateError
            There is none (base models have none), or it can't be compiled.
        """
        source = metadata.get(_KEY)
        if not isinstance(source, str) or not source:
            raise TemplateError(
                f"the model has no chat template ({_KEY} is {'missing' if source is None else 'not a text'})",
                "it may be a base model: give it a plain prompt, or use an instruct model",
            )
        return cls(source, _special_tokens(metadata))

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        add_generation_prompt: bool = True,  # noqa: FBT001, FBT002 - Hugging Face's order and name
        tools: Sequence[Mapping[str, object]] | None = None,
    ) -> str:
        """Return the prompt; tokenize it with `encode(..., special=True)`, which adds no second BOS.

        Parameters
        ----------
        messages
            At least one, each with `role` and `content`, both str; other entries are passed on.
        add_generation_prompt
            Whether to end with the start of the assistant's answer.
        tools
            JSON schemas of functions, or None.

        Raises
        ------
        UsageError
            Messages of another form.
        TemplateError
            The template refuses the messages, fails, or takes too much time or memory.
        """
        plain = [_message(index, message) for index, message in enumerate(_listed(messages))]
        size = _size(plain) + _size(tools)
        variables = self._special_tokens | {
            "messages": plain,
            "add_generation_prompt": add_generation_prompt,
            "tools": tools,
            "documents": None,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        budget = Budget(_WORK + 4 * size, _LARGEST + 8 * size)
        token = BUDGET.set(budget)
        try:
            pieces: list[str] = []
            length = 0
            for piece in self._template.generate(variables):
                budget.text(len(piece))
                length += len(piece)
                budget.check_length(length)
                pieces.append(piece)
        except Exception as error:
            raise _failure(error) from None
        finally:
            BUDGET.reset(token)
        return "".join(pieces)


_HINT = "use a model file with another template, or give a plain prompt"


def _failure(error: Exception) -> TemplateError:
    if isinstance(error, _Refusal):
        return TemplateError(f"the chat template refuses these messages: {str(error)[:300]}")
    what = (
        str(error)[:300] if isinstance(error, JinjaError) else f"{type(error).__name__}: {str(error)[:300]}"
    )
    return TemplateError(f"the chat template fails: {what}", _HINT)


def _special_tokens(metadata: Mapping[str, object]) -> dict[str, str]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    found: dict[str, str] = {}
    for variable, name in names.items():
        token = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(tokens, list) and isinstance(token, int) and 0 <= token < len(tokens):
            found[variable] = str(tokens[token])
    return found


def _listed(messages: object) -> list[object]:
    if not isinstance(messages, list | tuple) or not messages:
        raise UsageError(f"messages must be a list of at least one message, not {str(messages)[:60]!r}")
    return list(messages)


def _message(index: int, message: object) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise UsageError(f"message {index} must be a dict, not {str(message)[:60]!r}")
    for key in ("role", "content"):
        if not isinstance(message.get(key), str):
            raise UsageError(
                f"message {index} has {key} {str(message.get(key))[:60]!r}, which is not a text",
                'write {"role": "user", "content": "…"}',
            )
    return dict(message)


def _size(value: object) -> int:
    """Return what a value holds: one for a character, 64 for an item."""
    if isinstance(value, str):
        return 64 + len(value)
    if isinstance(value, dict):
        return 64 + sum(_size(key) + _size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return 64 + sum(map(_size, value))
    if value is None or isinstance(value, int | float):
        return 64
    raise UsageError(f"messages and tools may hold JSON values only, not a {type(value).__name__}")


def _raise_exception(message: object) -> NoReturn:
    BUDGET.get().weigh(message, as_text=True)
    raise _Refusal(message)


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 100 or re.search(r"%[^a-zA-Z%]*\d", pattern):
        raise JinjaError(f"it formats the date with {pattern[:40]!r}")
    return datetime.now().astimezone().strftime(pattern)
