"""The suffix drafter against a slow reference that searches the text, and its cost on degenerate text."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.suffix import DOUBT, Automaton, SuffixDrafter
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

few_letters = st.lists(st.integers(0, 2), max_size=40)


def automaton_of(text: list[int]) -> Automaton:
    automaton = Automaton()
    for token in text:
        automaton.append(token)
    return automaton


def sequence(tokens: list[int]) -> Sequence:
    return Sequence(list(tokens), Sampling(), 100)


def propose(text: list[int], limit: int = 4, min_match: int = 1) -> Draft:
    return SuffixDrafter(min_match).propose([sequence(text)], [limit])[0]


def earlier(text: list[int], pattern: list[int]) -> list[int]:
    """Return where `pattern` ends in the text, its end excepted."""
    size = len(pattern)
    return [e for e in range(size, len(text)) if text[e - size : e] == pattern]


def longest_match(text: list[int]) -> list[int]:
    for size in range(len(text) - 1, 0, -1):
        if earlier(text, text[-size:]):
            return text[-size:]
    return []


@given(few_letters)
def test_the_match_is_the_longest_suffix_that_occurred_before(text: list[int]) -> None:
    assert automaton_of(text).match()[1] == len(longest_match(text))


@given(few_letters)
def test_the_first_guess_is_the_most_frequent_continuation_then_the_most_recent(text: list[int]) -> None:
    match = longest_match(text)
    tokens, confidence = automaton_of(text).walk(1, 1)
    if not match:
        assert not tokens
        return
    continuations = [text[e] for e in earlier(text, match)]
    most = max(map(continuations.count, continuations))
    recent = next(t for t in reversed(continuations) if continuations.count(t) == most)
    assert tokens == [recent]
    assert confidence == [pytest.approx(most / (len(continuations) + DOUBT / len(match)))]


@given(few_letters, st.integers(0, 12), st.integers(1, 4))
def test_a_draft_keeps_its_limit_and_its_confidence_is_a_share(
    text: list[int], limit: int, min_match: int
) -> None:
    draft = propose(text, limit, min_match)
    assert len(draft.tokens) == len(draft.confidence) == len(draft.drafters) <= limit
    assert set(draft.tokens) <= set(text)
    assert all(0 < c < 1 for c in draft.confidence)
    if len(longest_match(text)) < min_match:
        assert draft == NO_DRAFT
    else:
        assert len(draft.tokens) == limit


@given(few_letters, few_letters, st.integers(1, 8))
def test_reading_a_text_in_parts_equals_reading_it_at_once(
    begin: list[int], rest: list[int], limit: int
) -> None:
    drafter, growing = SuffixDrafter(1), sequence(begin)
    for token in rest:
        drafter.propose([growing], [limit])
        growing.tokens.append(token)
    assert drafter.propose([growing], [limit]) == [propose([*begin, *rest], limit)]


def test_the_suffix_itself_is_no_match() -> None:
    assert propose([1, 2, 3, 4, 5]) == NO_DRAFT
    assert propose([]) == NO_DRAFT
    assert propose([1]) == NO_DRAFT


def test_a_repetition_is_continued_through_the_end_of_the_text() -> None:
    assert propose([1, 2, 3, 1, 2, 3, 1], 7).tokens == (2, 3, 1, 2, 3, 1, 2)
    assert propose([7] * 5, 6).tokens == (7,) * 6


def test_a_match_after_a_long_time_without_one_is_found() -> None:
    text = [*range(1000), 400, 401, 402]
    assert propose(text, 3).tokens == (403, 404, 405)


def test_a_longer_match_beats_a_more_frequent_one() -> None:
    """After `1 2` comes 3, though after `2` alone 9 is more frequent."""
    assert propose([1, 2, 3, 2, 9, 2, 9, 2, 9, 1, 2], 1).tokens == (3,)


def test_a_longer_match_and_more_occurrences_are_surer() -> None:
    short = propose([1, 5, 2, 1], 1).confidence[0]
    long = propose([1, 2, 3, 4, 5, 9, 1, 2, 3, 4], 1).confidence[0]
    often = propose([1, 5, 2, 1, 5, 3, 1, 5, 4, 1], 1).confidence[0]
    doubtful = propose([1, 5, 2, 1, 6, 3, 1], 1).confidence[0]
    assert doubtful < short < long
    assert short < often


def test_a_match_shorter_than_the_minimum_is_no_match() -> None:
    text = [1, 2, 5, 6, 1, 2]
    assert propose(text, 2, min_match=2).tokens == (5, 6)
    assert propose(text, 2, min_match=3) == NO_DRAFT


def test_sequences_do_not_see_each_other_and_are_forgotten() -> None:
    drafter = SuffixDrafter(1)
    first, second = sequence([1, 2, 1]), sequence([1, 3, 1])
    drafts = drafter.propose([first, second], [1, 1])
    assert [d.tokens for d in drafts] == [(2,), (3,)]
    drafter.forget(first.key)
    drafter.forget(first.key)
    assert list(drafter._automata) == [second.key]


def test_a_sequence_with_limit_0_is_not_read() -> None:
    drafter = SuffixDrafter()
    assert drafter.propose([sequence([1, 1, 1])], [0]) == [NO_DRAFT]
    assert not drafter._automata


def work(automaton: Automaton, tokens: list[int]) -> int:
    """Count the lines that run while the tokens are appended and proposed after."""
    lines = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for token in tokens:
            automaton.append(token)
            automaton.walk(8, 1)
    finally:
        sys.settrace(before)
    return lines


def _texts() -> dict[str, list[int]]:
    size = 16_000
    noise = random.Random(0)  # noqa: S311 - no secret
    return {
        "aaaa": [7] * size,
        "aa...ab": ([7] * 99 + [8]) * (size // 100),
        "two letters": [noise.randrange(2) for _ in range(size)],
        "no match": list(range(size)),
        "a page again and again": [noise.randrange(5000) for _ in range(size // 8)] * 8,
    }


@pytest.mark.parametrize("kind", _texts())
def test_the_cost_of_a_token_stays_flat_on_long_text(kind: str) -> None:
    """Counted in lines of Python, which no busy machine changes: a few hundred to read one and propose 8."""
    text = _texts()[kind]
    assert work(automaton_of(text[:-500]), text[-500:]) < 500 * 500


def test_there_are_at_most_two_states_a_token() -> None:
    for text in _texts().values():
        assert len(automaton_of(text)._link) <= 2 * len(text)
