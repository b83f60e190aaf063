"""Byte-level byte-pair encoding written again, slowly and plainly, to check the fast one against."""

from __future__ import annotations

from math import inf

import regex

GPT2 = regex.compile(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = regex.compile(CL100K % r"\p{N}")
LLAMA3 = regex.compile(CL100K % r"\p{N}{1,3}")


def cut(text: str, pre: str) -> list[str]:
    if pre in {"qwen2", "llama-bpe"}:
        return list((QWEN2 if pre == "qwen2" else LLAMA3).findall(text))
    parts = regex.split(r"(\p{N})", text) if pre == "smollm" else [text]
    return [word for part in parts for word in GPT2.findall(part)]


def letters() -> dict[int, str]:
    """Return the letter of each byte: itself if it can be seen, else the next one from U+0100 on."""
    table: dict[int, str] = {}
    spare = 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or (0xA1 <= byte <= 0xFF and byte != 0xAD):
            table[byte] = chr(byte)
        else:
            table[byte] = chr(spare)
            spare += 1
    return table


LETTERS = letters()


class Encoder:
    """Merges the pair of the lowest rank, leftmost first, until none is left."""

    def __init__(self, tokens: list[str], merges: list[str], pre: str) -> None:
        self.ids = {text: token for token, text in enumerate(tokens)}
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self.pre = pre

    def encode(self, text: str) -> list[int]:
        """Return the ids, special tokens being plain text; bytes without a token are dropped."""
        return [token for word in cut(text, self.pre) for token in self._word(word)]

    def _word(self, word: str) -> list[int]:
        parts = [LETTERS[byte] for byte in word.encode("utf-8")]
        if self.pre == "llama-bpe" and "".join(parts) in self.ids:
            return [self.ids["".join(parts)]]
        while len(parts) > 1:
            rank, at = min((self.ranks.get((parts[i], parts[i + 1]), inf), i) for i in range(len(parts) - 1))
            if rank == inf:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self.ids[part] for part in parts if part in self.ids]
