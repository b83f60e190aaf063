"""Banned strings: exactly the tokens that would complete one, whatever the text is made of."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pilotfish.text.banned import BannedStrings, Word
from pilotfish.text.tokenizer import Tokenizer
from text.small_vocabulary import tokenizer
from tiny import metadata

SMALL = tokenizer()
BYTES = Tokenizer.from_metadata(metadata())
LETTERS = st.text("abé", max_size=6)


def completing(vocabulary: Tokenizer, text: bytes, word: str) -> set[int]:
    """Return the tokens behind which the text has the word, though it had not before."""
    pieces = [vocabulary.token_bytes(token) for token in range(vocabulary.token_count)]
    return {token for token, piece in enumerate(pieces) if piece and word.encode() in text + piece}


@given(word=st.text("abé", min_size=1, max_size=5), text=LETTERS)
@example("aab", "aa")
@example("abab", "aba")
@example("éé", "é")
def test_the_tokens_that_would_complete_a_string_are_banned_and_no_others(word: str, text: str) -> None:
    """Byte by byte, so characters are taken apart; a text that has the string already is no case."""
    ban, said = BannedStrings([Word(BYTES, word)]), b""
    for byte in text.encode():
        expected = completing(BYTES, said, word)
        assert set(ban.banned().tolist()) == expected
        if byte in expected:
            return
        said += bytes([byte])
        ban.push(byte)
    assert set(ban.banned().tolist()) == completing(BYTES, said, word)


@pytest.mark.parametrize("word", ["l", "lo", "hello", " hello", "hello!", "o w", "!\n\n", "llll"])
def test_tokens_of_several_bytes_are_banned_wherever_the_string_lies_in_them(word: str) -> None:
    ban, said = BannedStrings([Word(SMALL, word)]), b""
    for token in SMALL.encode("say hell, hel hallo wor!\n lll"):
        expected = completing(SMALL, said, word)
        assert set(ban.banned().tolist()) == expected
        if token not in expected:
            ban.push(token)
            said += SMALL.token_bytes(token)


def test_what_is_popped_is_forgotten_and_words_are_shared_by_answers() -> None:
    words = [Word(BYTES, "ab"), Word(BYTES, "c")]
    one, other = BannedStrings(words), BannedStrings(words)
    one.push(ord("a"))
    assert set(one.banned().tolist()) == {ord("b"), ord("c")}
    assert set(other.banned().tolist()) == {ord("c")}
    one.pop()
    assert set(one.banned().tolist()) == {ord("c")}


def test_tokens_without_text_do_not_interrupt_a_string() -> None:
    ban = BannedStrings([Word(BYTES, "ab")])
    for token in (ord("a"), 256, 257):
        ban.push(token)
    assert ban.banned().tolist() == [ord("b")]
