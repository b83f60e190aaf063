"""Vocabularies of SentencePiece's kind: the ids of a plain encoder, exact bytes, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.errors import FormatError, UnsupportedError
from pilotfish.text.tokenizer import Tokenizer
from text.nasty import TEXTS
from text.score_pairs import ScoreEncoder

SPECIAL = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("<|end|>", 3), ("  ", 4), ("<b>", 4)]
BYTES = [(f"<0x{byte:02X}>", 6) for byte in range(256)]
# Highest score first: short words of a, b, space and é, in no particular order; "q" is within "aq" only.
PIECES = ["▁a", "ab", "aa", "▁▁", "ba", "aba", "▁ab", "abab", "aaa", "b▁", "bb", "éa", "aq"]
PIECES += ["a▁b", "éaé", "é", "b", "a", "▁", "aaaa"]
TOKENS = [*SPECIAL, *BYTES, *((text, 1) for text in PIECES)]
ID = {text: token for token, (text, _) in enumerate(TOKENS)}


def metadata(**changes: Any) -> dict[str, Any]:
    entries: dict[str, Any] = {
        "model": "llama",
        "pre": "default",
        "tokens": [text for text, _ in TOKENS],
        "token_type": [kind for _, kind in TOKENS],
        "scores": [0.0] * (len(TOKENS) - len(PIECES)) + [-float(i) for i in range(len(PIECES))],
        "bos_token_id": ID["<s>"],
        "eos_token_id": ID["</s>"],
        "unknown_token_id": ID["<unk>"],
        "add_bos_token": False,
        "add_space_prefix": False,
    }
    entries |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in entries.items() if value is not None}


def tokenizer(**changes: Any) -> Tokenizer:
    return Tokenizer.from_metadata(metadata(**changes))


SMALL = tokenizer()
AWKWARD = st.text(st.sampled_from(list("aabbéq \n▁x漢🐟")), max_size=40)


@pytest.mark.parametrize("prefix", [True, False, None])
def test_ids_are_those_of_a_plain_encoder(prefix: bool | None) -> None:
    quick, slow = tokenizer(add_space_prefix=prefix), ScoreEncoder(metadata(add_space_prefix=prefix))

    @given(AWKWARD)
    def check(text: str) -> None:
        if "  " not in text:  # a user-defined token, cut out first
            assert quick.encode(text) == slow.encode(text)

    check()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"), max_size=60))
def test_decoding_gives_the_text_back(text: str) -> None:
    ids = SMALL.encode(text)
    assert SMALL.decode(ids) == text
    assert b"".join(map(SMALL.token_bytes, ids)) == text.encode()


def test_awkward_texts_come_back() -> None:
    for text in TEXTS:
        assert SMALL.decode(SMALL.encode(text)) == text


def test_a_letter_that_only_longer_tokens_have_is_merged_or_spelled_in_bytes() -> None:
    assert SMALL.encode("aqq") == [ID["aq"], ID["<0x71>"]]


def test_a_space_goes_before_a_text_and_behind_special_tokens_where_the_file_wants_it() -> None:
    spaced = tokenizer(add_space_prefix=True)
    assert spaced.encode("a") == [ID["\u2581a"]]
    assert spaced.encode("") == []
    assert spaced.encode("<|end|>a<b>a", special=True) == [
        ID["<|end|>"],
        ID["\u2581a"],
        ID["<b>"],
        ID["\u2581a"],
    ]
    assert SMALL.encode("a") == [ID["a"]]
    assert tokenizer(add_space_prefix=None).encode("a") == [ID["\u2581a"]]


def test_a_file_that_does_not_say_so_wants_the_beginning_of_text() -> None:
    assert tokenizer(add_bos_token=None).encode("a") == [ID["<s>"], ID["a"]]


def test_special_tokens_in_a_users_text_are_plain_text() -> None:
    assert SMALL.encode("<s>", special=True) == [ID["<s>"]]
    assert not SMALL.special_ids & set(SMALL.encode("<s><unk></s>"))
    assert SMALL.decode(SMALL.encode("<0x41>")) == "<0x41>"


def test_white_space_behind_control_tokens_of_phi3_means_nothing() -> None:
    phi3 = Tokenizer.from_metadata({**metadata(), "general.architecture": "phi3"})
    assert phi3.encode("<|end|>\n a<s> a", special=True) == [ID["<|end|>"], ID["a"], ID["<s>"], ID["\u2581a"]]
    assert SMALL.encode("<|end|>\na", special=True) == [ID["<|end|>"], ID["<0x0A>"], ID["a"]]


def test_the_end_of_text_is_an_end_and_a_tag_of_html_is_none() -> None:
    """In gemma's vocabulary `<s>` and `</s>` are tags, user-defined like `<b>`."""
    assert SMALL.end_ids == {ID["</s>"], ID["<|end|>"]}
    kinds = [4 if text in {"<s>", "</s>"} else kind for text, kind in TOKENS]
    html = tokenizer(token_type=kinds, bos_token_id=None, eos_token_id=ID["<|end|>"])
    assert html.end_ids == {ID["<|end|>"]}
    assert html.encode("a</s>") == [ID["a"], ID["</s>"]]
    assert html.decode([ID["</s>"]]) == "</s>"


@pytest.mark.parametrize("text", ["a" * 100_000, "ab " * 30_000, "漢" * 20_000])
def test_very_long_texts_are_encoded(text: str) -> None:
    assert SMALL.decode(SMALL.encode(text)) == text


@pytest.mark.parametrize(
    ("changes", "error", "what"),
    [
        ({"scores": None}, FormatError, "no entries for"),
        ({"scores": [0.0]}, FormatError, "1 entries for"),
        ({"scores": [float("nan")] * len(TOKENS)}, FormatError, "scores[0] is nan"),
        ({"scores": ["x"] * len(TOKENS)}, FormatError, "scores[0] is 'x'"),
        ({"token_type": [1] * len(TOKENS)}, UnsupportedError, "0 of the 256 bytes"),
        ({"tokens": [*(text for text, _ in TOKENS[:-1]), "a" * 10**6]}, UnsupportedError, "1000000 char"),
        ({"token_type": [6, *(kind for _, kind in TOKENS[1:])]}, FormatError, "token 0 is '<unk>'"),
        ({"token_type": [9, *(kind for _, kind in TOKENS[1:])]}, FormatError, "[0] is 9"),
    ],
)
def test_a_vocabulary_that_can_not_be_used_is_refused(
    changes: dict[str, Any], error: type[Exception], what: str
) -> None:
    with pytest.raises(error) as caught:
        tokenizer(**changes)
    assert what in str(caught.value)
