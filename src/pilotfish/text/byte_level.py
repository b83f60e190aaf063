"""Byte-pair encoding over bytes: the merges in the file, within pieces that a pre-tokenizer cuts (GPT-2)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, cast

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from pilotfish.errors import FormatError, UnsupportedError, shown
from pilotfish.text.merging import ids_of
from pilotfish.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from pilotfish.text.vocabulary import LETTER_TO_BYTE, Kind, Vocabulary, strings_at

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALPHABET: Final = [chr(letter) for letter in LETTER_TO_BYTE]


class ByteLevelEncoder:
    """Encodes text without special tokens. Bytes that the vocabulary lacks give no id, as in llama.cpp.

    Attributes
    ----------
    adds_bos
        Whether a file that doesn't say so wants the beginning-of-text token.

    Raises
    ------
    UnsupportedError
        A pre-tokenizer that is not known.
    FormatError
        Merges that are missing or don't fit the tokens.
    """

    def __init__(self, metadata: Mapping[str, object], vocabulary: Vocabulary) -> None:
        name = metadata.get("tokenizer.ggml.pre")
        cut = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
        if cut is None:
            raise UnsupportedError(
                f"pre-tokenizer {shown(name)} is not known (tokenizer.ggml.pre)",
                f"known are {', '.join(sorted(PRE_TOKENIZERS))}",
            )
        if metadata.get("tokenizer.ggml.add_space_prefix"):
            raise UnsupportedError(
                "tokenizer.ggml.add_space_prefix is set, which byte-level BPE here does not do"
            )
        self.adds_bos = cut.adds_bos
        self._size = len(vocabulary.tokens)
        self._bpe = _byte_pair_encoder(vocabulary, cut, _merges(metadata, vocabulary))

    def encode(self, text: str, *, begins: bool, beside: bool = False) -> list[int]:
        """Return the ids of a text; where it stands makes no difference."""
        del begins
        return [token for token in ids_of(self._bpe, text, beside=beside) if token < self._size]


def _merges(metadata: Mapping[str, object], vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Return the checked merges. Plain comprehensions: 151k merges are to take a tenth of a second."""
    key = "tokenizer.ggml.merges"
    lines = strings_at(metadata, key)
    merges = [tuple(line.split(" ")) for line in lines]
    known = vocabulary.text_to_id.__contains__
    if not (
        set(map(len, merges)) <= {2}
        and all(map(known, chain.from_iterable(merges)))
        and all(map(known, map("".join, merges)))
    ):
        index = next(
            i
            for i, merge in enumerate(merges)
            if len(merge) != 2 or not all(map(known, [*merge, "".join(merge)]))
        )
        raise FormatError(
            f"{key}[{index}] is {shown(lines[index])}, which does not join two tokens to a third",
            "fetch the file again",
        )
    return cast("list[tuple[str, str]]", merges)


def _byte_pair_encoder(
    vocabulary: Vocabulary, cut: PreTokenizer, merges: list[tuple[str, str]]
) -> tokenizers.Tokenizer:
    # Tokens that are cut out whole are kept from the encoder, unless merges lead to them.
    whole = {
        vocabulary.tokens[token] for token, kind in enumerate(vocabulary.kinds) if kind is not Kind.NORMAL
    }
    whole -= whole.intersection(chain.from_iterable(merges)) | whole.intersection(map("".join, merges))
    pieces = {text: token for text, token in vocabulary.text_to_id.items() if text not in whole}
    # A byte without a token keeps its neighbours apart: it gets an id beyond the vocabulary, dropped later.
    for letter in _ALPHABET:
        pieces.setdefault(letter, len(vocabulary.tokens) + ord(letter))
    try:
        model = models.BPE(pieces, merges, ignore_merges=cut.ignore_merges)
    except (UnicodeEncodeError, ValueError, TypeError) as error:
        raise FormatError(f"the vocabulary can't be used: {error}", "fetch the file again") from None
    encoder = tokenizers.Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    encoder.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    return encoder
