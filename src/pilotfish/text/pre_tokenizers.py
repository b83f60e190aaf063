"""How text is cut before byte-pair encoding, by the name that stands in `tokenizer.ggml.pre`.

The patterns are those of the models' own tokenizer files; llama.cpp's llama-vocab.cpp says which name means
which. A name that is not listed is refused: a wrong cut gives plausible but wrong ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _tiktoken(digits: str) -> str:
    """Return the pattern of the cl100k kind: contractions in any case, newlines kept with punctuation."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way to cut.

    Attributes
    ----------
    patterns
        Regular expressions, applied one after the other; each match and each gap between matches is a piece.
    ignore_merges
        A piece that is itself a token is taken as that token, whatever the merges say.
    adds_bos
        Whether a file that doesn't say so wants the beginning-of-text token.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False


_SMOLLM: Final = PreTokenizer((r"\p{N}", _GPT2))
_QWEN2: Final = PreTokenizer((_tiktoken(r"\p{N}"),))
_LLAMA3: Final = PreTokenizer((_tiktoken(r"\p{N}{1,3}"),), ignore_merges=True, adds_bos=True)

PRE_TOKENIZERS: Final = {
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
}
