"""Text to token ids and back, from the vocabulary in the model file."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from pilotfish.errors import FormatError, UnsupportedError, UsageError
from pilotfish.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from pilotfish.text.vocabulary import LETTER_TO_BYTE, Kind, Vocabulary, check_same, strings_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Tokenizer", "compare_vocabularies"]

_ALPHABET: Final = [chr(letter) for letter in LETTER_TO_BYTE]


class Tokenizer:
    """Byte-level byte-pair encoding as the model was trained with; immutable, shared by threads.

    Text is never normalized, so `decode(encode(text)) == text` wherever the vocabulary has the bytes. Bytes
    that it lacks (SmolLM2 has no token for U+0004, for instance) give no id, as in llama.cpp.

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
        self, vocabulary: Vocabulary, cut: PreTokenizer, merges: list[tuple[str, str]], *, adds_bos: bool
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
        self._bpe = _byte_pair_encoder(vocabulary, cut, merges)
        self._user = _any_of(vocabulary, vocabulary.user_ids)
        self._special = _any_of(vocabulary, vocabulary.user_ids | vocabulary.control_ids)

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
        if model != "gpt2":
            raise UnsupportedError(
                f"tokenizer model {model!r} is not supported (tokenizer.ggml.model)",
                "use a model with byte-level BPE, 'gpt2'",
            )
        name = metadata.get("tokenizer.ggml.pre")
        cut = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
        if cut is None:
            raise UnsupportedError(
                f"pre-tokenizer {name!r} is not known (tokenizer.ggml.pre)",
                f"known are {', '.join(sorted(PRE_TOKENIZERS))}",
            )
        if metadata.get("tokenizer.ggml.add_space_prefix"):
            raise UnsupportedError(
                "tokenizer.ggml.add_space_prefix is set, which byte-level BPE here does not do"
            )
        vocabulary = Vocabulary(metadata)
        adds_bos = metadata.get("tokenizer.ggml.add_bos_token")
        if adds_bos is None:
            adds_bos = cut.adds_bos and vocabulary.bos_id is not None
        if adds_bos and vocabulary.bos_id is None:
            raise FormatError("tokenizer.ggml.add_bos_token is set, but there is no bos_token_id")
        return cls(vocabulary, cut, _merges(metadata, vocabulary), adds_bos=bool(adds_bos))

    def encode(self, text: str, *, special: bool = False, bos: bool | None = None) -> list[int]:
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
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the text has a lone surrogate, {text[error.start]!r}, at position {error.start}",
                "decode the input as UTF-8 first",
            ) from None
        ids: list[int] = []
        for piece in _partition(text, self._special if special else self._user):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                found = self._bpe.encode(piece, add_special_tokens=False).ids
                ids.extend(token for token in found if token < self.vocab_size)
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
            f"{key}[{index}] is {lines[index][:80]!r}, which does not join two tokens to a third",
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


def _any_of(vocabulary: Vocabulary, ids: Iterable[int]) -> tuple[re.Pattern[str], dict[str, int]] | None:
    """Return a pattern for these tokens' texts, the longest first, and the id of each text."""
    texts = {vocabulary.tokens[token]: token for token in ids}
    if not texts:
        return None
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first))), texts


def _partition(text: str, tokens: tuple[re.Pattern[str], dict[str, int]] | None) -> Iterator[str | int]:
    """Cut whole tokens out of a text, leftmost first: yields their ids and the text between them."""
    at = 0
    if tokens is not None:
        pattern, ids = tokens
        for match in pattern.finditer(text):
            if match.start() > at:
                yield text[at : match.start()]
            yield ids[match.group()]
            at = match.end()
    if at < len(text):
        yield text[at:]
