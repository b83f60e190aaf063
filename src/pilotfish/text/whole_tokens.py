"""Tokens that stand in a text as they are: control tokens, and those that a model's makers added."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pilotfish.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pilotfish.text.vocabulary import Vocabulary

LONGEST = 512
"""Most characters of one."""


class WholeTokens:
    """Tokens that are cut out of a text as they stand, leftmost first, of those the longest.

    They are looked up by first character and length: a pattern of all their texts would take time by their
    number at each character, and a file may hold a million.
    """

    def __init__(self, vocabulary: Vocabulary, ids: Iterable[int]) -> None:
        self._ids = {vocabulary.tokens[token]: token for token in ids}
        lengths: dict[str, set[int]] = {}
        for text, token in self._ids.items():
            if len(text) > LONGEST:
                raise FormatError(
                    f"token {token} is cut out of texts whole and has {len(text)} characters "
                    f"(at most {LONGEST} are accepted)",
                    "fetch the file again",
                )
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(its, reverse=True) for first, its in lengths.items()}
        self._firsts = re.compile(f"[{''.join(map(re.escape, lengths))}]") if lengths else None

    def partition(self, text: str) -> Iterator[str | int]:
        """Yield the ids of such tokens and the text between them."""
        at = 0
        for match in self._firsts.finditer(text) if self._firsts else ():
            start = match.start()
            if start < at:
                continue
            for length in self._lengths[text[start]]:
                piece = text[start : start + length]
                found = self._ids.get(piece)
                if found is not None:
                    if start > at:
                        yield text[at:start]
                    yield found
                    at = start + len(piece)
                    break
        if at < len(text):
            yield text[at:]
