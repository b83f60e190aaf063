"""The corpus drafter against counting in the files, and what it keeps of a sequence."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counting import lines_of
from pilotfish.corpus.index import DEPTH, SEPARATOR, Index
from pilotfish.corpus.suffix_array import sort_suffixes
from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.corpus import DISCOUNT, DOUBT, CorpusDrafter, voted
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

few_letters = st.integers(0, 2)
texts = st.lists(st.lists(few_letters, min_size=1, max_size=30), min_size=1, max_size=4)


def index_of(*files: list[int]) -> Index:
    tokens = np.array([token for file in files for token in (*file, SEPARATOR)], np.uint32)
    return Index(tokens.astype(">u4"), sort_suffixes(tokens, DEPTH))


def sequence(tokens: list[int]) -> Sequence:
    return Sequence(list(tokens), Sampling(), 100)


def propose(files: list[list[int]], text: list[int], limit: int = 4, min_match: int = 1) -> Draft:
    return CorpusDrafter(index_of(*files), min_match).propose([sequence(text)], [limit])[0]


def test_what_stands_in_the_corpus_is_continued_as_there() -> None:
    assert propose([[1, 2, 3, 4, 5, 6, 7]], [9, 9, 3, 4]).tokens == (5, 6, 7)
    assert propose([[1, 2, 3], [4, 5, 6]], [4, 5]).tokens == (6,)


def test_nothing_is_proposed_where_nothing_matches_or_too_little() -> None:
    assert propose([[1, 2, 3]], [7, 8]) == NO_DRAFT
    assert propose([[1, 2, 3]], []) == NO_DRAFT
    assert propose([[1, 2, 3]], [9, 2], min_match=2) == NO_DRAFT
    assert propose([[1, 2, 3]], [1, 2], limit=0) == NO_DRAFT
    assert propose([[1, 2, 3]], [2, 3]) == NO_DRAFT, "the end of a file is followed by nothing"


def test_the_majority_of_the_places_decides_and_then_the_majority_of_these() -> None:
    files = [[5, 1, 2], [5, 1, 3], [5, 1, 3], [5, 4, 9], [5, 4, 9]]
    assert propose(files, [5]).tokens == (1, 3)


@given(texts, st.lists(few_letters, min_size=1, max_size=30))
def test_the_first_guess_is_a_most_frequent_one_and_its_confidence_is_the_formula(
    files: list[list[int]], text: list[int]
) -> None:
    def following(size: int) -> list[int]:
        return [
            [*file, SEPARATOR][at]
            for file in files
            for at in range(size, len(file) + 1)
            if file[at - size : at] == text[-size:]
        ]

    sizes = [size for size in range(1, len(text) + 1) if following(size)]
    draft = propose(files, text, 1)
    if not sizes:
        assert draft == NO_DRAFT
        return
    matched = max(sizes)
    votes = following(matched)
    if len(votes) > 32:
        return
    counts = {token: votes.count(token) for token in votes}
    if not draft.tokens:
        assert counts[SEPARATOR] == max(counts.values())
        return
    count = counts[draft.tokens[0]]
    assert count == max(counts.values())
    expected = (count - DISCOUNT / matched) / (len(votes) + DOUBT / matched)
    assert draft.confidence[0] == pytest.approx(expected)


@given(texts, st.lists(few_letters, max_size=60), st.integers(0, 9), st.integers(1, 4))
def test_a_draft_keeps_its_limit_and_its_confidence_is_a_share(
    files: list[list[int]], text: list[int], limit: int, min_match: int
) -> None:
    draft = propose(files, text, limit, min_match)
    assert len(draft.tokens) == len(draft.confidence) == len(draft.drafters) <= limit
    assert all(0 < c < 1 for c in draft.confidence)
    assert SEPARATOR not in draft.tokens
    assert set(draft.drafters) <= {"corpus"}


@given(texts, st.lists(few_letters, max_size=50), st.data())
def test_following_a_text_in_steps_equals_looking_it_up_at_once(
    files: list[list[int]], text: list[int], data: st.DataObject
) -> None:
    """The length of the last match is a bound for the next; it must not hide a longer one."""
    drafter, growing = CorpusDrafter(index_of(*files), 2), sequence([])
    while len(growing.tokens) < len(text):
        drafter.propose([growing], [3])
        size = len(growing.tokens)
        growing.tokens += text[size : size + data.draw(st.integers(1, 4))]
    assert drafter.propose([growing], [3])[0].tokens == propose(files, text, 3, 2).tokens


def test_a_longer_match_and_more_places_that_agree_are_surer() -> None:
    once = propose([[1, 2, 3, 4]], [1, 2, 3], 1).confidence[0]
    shorter = propose([[1, 2, 3, 4]], [9, 2, 3], 1).confidence[0]
    twice = propose([[1, 2, 3, 4]] * 2, [1, 2, 3], 1).confidence[0]
    divided = propose([[1, 2, 3, 4], [1, 2, 3, 5]], [1, 2, 3], 1).confidence[0]
    assert divided < once < twice
    assert shorter < once


def test_a_corpus_that_keeps_being_wrong_is_claimed_less() -> None:
    phrases = [[*range(10 * n, 10 * n + 5)] for n in range(21)]
    drafter, text = CorpusDrafter(index_of(*phrases)), sequence([])
    claims: list[float] = []
    for phrase in phrases:
        text.tokens += phrase[:4]
        draft = drafter.propose([text], [4])[0]
        assert draft.tokens == (phrase[4],)
        claims += draft.confidence
        text.tokens.append(9999)
    assert claims[-1] < 0.8 * claims[0]


def test_sequences_are_forgotten() -> None:
    drafter, text = CorpusDrafter(index_of([1, 2, 3])), sequence([1])
    drafter.propose([text], [1])
    assert drafter.readers
    drafter.forget(text.key)
    drafter.forget(text.key)
    assert not drafter.readers


def test_votes_of_one_row_are_taken_to_the_end_of_its_file() -> None:
    assert [token for token, _, _ in voted([[4, 5, SEPARATOR, 6]], 3)] == [4, 5]


@pytest.mark.parametrize(
    "corpus",
    [[7] * 60_000, [1, 2] * 30_000, list(range(60_000))],
    ids=["aaaa", "abab", "no repetition"],
)
def test_a_look_up_stays_cheap_in_a_large_corpus(corpus: list[int]) -> None:
    """Counted in lines: some hundreds for 8 tokens; a search through the corpus would take 60,000."""
    noise = random.Random(0)  # noqa: S311 - no secret
    drafter, text = CorpusDrafter(index_of(corpus)), sequence([])
    costs = []
    for _ in range(200):
        text.tokens.append(corpus[noise.randrange(40) if noise.random() < 0.1 else len(text.tokens)])
        costs.append(lines_of(lambda: drafter.propose([text], [8])))
    assert max(costs) < 1500
