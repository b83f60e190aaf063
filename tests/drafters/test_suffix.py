"""The suffix drafter against a slow reference that searches the text, and its cost on degenerate text."""

from __future__ import annotations

import math
import random
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from counting import lines_of
from pilotfish.drafters.automaton import DISCOUNT, DOUBT, LEVELS, Automaton
from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

few_letters = st.lists(st.integers(0, 2), max_size=LEVELS)
"""Short enough for all suffixes to be counted."""


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
    guesses = automaton_of(text).walk(1, 1)
    if not match:
        assert not guesses
        return
    continuations = [text[e] for e in earlier(text, match)]
    most = max(map(continuations.count, continuations))
    recent = next(t for t in reversed(continuations) if continuations.count(t) == most)
    assert [guess for guess, _, _ in guesses] == [recent]


@example([1, 1, 2, 0, 1, 1, 1])  # two kinds of continuations, and a shorter suffix that occurred more often
@given(few_letters)
def test_confidence_smooths_the_counts_of_the_match_by_those_of_the_next_shorter(text: list[int]) -> None:
    """The formula of `walk`, from counts by search; shorter: the longest suffix that occurred more often."""
    match = longest_match(text)
    for token, confidence, matched in automaton_of(text).walk(1, 1):
        continuations = [text[e] for e in earlier(text, match)]
        shorter = next(
            (s for n in range(1, len(match)) if len(earlier(text, s := match[n:])) > len(continuations)), []
        )
        below = [text[e] for e in earlier(text, shorter)] if shorter else []
        share = 0.0
        if shorter:
            taken = below.count(token) - DISCOUNT / math.sqrt(len(shorter))
            share = max(0.0, taken) / (len(below) + DOUBT / len(shorter))
        discount, doubt = DISCOUNT / math.sqrt(len(match)), DOUBT / len(match)
        right = continuations.count(token) - discount + (doubt + len(set(continuations)) * discount) * share
        assert confidence == pytest.approx(right / (len(continuations) + doubt))
        assert matched == len(match)


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
    read = drafter.readers.get(growing.key)
    assert drafter.propose([growing], [limit])[0].tokens == propose([*begin, *rest], limit).tokens
    if read is not None:
        assert read.automaton.walk(limit, 1) == automaton_of([*begin, *rest]).walk(limit, 1)


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
    assert list(drafter.readers) == [second.key]


def test_a_sequence_with_limit_0_is_not_read() -> None:
    drafter = SuffixDrafter()
    assert drafter.propose([sequence([1, 1, 1])], [0]) == [NO_DRAFT]
    assert not drafter.readers


def work(automaton: Automaton, tokens: list[int]) -> int:
    """Count the lines that run while the tokens are appended and proposed after."""

    def read_and_propose() -> None:
        for token in tokens:
            automaton.append(token)
            automaton.walk(8, 1)

    return lines_of(read_and_propose)


def test_a_longest_match_that_occurred_once_is_weighed_by_the_shorter_ones() -> None:
    """After `1 2` came 3, once: surer where 2 alone was followed by 3 too than where it never was."""
    supported = propose([2, 3, 2, 3, 2, 3, 1, 2, 3, 9, 1, 2], 1)
    alone = propose([2, 4, 2, 5, 2, 6, 1, 2, 3, 9, 1, 2], 1)
    assert supported.tokens == alone.tokens == (3,)
    assert alone.confidence[0] < supported.confidence[0]


def fed(right: bool, steps: int = 20) -> tuple[float, float]:
    """Return what is claimed, as a share of what counts say, at first and after as many steps.

    Each step repeats the beginning of another phrase of the prompt, and ends as the phrase did, or does not.
    """
    phrases = [[*range(10 * n, 10 * n + 5)] for n in range(steps + 1)]
    drafter, text = SuffixDrafter(1), sequence([token for phrase in phrases for token in phrase])
    claims = []
    for phrase in reversed(phrases):
        text.tokens += phrase[:4]
        draft = drafter.propose([text], [1])[0]
        assert draft.tokens == (phrase[4],)
        claims.append(draft.confidence[0] / automaton_of(text.tokens).walk(1, 1)[0][1])
        text.tokens.append(phrase[4] if right else 1000 + phrase[4])
    return claims[0], claims[-1]


def test_confidence_is_what_the_counts_say_until_something_has_come_of_it() -> None:
    assert fed(right=True)[0] == fed(right=False)[0] == pytest.approx(1.0)


def test_a_guess_that_keeps_being_wrong_is_claimed_less_and_less() -> None:
    assert fed(right=False)[1] < 0.7


def test_a_guess_that_comes_true_more_often_than_claimed_is_claimed_more() -> None:
    assert fed(right=True)[1] > 1.2


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
    assert work(automaton_of(text[:-500]), text[-500:]) < 700 * 500


def test_there_are_at_most_two_states_a_token() -> None:
    for text in _texts().values():
        assert len(automaton_of(text)._link) <= 2 * len(text)


@pytest.mark.parametrize("kind", _texts())
def test_a_token_takes_a_few_hundred_bytes_at_most(kind: str) -> None:
    text = _texts()[kind]
    tracemalloc.start()
    automaton = automaton_of(text)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert automaton.size == len(text)
    assert used < 350 * len(text)


@given(few_letters, few_letters, st.integers(2, 12))
def test_a_window_remembers_between_half_of_its_tokens_and_all(
    begin: list[int], rest: list[int], window: int
) -> None:
    """And what it remembers are the last tokens: it guesses as an automaton of these does."""
    drafter, growing = SuffixDrafter(1, window), sequence(begin)
    for token in rest:
        drafter.propose([growing], [1])
        growing.tokens.append(token)
        drafter.propose([growing], [1])
        remembered = drafter.readers[growing.key].automaton
        assert min(len(growing.tokens), window // 2) <= remembered.size <= window
        expected = automaton_of(growing.tokens[-remembered.size :])
        assert remembered.walk(4, 1) == expected.walk(4, 1)


def test_a_prompt_longer_than_the_window_is_read_from_its_last_tokens() -> None:
    text = [1, 2, 3, *range(100, 150), 1, 2]
    assert SuffixDrafter(2, 1000).propose([sequence(text)], [1])[0].tokens == (3,)
    assert SuffixDrafter(2, 40).propose([sequence(text)], [1])[0] == NO_DRAFT
    drafter, short, long = SuffixDrafter(2, 40), sequence([7] * 40), sequence([7] * 4000)
    cost = lines_of(lambda: drafter.propose([short], [1]))
    assert lines_of(lambda: drafter.propose([long], [1])) < 1.1 * cost


def test_no_token_costs_much_more_than_another_when_the_window_moves_on() -> None:
    """Counted in lines: a window that was read anew at once would cost as much as its half."""
    drafter, growing = SuffixDrafter(1, 256), sequence([])
    costs = []
    for token in ([7] * 99 + [8]) * 10:
        growing.tokens.append(token)
        costs.append(lines_of(lambda: drafter.propose([growing], [8])))
    assert max(costs) < 2000
