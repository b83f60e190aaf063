"""The vocabulary in a GGUF file, checked: what each token is, and which ids have a meaning of their own."""

from __future__ import annotations

import re
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pilotfish.errors import FormatError, VocabularyMismatch, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Texts of tokens that end an answer, and of tokens for filling in code, in the families' own files; llama.cpp
# knows them by their text too, since many files do not mark them.
_ENDS: Final = frozenset({
    "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|return|>",
    "<|call|>", "<end_of_turn>", "<end_of_utterance>", "<eos>", "</s>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<|repo_name|>",
    "<|fim_repo|>", "<reponame>", "<|file_sep|>",
})  # fmt: skip
_FILL_IN: Final = frozenset({
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>",
    "<fim-prefix>", "<fim-middle>", "<fim-suffix>", "<PRE>", "<MID>", "<SUF>",
})  # fmt: skip
_PADDING: Final = re.compile(r"\[PAD\d+\]")
_SPECIAL_KEYS: Final = ("bos", "eos", "eot", "eom", "unknown", "seperator", "separator", "padding", "mask")


class Kind(Enum):
    """What a token is."""

    NORMAL = "normal"
    CONTROL = "control"
    """Steers the model; has no text of its own."""
    USER = "user"
    """Added to the vocabulary whole, as `<tool_call>`: always cut out of a text first, and has its text."""
    BYTE = "byte"
    """A byte that no other token of a SentencePiece vocabulary covers, spelled `<0x0A>`."""
    PADDING = "padding"
    """Fills the embedding matrix up; never means anything."""


# Numbers in `tokenizer.ggml.token_type`: undefined, normal, unknown, control, user-defined, unused, byte.
_KINDS: Final = {
    0: Kind.PADDING,
    1: Kind.NORMAL,
    2: Kind.CONTROL,
    3: Kind.CONTROL,
    4: Kind.USER,
    5: Kind.PADDING,
    6: Kind.BYTE,
}
_BYTE: Final = re.compile(r"<0x[0-9A-F]{2}>")

BYTE_LEVEL: Final = "gpt2"
"""`tokenizer.ggml.model` of byte-pair encoding over bytes, which have letters of their own."""

SENTENCE_PIECE: Final = "llama"
"""`tokenizer.ggml.model` of byte-pair encoding over characters, as SentencePiece does it."""

SPACE: Final = "\u2581"
"""What stands for a space in SentencePiece vocabularies."""


def _byte_letters() -> dict[int, int]:
    """Return letter to byte of GPT-2's byte-level alphabet.

    Printable bytes stand for themselves; the others get the letters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + index: byte for index, byte in enumerate(others)}


LETTER_TO_BYTE: Final = _byte_letters()


class Vocabulary:
    """Tokens and their meaning, from the `tokenizer.ggml.*` metadata.

    Attributes
    ----------
    model
        `tokenizer.ggml.model`, which says how normal tokens are spelled.
    tokens
        Text of each id as it stands in the file (in byte-level letters, or with U+2581 for a space).
    kinds
        Kind of each id.
    token_count
        All ids from here on are padding.
    bos_id, eos_id
        Beginning and end of text, None if the file names none.
    end_ids
        Ids that end an answer.
    control_ids
        Ids of control tokens.
    user_ids
        Ids of user-defined tokens.
    """

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self.model = metadata.get("tokenizer.ggml.model")
        self.tokens = strings_at(metadata, "tokenizer.ggml.tokens")
        if not self.tokens:
            raise FormatError("tokenizer.ggml.tokens is empty", "use a file with a vocabulary")
        self.kinds = self._read_kinds(metadata)
        self._check_distinct()
        special = {
            name: self._special_id(metadata, f"tokenizer.ggml.{name}_token_id") for name in _SPECIAL_KEYS
        }
        self.bos_id = special["bos"]
        self.eos_id = special["eos"]
        self.control_ids = self._ids(Kind.CONTROL)
        self.user_ids = self._ids(Kind.USER)
        named = {special[name] for name in ("eos", "eot", "eom")} - {None}
        ends = {token for token in self.control_ids if self.tokens[token] in _ENDS}
        if {"<|return|>", "<|call|>"} <= {self.tokens[token] for token in ends}:
            # The harmony format, in which <|end|> only closes one of several messages.
            ends = {token for token in ends if self.tokens[token] != "<|end|>"}
        self.end_ids = frozenset(ends | {token for token in named if token is not None})
        self.token_count = 1 + max(
            (token for token, kind in enumerate(self.kinds) if kind is not Kind.PADDING), default=-1
        )

    def _ids(self, kind: Kind) -> frozenset[int]:
        return frozenset(token for token, its in enumerate(self.kinds) if its is kind)

    def _read_kinds(self, metadata: Mapping[str, object]) -> list[Kind]:
        key = "tokenizer.ggml.token_type"
        codes = metadata.get(key)
        marked = codes is not None
        if codes is None:
            codes = [1] * len(self.tokens)
        if not isinstance(codes, list) or len(codes) != len(self.tokens):
            count = len(codes) if isinstance(codes, list) else shown(codes)
            raise FormatError(
                f"{key} has {count} entries for {len(self.tokens)} tokens", "fetch the file again"
            )
        try:
            kinds = [_KINDS[code] for code in codes]
        except (KeyError, TypeError):
            token = next(i for i, code in enumerate(codes) if not isinstance(code, int) or code not in _KINDS)
            raise FormatError(f"{key}[{token}] is {shown(codes[token])}, not a known kind of token") from None
        self._mark_by_text(kinds, marked=marked)
        return kinds

    def _mark_by_text(self, kinds: list[Kind], *, marked: bool) -> None:
        """Mark what files often don't: ends, tokens for filling in code, padding."""
        known = _ENDS | _FILL_IN
        if Kind.USER in {kinds[token] for token, text in enumerate(self.tokens) if text == "<s>"}:
            known -= {"</s>"}  # both are tags of HTML, as in gemma
        for token, text in enumerate(self.tokens):
            if kinds[token] is Kind.BYTE:
                if self.model != SENTENCE_PIECE or not _BYTE.fullmatch(text):
                    raise FormatError(
                        f"token {token} is {shown(text)}, which is no byte", "fetch the file again"
                    )
            elif text in known:
                if kinds[token] is Kind.USER or not marked:
                    kinds[token] = Kind.CONTROL
            elif not text or (
                text.startswith("[PAD") and kinds[token] is not Kind.CONTROL and _PADDING.fullmatch(text)
            ):
                kinds[token] = Kind.PADDING

    def _check_distinct(self) -> None:
        if len(set(self.tokens)) == len(self.tokens):
            return
        first: dict[str, int] = {}
        for token, text in enumerate(self.tokens):
            if text and first.setdefault(text, token) != token:
                raise FormatError(
                    f"tokens {first[text]} and {token} are both {shown(text)}", "fetch the file again"
                )

    def _special_id(self, metadata: Mapping[str, object], key: str) -> int | None:
        token = metadata.get(key)
        if token is None:
            return None
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < len(self.tokens):
            raise FormatError(f"{key} is {shown(token)}, but ids go from 0 to {len(self.tokens) - 1}")
        return token

    def raw_bytes(self, token: int) -> bytes:
        """Return the bytes a token's text stands for, whatever its kind."""
        text = self.tokens[token]
        if self.kinds[token] is Kind.BYTE:
            return bytes([int(text[3:5], 16)])
        if self.model == SENTENCE_PIECE and self.kinds[token] is Kind.NORMAL:
            text = text.replace(SPACE, " ")
        elif self.kinds[token] is Kind.NORMAL:
            try:
                return bytes(map(LETTER_TO_BYTE.__getitem__, map(ord, text)))
            except KeyError:
                pass  # not in the byte-level alphabet: it stands for itself
        return text.encode("utf-8", "surrogateescape")

    @cached_property
    def text_to_id(self) -> dict[str, int]:
        """The id of each text."""
        return {text: token for token, text in enumerate(self.tokens) if text}


def strings_at(metadata: Mapping[str, object], key: str) -> list[str]:
    """Return a list of str from metadata; FormatError if it is missing or something else."""
    value = metadata.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FormatError(
            f"{key} is {'missing' if value is None else 'not a list of strings'}", "use a complete file"
        )
    return value


def check_same(target: Vocabulary, draft: Vocabulary) -> None:
    """Raise VocabularyMismatch unless the two have the same tokens.

    Compared are bytes and kinds over the real tokens (normal and user-defined ones count as one kind: the
    difference matters to encoding only, which is the target's), the beginning of text and the ends. Padding
    may differ in number and name.
    """
    same = target.tokens == draft.tokens and target.kinds == draft.kinds
    for token in range(0 if same else max(target.token_count, draft.token_count)):
        ours, theirs = _identity(target, token), _identity(draft, token)
        if ours != theirs:
            raise VocabularyMismatch(
                f"the draft model's vocabulary differs from the target's at id {token}: "
                f"{_describe(draft, token)} instead of {_describe(target, token)}",
                "use a draft model of the same family",
            )
    if None not in {target.bos_id, draft.bos_id} and target.bos_id != draft.bos_id:
        _differ("beginning-of-text id", [target.bos_id], [draft.bos_id], target, draft)
    if target.end_ids and draft.end_ids and target.end_ids != draft.end_ids:
        _differ("end-of-text ids", target.end_ids, draft.end_ids, target, draft)


def _differ(
    what: str, ours: Iterable[int | None], theirs: Iterable[int | None], target: Vocabulary, draft: Vocabulary
) -> None:
    def show(ids: Iterable[int | None], vocabulary: Vocabulary) -> str:
        return ", ".join(f"{token} {_describe(vocabulary, token)}" for token in ids if token is not None)

    raise VocabularyMismatch(
        f"the draft model's {what} differ: {show(theirs, draft)} instead of {show(ours, target)}",
        "use a draft model of the same family",
    )


def _identity(vocabulary: Vocabulary, token: int) -> tuple[bool, bytes] | None:
    if token >= vocabulary.token_count or vocabulary.kinds[token] is Kind.PADDING:
        return None
    return vocabulary.kinds[token] is Kind.CONTROL, vocabulary.raw_bytes(token)


def _describe(vocabulary: Vocabulary, token: int) -> str:
    if token >= len(vocabulary.tokens):
        return "nothing"
    return f"{shown(vocabulary.tokens[token])} ({vocabulary.kinds[token].value})"
