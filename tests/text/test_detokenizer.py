"""Incremental detokenizer: never half a character, never another text than decoding all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.text.detokenizer import Detokenizer
from text.small_vocabulary import ID, TOKENS, tokenizer

if TYPE_CHECKING:
    from text.conftest import Real

SMALL = tokenizer()


def _bytes(content: bytes) -> list[int]:
    """Return the single-byte tokens of some bytes."""
    by_byte = {SMALL.token_bytes(token): token for token in range(256)}
    return [by_byte[bytes([byte])] for byte in content]


@given(st.lists(st.integers(0, len(TOKENS) - 1), max_size=40))
def test_pieces_put_together_are_the_text(ids: list[int]) -> None:
    detokenizer = Detokenizer(SMALL)
    assert "".join([*map(detokenizer.push, ids), detokenizer.finish()]) == SMALL.decode(ids)


@pytest.mark.models
def test_pieces_put_together_are_the_text_over_the_whole_vocabulary(real: Real) -> None:
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(0, real.tokenizer.vocab_size - 1), max_size=40))
    def check(ids: list[int]) -> None:
        detokenizer = Detokenizer(real.tokenizer)
        assert "".join([*map(detokenizer.push, ids), detokenizer.finish()]) == real.tokenizer.decode(ids)

    check()


@given(st.text(max_size=20))
def test_valid_text_never_comes_as_half_a_character(text: str) -> None:
    content = text.encode("utf-8", "ignore")
    detokenizer = Detokenizer(SMALL)
    pieces = list(map(detokenizer.push, _bytes(content)))
    assert "".join(pieces) == content.decode()
    assert all(len(piece) <= 1 for piece in pieces)
    assert detokenizer.finish() == ""


def test_bytes_of_a_character_are_held_back_and_flushed_at_the_end() -> None:
    detokenizer = Detokenizer(SMALL)
    assert [detokenizer.push(token) for token in _bytes("🐟".encode()[:3])] == ["", "", ""]
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""
    assert detokenizer.push(ID["hello"]) == "hello"


def test_bytes_that_can_not_become_a_character_are_released_at_once() -> None:
    detokenizer = Detokenizer(SMALL)
    assert detokenizer.push(_bytes(b"\xff")[0]) == "\ufffd"
    assert [detokenizer.push(token) for token in _bytes(b"\xe9\x41")] == ["", "\ufffdA"]


def test_control_tokens_between_the_bytes_of_a_character_do_not_break_it() -> None:
    first, second = _bytes("é".encode())
    detokenizer = Detokenizer(SMALL)
    assert [detokenizer.push(token) for token in (first, ID["<|im_end|>"], second)] == ["", "", "é"]
