"""Text to token ids and back, from the vocabulary in the model file."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final, Protocol

from pilotfish.errors import FormatError, UnsupportedError, UsageError, shown
from pilotfish.text.byte_level import ByteLevelEncoder
from pilotfish.text.sentence_piece import SentencePieceEncoder
from pilotfish.text.vocabulary import BYTE_LEVEL, SENTENCE_PIECE, Kind, Vocabulary, check_same
from pilotfish.text.whole_tokens import WholeTokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Tokenizer", "compare_vocabularies"]


class Encoder(Protocol):
    """Encodes text that has no special tokens.

    Attributes
    ----------
    adds_bos
        Whether a file that doesn't say so wants the beginning-of-text token.
    """

    adds_bos: bool

    def encode(self, text: str, *, begins: bool, beside: bool = False) -> list[int]:
        """Return the ids of a text; `begins` if nothing, or a special token, stands before it."""
        ...


class Tokenizer:
    """Byte-pair encoding as the model was trained with; immutable, shared by threads.

    Text is never normalized, so `decode(encode(text)) == text` wherever the vocabulary has the bytes, but for
    the space that some vocabularies put before a text. Bytes that one lacks (SmolLM2 has no token for U+0004,
    for instance) give no id, as in llama.cpp.

    Attributes
    ----------
    vocab_size
        Number of ids in the file, padding included.
    token_count
        Number of ids that are really tokens: all from here on are padding, never to be proposed.
    bos_id
        Beginning of text, or None.
    end_ids
        Ids that end an answer; may be empty.
    special_ids
        Ids of control tokens.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoder: Encoder,
        *,
        adds_bos: bool,
        swallows_space: frozenset[int] = frozenset(),
    ) -> None:
        """Use `Tokenizer.from_metadata`."""
        self.vocabulary = vocabulary
        self.vocab_size = len(vocabulary.tokens)
        self.token_count = vocabulary.token_count
        self.bos_id = vocabulary.bos_id
        self.end_ids = vocabulary.end_ids
        self.special_ids = vocabulary.control_ids
        self._adds_bos = adds_bos
        self._bytes: dict[int, bytes] = {}
        self._encoder = encoder
        self._swallows_space = swallows_space  # control tokens behind which white space means nothing
        self._user = WholeTokens(vocabulary, vocabulary.user_ids)
        self._special = WholeTokens(vocabulary, vocabulary.user_ids | vocabulary.control_ids)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Tokenizer:
        """Build from the metadata of a GGUF file.

        Raises
        ------
        UnsupportedError
            A tokenizer model or pre-tokenizer that is not known.
        FormatError
            Lists that are missing or do not fit each other, ids out of range.
        """
        model = metadata.get("tokenizer.ggml.model")
        if model not in _ENCODERS:
            raise UnsupportedError(
                f"tokenizer model {shown(model)} is not supported (tokenizer.ggml.model)",
                f"use a model with byte-pair encoding: {', '.join(map(repr, _ENCODERS))}",
            )
        vocabulary = Vocabulary(metadata)
        encoder = _ENCODERS[str(model)](metadata, vocabulary)
        adds_bos = metadata.get("tokenizer.ggml.add_bos_token")
        if adds_bos is None:
            adds_bos = encoder.adds_bos and vocabulary.bos_id is not None
        if adds_bos and vocabulary.bos_id is None:
            raise FormatError("tokenizer.ggml.add_bos_token is set, but there is no bos_token_id")
        return cls(
            vocabulary, encoder, adds_bos=bool(adds_bos), swallows_space=_swallows_space(metadata, vocabulary)
        )

    def encode(
        self, text: str, *, special: bool = False, bos: bool | None = None, beside: bool = False
    ) -> list[int]:
        """Return the ids of a text.

        Parameters
        ----------
        text
            Any text; a lone surrogate is a UsageError.
        special
            The text of a control token becomes its id, as in a templated prompt. Otherwise, as in a user's
            own words, it is plain text.
        bos
            Whether to begin with the beginning-of-text token; None does as the file says. Never doubled.
        beside
            Whether other threads of Python may run meanwhile: `merging.ids_of` says at what price.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the text has a lone surrogate, {text[error.start]!r}, at position {error.start}",
                "decode the input as UTF-8 first",
            ) from None
        ids: list[int] = []
        begins = True
        for piece in (self._special if special else self._user).partition(text):
            if isinstance(piece, int):
                ids.append(piece)
                begins = True
                continue
            plain = piece.lstrip(string.whitespace) if ids and ids[-1] in self._swallows_space else piece
            if plain:
                ids.extend(self._encoder.encode(plain, begins=begins, beside=beside))
                begins = False
        wants_bos = self._adds_bos if bos is None else bos
        if wants_bos and self.bos_id is None:
            raise UsageError("this model has no beginning-of-text token", "leave `bos` out")
        if wants_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Return the text of ids; invalid UTF-8 becomes U+FFFD. `special` shows control tokens' text too."""
        return b"".join(
            self.shown_bytes(token) if special else self.token_bytes(token) for token in ids
        ).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Return exactly the bytes that a token adds to the text; none for control tokens and padding."""
        known = self._bytes.get(token)
        if known is None:
            known = (
                b"" if self._kind(token) in {Kind.CONTROL, Kind.PADDING} else self.vocabulary.raw_bytes(token)
            )
            self._bytes[token] = known
        return known

    def shown_bytes(self, token: int) -> bytes:
        """Return the same, but for a control token the text it is written as."""
        return (
            self.vocabulary.raw_bytes(token) if self._kind(token) is Kind.CONTROL else self.token_bytes(token)
        )

    def _kind(self, token: int) -> Kind:
        if not 0 <= token < self.vocab_size:
            raise UsageError(
                f"token id {token} is not in the vocabulary", f"ids go from 0 to {self.vocab_size - 1}"
            )
        return self.vocabulary.kinds[token]


def compare_vocabularies(target: Tokenizer, draft: Tokenizer) -> None:
    """Raise VocabularyMismatch, naming the first id that differs, unless both have the same real tokens."""
    check_same(target.vocabulary, draft.vocabulary)


_ENCODERS: Final[dict[str, type[ByteLevelEncoder | SentencePieceEncoder]]] = {
    BYTE_LEVEL: ByteLevelEncoder,
    SENTENCE_PIECE: SentencePieceEncoder,
}


def _swallows_space(metadata: Mapping[str, object], vocabulary: Vocabulary) -> frozenset[int]:
    """Return the control tokens that take the white space behind them along: those of phi3's templates.

    Files don't say it. In the models' own tokenizers it is so for all but these.
    """
    if metadata.get("general.architecture") != "phi3" or vocabulary.model != SENTENCE_PIECE:
        return frozenset()
    keep = {"<s>", "<unk>", "<|endoftext|>"}
    return frozenset(token for token in vocabulary.control_ids if vocabulary.tokens[token] not in keep)
