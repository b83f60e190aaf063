"""What may stand in a request to /v1/responses, and the conversation that it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from pilotfish.errors import shown, shown_name
from pilotfish.logprobs import MOST_TOP
from pilotfish.server.chat import ROLES
from pilotfish.server.refusals import Refusal
from pilotfish.server.sampling_fields import SamplingFields

if TYPE_CHECKING:
    from pilotfish.llm import Message

LOGPROBS: Final = "message.output_text.logprobs"
"""What `include` has if log-probabilities are wanted."""

INCLUDABLE: Final = frozenset({LOGPROBS, "reasoning.encrypted_content"})
"""What `include` may have: log-probabilities, and what no answer has here."""

TEXTS: Final = ("input_text", "output_text", "text")
"""Types of parts; a chat's name for text is taken too."""

MESSAGE_FIELDS: Final = frozenset({"type", "role", "content", "id", "status", "phase"})
PART_FIELDS: Final = frozenset({"type", "text", "annotations", "logprobs", "prompt_cache_breakpoint"})
"""Fields that are read, and those with which earlier answers come back and which say nothing new."""


class TextFormat(msgspec.Struct, forbid_unknown_fields=True):
    """`text.format`: plain text is all there is."""

    type: str = "text"


class TextConfig(msgspec.Struct, forbid_unknown_fields=True):
    """`text` of a request."""

    format: TextFormat | None = None
    verbosity: str | None = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`stream_options` of a request: no padding is sent, so none may be asked for."""

    include_obfuscation: bool | None = None


class ResponsesRequest(SamplingFields, kw_only=True):
    """A request to /v1/responses.

    OpenAI's fields, and beside them the sampling options of the other endpoints.
    """

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    text: TextConfig | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether log-probabilities come with the text."""
        return bool(self.top_logprobs) or LOGPROBS in (self.include or ())

    def check(self) -> None:
        """Refuse values that can't be honoured.

        Raises
        ------
        Refusal
            400, naming the field.
        """
        for i, name in enumerate(self.include or ()):
            if name not in INCLUDABLE:
                _refuse(
                    f"include[{i}]", f"is {shown(name)}; answers are text, and {LOGPROBS} all it can have"
                )
        if self.top_logprobs is not None and not 0 <= self.top_logprobs <= MOST_TOP:
            _refuse("top_logprobs", f"is {self.top_logprobs}; it is from 0 to {MOST_TOP}", "invalid_value")
        if self.n not in {None, 1}:
            _refuse("n", f"is {self.n}; a response is one answer", "invalid_value")
        text = self.text or TextConfig()
        if text.format is not None and text.format.type != "text":
            _refuse("text.format.type", f"is {shown(text.format.type)}; answers are plain text")
        if text.verbosity not in {None, "medium"}:
            _refuse("text.verbosity", f"is {shown(text.verbosity)}; no model here takes it, leave it out")
        if self.stream_options is not None and not self.stream:
            _refuse("stream_options", "is set, but stream is not; set stream too")
        if self.stream_options is not None and self.stream_options.include_obfuscation:
            _refuse("stream_options.include_obfuscation", "is not supported; events have no padding")

    def messages(self) -> list[Message]:
        """Return the conversation, with `instructions` first.

        Raises
        ------
        Refusal
            400, naming the place of what is no text.
        """
        given = [_user(self.input)] if isinstance(self.input, str) else _read_items(self.input)
        if self.instructions:
            if given and given[0]["role"] == "system":  # templates have one place for it
                given[0] = {"role": "system", "content": f"{self.instructions}\n\n{given[0]['content']}"}
            else:
                given.insert(0, {"role": "system", "content": self.instructions})
        return given


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _read_items(items: list[dict[str, Any]]) -> list[Message]:
    if not items:
        _refuse("input", "is empty; give text, or at least one message", "invalid_value")
    return [_read_item(item, f"input[{i}]") for i, item in enumerate(items)]


def _read_item(item: Mapping[str, Any], path: str) -> Message:
    kind = item.get("type", "message")
    if kind != "message":
        _refuse(
            f"{path}.type", f"is {shown(kind)}; only messages are taken: no tools are called, nothing is kept"
        )
    _check_known(item, path, MESSAGE_FIELDS)
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        _refuse(f"{path}.role", f"is {shown(role)}; use {', '.join(ROLES)}", "invalid_value")
    content = item.get("content")
    if isinstance(content, str):
        return {"role": ROLES[role], "content": content}
    if not isinstance(content, list):
        _refuse(f"{path}.content", f"is {shown(content)}; give a string or a list of parts", "invalid_type")
    parts = [_read_part(part, f"{path}.content[{i}]") for i, part in enumerate(content)]
    return {"role": ROLES[role], "content": "\n".join(parts)}


def _read_part(part: object, path: str) -> str:
    if not isinstance(part, dict):
        _refuse(path, f"is {shown(part)}; give an object with type and text", "invalid_type")
    if part.get("type") not in TEXTS:
        _refuse(f"{path}.type", f"is {shown(part.get('type'))}; only text is read: use input_text")
    _check_known(part, path, PART_FIELDS)
    text = part.get("text")
    if not isinstance(text, str):
        _refuse(f"{path}.text", f"is {shown(text)}; give a string", "invalid_type")
    return text


def _check_known(given: Mapping[str, Any], path: str, known: frozenset[str]) -> None:
    for name, value in given.items():
        if name not in known and value is not None:
            _refuse(f"{path}.{shown_name(name)}", "is not supported; leave it out")


def _refuse(param: str, why: str, code: str = "unsupported_parameter") -> NoReturn:
    raise Refusal.field(param[:80], f"{param} {why}", code)
