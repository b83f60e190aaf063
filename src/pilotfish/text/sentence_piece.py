"""Byte-pair encoding over characters, as SentencePiece does it (Kudo and Richardson 2018).

There are no merges in the file: two neighbours become one wherever that is a token, the one with the highest
score first, of equals the leftmost. A character that no token covers becomes its bytes.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import models

from pilotfish.errors import FormatError, UnsupportedError
from pilotfish.text.merging import ids_of
from pilotfish.text.vocabulary import SPACE, Kind, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCORES = "tokenizer.ggml.scores"

_LONGEST = 256
"""Characters of a token: every way to cut one is looked at."""


class SentencePieceEncoder:
    """Encodes text without special tokens.

    Attributes
    ----------
    adds_bos
        Whether a file that doesn't say so wants the beginning-of-text token.

    Raises
    ------
    UnsupportedError
        Some of the 256 byte tokens are missing, or a token is very long.
    FormatError
        Scores that are missing or don't fit the tokens.
    """

    adds_bos = True

    def __init__(self, metadata: Mapping[str, object], vocabulary: Vocabulary) -> None:
        prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
        self._prefix = SPACE if prefix else ""
        self._byte_ids = _byte_ids(vocabulary)
        self._size = len(vocabulary.tokens)
        pieces = {
            text: token
            for token, text in enumerate(vocabulary.tokens)
            if vocabulary.kinds[token] is Kind.NORMAL
        }
        # Characters that are in tokens but are none themselves may still be merged: they get ids beyond the
        # vocabulary, and become bytes only if they are left over.
        within = sorted(set().union(*pieces).difference(pieces))
        self._left_over = dict(enumerate(within, self._size))
        pieces |= {letter: token for token, letter in self._left_over.items()}
        merges = _merges(pieces, _scores(metadata, vocabulary), vocabulary.tokens)
        pieces |= {vocabulary.tokens[token]: token for token in self._byte_ids}
        try:
            model = models.BPE(pieces, merges, byte_fallback=True)
        except (UnicodeEncodeError, ValueError, TypeError) as error:
            raise FormatError(f"the vocabulary can't be used: {error}", "fetch the file again") from None
        self._bpe = tokenizers.Tokenizer(model)

    def encode(self, text: str, *, begins: bool, beside: bool = False) -> list[int]:
        """Return the ids of a text. Most vocabularies want a space before it where it `begins`."""
        text = (self._prefix if begins else "") + text.replace(" ", SPACE)
        found = ids_of(self._bpe, text, beside=beside)
        if not self._left_over or max(found, default=0) < self._size:
            return found
        ids = []
        for token in found:
            if token < self._size:
                ids.append(token)
            else:
                ids.extend(self._byte_ids[byte] for byte in self._left_over[token].encode())
        return ids


def _byte_ids(vocabulary: Vocabulary) -> list[int]:
    """Return the token of each byte."""
    found = {
        vocabulary.raw_bytes(token)[0]: token
        for token, kind in enumerate(vocabulary.kinds)
        if kind is Kind.BYTE
    }
    if len(found) < 256:
        raise UnsupportedError(
            f"the vocabulary has tokens for {len(found)} of the 256 bytes",
            "one that spells what it does not know in bytes is needed",
        )
    return [found[byte] for byte in range(256)]


def _scores(metadata: Mapping[str, object], vocabulary: Vocabulary) -> list[float]:
    scores = metadata.get(_SCORES)
    if not isinstance(scores, list) or len(scores) != len(vocabulary.tokens):
        count = len(scores) if isinstance(scores, list) else "no"
        raise FormatError(
            f"{_SCORES} has {count} entries for {len(vocabulary.tokens)} tokens", "fetch the file again"
        )
    for token, score in enumerate(scores):
        if not isinstance(score, float) or not isfinite(score):
            raise FormatError(f"{_SCORES}[{token}] is {score!r}, not a number", "fetch the file again")
    return scores


def _merges(pieces: Mapping[str, int], scores: list[float], tokens: list[str]) -> list[tuple[str, str]]:
    """Return every pair that makes a token, those of the highest score first.

    A token that is reached at all is always reached by the same pair, for nothing outside its letters decides
    what is merged within; so which pair of a token goes first makes no difference.
    """
    known = [token for token in pieces.values() if token < len(tokens)]
    long = next((token for token in known if len(tokens[token]) > _LONGEST), None)
    if long is not None:
        raise UnsupportedError(
            f"token {long} has {len(tokens[long])} characters", f"up to {_LONGEST} are supported"
        )
    known.sort(key=lambda token: -scores[token])
    return [
        (left, right)
        for text in map(tokens.__getitem__, known)
        for cut in range(1, len(text))
        if (left := text[:cut]) in pieces and (right := text[cut:]) in pieces
    ]
