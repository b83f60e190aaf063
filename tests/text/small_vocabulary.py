"""A vocabulary of some 270 tokens: all bytes, a few merges, special tokens and padding."""

from __future__ import annotations

from typing import Any

from pilotfish.text.tokenizer import Tokenizer

LETTERS = [chr(byte) for byte in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]]
LETTERS += [chr(0x100 + index) for index in range(256 - len(LETTERS))]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "Ã ©", "Ċ Ċ"]
WORDS = [merge.replace(" ", "") for merge in MERGES]
SPECIAL = [("<|endoftext|>", 3), ("<|im_start|>", 3), ("<|im_end|>", 3), ("<tool_call>", 4)]
PADDING = [("[PAD267]", 5), ("[PAD268]", 5)]
TOKENS = LETTERS + WORDS + [text for text, _ in SPECIAL + PADDING]
ID = {text: token for token, text in enumerate(TOKENS)}


def metadata(**changes: Any) -> dict[str, Any]:
    """Return GGUF metadata; keywords replace entries (`pre="x"`), None removes one."""
    entries: dict[str, Any] = {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": list(TOKENS),
        "token_type": [1] * (len(LETTERS) + len(WORDS)) + [kind for _, kind in SPECIAL + PADDING],
        "merges": list(MERGES),
        "eos_token_id": ID["<|im_end|>"],
        "bos_token_id": ID["<|endoftext|>"],
        "add_bos_token": False,
    }
    entries |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in entries.items() if value is not None}


def tokenizer(**changes: Any) -> Tokenizer:
    return Tokenizer.from_metadata(metadata(**changes))
