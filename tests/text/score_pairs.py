"""SentencePiece's byte-pair encoding written again, slowly and plainly, to check the fast one against."""

from __future__ import annotations

from typing import Any


class ScoreEncoder:
    """Joins the two neighbours whose token has the highest score, leftmost first, until none are left."""

    def __init__(self, entries: dict[str, Any]) -> None:
        keys = ("tokens", "scores", "token_type")
        tokens, scores, kinds = (entries[f"tokenizer.ggml.{key}"] for key in keys)
        self.ids = {text: i for i, text in enumerate(tokens) if kinds[i] == 1}
        self.bytes = {int(text[3:5], 16): i for i, text in enumerate(tokens) if kinds[i] == 6}
        self.scores = scores
        self.prefix = entries.get("tokenizer.ggml.add_space_prefix", True)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text that has no special tokens in it."""
        parts = list(((" " if self.prefix and text else "") + text).replace(" ", "\u2581"))
        while True:
            pairs = [
                (-self.scores[self.ids[parts[i] + parts[i + 1]]], i)
                for i in range(len(parts) - 1)
                if parts[i] + parts[i + 1] in self.ids
            ]
            if not pairs:
                break
            at = min(pairs)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        found: list[int] = []
        for part in parts:
            found += [self.ids[part]] if part in self.ids else [self.bytes[byte] for byte in part.encode()]
        return found
