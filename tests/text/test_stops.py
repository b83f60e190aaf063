"""Stop strings: the earliest wins, however the text comes in pieces."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pilotfish.errors import UsageError
from pilotfish.text.stops import StopMatcher, TextStopper
from text.small_vocabulary import ID, tokenizer

SMALL = tokenizer()
PIECES = st.lists(st.text("ab.", max_size=4), max_size=8)
STOPS = st.lists(st.text("ab.", min_size=1, max_size=5), max_size=4)


def _whole(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Cut a whole text: take letters one by one until it ends with a stop, the longest if several."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(PIECES, STOPS)
@example(["aab"], ["ab", "aab"])
@example(["ab", "ab."], ["abab.", "ba"])
@example(["a", "a", "a", "b"], ["aab"])
def test_any_split_gives_the_text_before_the_earliest_stop(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = "".join([*map(matcher.push, pieces), matcher.finish()])
    assert (shown, matcher.stop) == _whole("".join(pieces), stops)


def _whole_behind(pieces: list[str], stops: list[str], first: int) -> tuple[str, str | None]:
    """Do the same where stops that are complete with one of the first pieces are none."""
    text, let_pass = "".join(pieces), len("".join(pieces[:first]))
    for end in range(let_pass + 1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(PIECES, STOPS, st.integers(0, 6))
@example(["xab", "c"], ["ab", "xabc"], 1)
@example(["aba", "ba"], ["aba"], 1)
def test_a_stop_that_is_complete_before_it_counts_is_let_pass(
    pieces: list[str], stops: list[str], first: int
) -> None:
    """What was shown by then can't be taken back: of a stop that began in it, only the rest is cut."""
    matcher = StopMatcher(stops)
    shown = [matcher.push(piece, armed=i >= first) for i, piece in enumerate(pieces)]
    assert (matcher.stop or "") == (_whole_behind(pieces, stops, first)[1] or "")
    assert "".join([*shown, matcher.finish()]) == _whole_behind(pieces, stops, first)[0]


@given(PIECES, STOPS)
def test_no_more_is_held_back_than_the_beginning_of_a_stop(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    text = shown = ""
    for piece in pieces:
        text += piece
        shown += matcher.push(piece)
        if matcher.stop is None:
            held = text[len(shown) :]
            assert text.startswith(shown)
            assert not held or any(stop.startswith(held) for stop in stops)


@given(PIECES, STOPS)
def test_a_stop_is_reported_with_the_piece_that_completes_it(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    text = ""
    for piece in pieces:
        text += piece
        matcher.push(piece)
        assert (matcher.stop is not None) == any(stop in text for stop in stops)


def test_of_two_stops_in_one_piece_the_earlier_one_wins() -> None:
    matcher = StopMatcher(["world", "hello"])
    assert matcher.push("so hello world") == "so "
    assert matcher.stop == "hello"
    assert matcher.push("more") == ""
    assert matcher.finish() == ""


def test_half_a_stop_at_the_end_is_text() -> None:
    matcher = StopMatcher("<stop>")
    assert matcher.push("text <sto") == "text "
    assert matcher.finish() == "<sto"
    assert matcher.stop is None


@pytest.mark.parametrize("stops", [[""], ["a", ""], [None], [3]])
def test_an_empty_stop_string_is_a_usage_error(stops: list[str]) -> None:
    with pytest.raises(UsageError, match="stop string"):
        StopMatcher(stops)


def test_a_long_stop_costs_little_per_piece() -> None:
    matcher = StopMatcher(["a" * 5000 + "b"])
    start = time.process_time()
    for _ in range(2000):
        matcher.push("a")
        matcher.push("x")
    assert time.process_time() - start < 2.0


def _ids(text: str) -> list[int]:
    return SMALL.encode(text, special=True)


def test_a_stop_string_split_over_tokens_is_found() -> None:
    stopper = TextStopper(SMALL, [" hello!"])
    ids = _ids("say hello!?")
    stopped = [stopper(token) for token in ids]
    assert stopped == [False] * (len(ids) - 2) + [True, True]
    assert stopper.text == "say"
    assert stopper.finish() == ""
    assert stopper.stop == " hello!"


def test_a_stop_string_that_ends_inside_a_token_cuts_the_text_before_it() -> None:
    stopper = TextStopper(SMALL, ["hel"])
    assert [stopper(token) for token in _ids("a hello")] == [False, True]
    assert stopper.text == "a "


def test_the_pieces_of_a_stream_are_the_text() -> None:
    stopper = TextStopper(SMALL, ["\n\n"])
    pieces = []
    for token in _ids("é hello\nx"):
        assert not stopper(token)
        pieces.append(stopper.piece)
    pieces.append(stopper.finish())
    assert "".join(pieces) == stopper.text == "é hello\nx"
    assert pieces[-2:] == ["\nx", ""]


def test_end_tokens_add_no_text_even_if_they_have_some() -> None:
    odd = tokenizer(eos_token_id=ID["hello"])
    stopper = TextStopper(odd)
    assert not stopper(ID["a"])
    assert not stopper(ID["hello"])
    stopper.finish()
    assert stopper.text == "a"


def test_half_a_character_at_the_end_can_not_complete_a_stop_twice() -> None:
    stopper = TextStopper(SMALL, ["\ufffd"])
    half = _ids("é")[0]
    token = ID["Ã"] if half != ID["Ã"] else half
    assert not stopper(token)
    assert stopper.finish() == ""
    assert stopper.stop == "\ufffd"


def test_without_stop_strings_nothing_is_held_back() -> None:
    stopper = TextStopper(SMALL)
    for token in _ids("hello a b"):
        assert not stopper(token)
        assert stopper.piece
