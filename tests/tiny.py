"""Models without weights, for the layers above engines: a byte-level vocabulary, scripted answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gguf_files import GgufFile
from pilotfish.engines.scripted import Rule, ScriptedEngine, answers, ngrams
from pilotfish.llm import LLM
from pilotfish.model import Model, TextModel
from pilotfish.text.template import ChatTemplate
from pilotfish.text.tokenizer import Tokenizer
from pilotfish.text.vocabulary import LETTER_TO_BYTE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

END, START = 256, 257
"""Ids behind the 256 bytes; then come three of padding."""
VOCAB_SIZE = 261

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def metadata(**changes: object) -> dict[str, object]:
    """Return what a GGUF header would say about a vocabulary of bytes, in order."""
    letters = {byte: chr(letter) for letter, byte in LETTER_TO_BYTE.items()}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [letters[b] for b in range(256)]
        + ["<|im_end|>", "<|im_start|>", "[PAD258]", "[PAD259]", "[PAD260]"],
        "tokenizer.ggml.token_type": [1] * 256 + [3, 3] + [5] * 3,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": END,
        "tokenizer.chat_template": TEMPLATE,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }


def tiny_model(rule: Rule | None = None, *, context: int = 4096, template: bool = True) -> TextModel:
    """Return a target; by default one that babbles, deterministically."""
    header = metadata()
    return TextModel(
        name="tiny",
        engine=tiny_engine(rule, context),
        tokenizer=Tokenizer.from_metadata(header),
        template=ChatTemplate.from_metadata(header) if template else None,
        isa="scripted",
    )


def tiny_draft(rule: Rule | None = None, *, context: int = 4096) -> Model:
    """Return a draft model; by default one that always agrees with the default target."""
    return Model(name="tiny-draft", engine=tiny_engine(rule, context))


def tiny_engine(rule: Rule | None = None, context: int = 4096) -> ScriptedEngine:
    return ScriptedEngine(rule or ngrams(VOCAB_SIZE), VOCAB_SIZE, context)


def says(script: Mapping[str, str | bytes | Sequence[int]]) -> Rule:
    """Answer each prompt with its text, bytes or ids, and then end."""
    ids: dict[tuple[int, ...], Sequence[int]] = {}
    for prompt, answer in script.items():
        said = answer.encode() if isinstance(answer, str) else answer
        ids[tuple(prompt.encode())] = [*said]
    return answers(ids, VOCAB_SIZE, END)


def tiny_llm(script: Mapping[str, str | bytes | Sequence[int]], *, context: int = 4096) -> LLM:
    """Return a model that answers by a script, without a drafter."""
    return LLM(tiny_model(says(script), context=context))


HEADER: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 20_000,
    "llama.block_count": 2,
    "llama.embedding_length": 32,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}


def write_header(folder: Path, name: str = "target.gguf", **changes: Any) -> str:
    """Write a file that is all header, with keys replaced, or left out if None."""
    header = {**HEADER, **metadata(), **{key.replace("__", "."): value for key, value in changes.items()}}
    path = folder / name
    path.write_bytes(GgufFile([(k, v) for k, v in header.items() if v is not None]).build())
    return str(path)
