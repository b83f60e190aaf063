"""What an index finds, against a search through all places."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.corpus.index import DEPTH, SEPARATOR, VOTES, Index
from pilotfish.corpus.suffix_array import sort_suffixes

few_letters = st.integers(0, 2)
texts = st.lists(st.lists(few_letters, min_size=1, max_size=30), min_size=1, max_size=4)


def index_of(*files: list[int]) -> Index:
    tokens = np.array([token for file in files for token in (*file, SEPARATOR)], np.uint32)
    return Index(tokens.astype(">u4"), sort_suffixes(tokens, DEPTH))


def places(files: list[list[int]], pattern: list[int]) -> list[tuple[int, int]]:
    """Return file and end of each place at which the pattern stands."""
    size = len(pattern)
    return [
        (number, end)
        for number, file in enumerate(files)
        for end in range(size, len(file) + 1)
        if file[end - size : end] == pattern
    ]


@given(texts, st.lists(few_letters, max_size=40), st.integers(1, 5), st.integers(0, DEPTH))
def test_the_longest_run_of_last_tokens_that_stands_in_a_file_is_found_with_all_its_places(
    files: list[list[int]], tail: list[int], least: int, most: int
) -> None:
    sizes = [n for n in range(least, min(most, len(tail), DEPTH) + 1) if places(files, tail[-n:])]
    matched, (begin, end) = index_of(*files).longest(tail, least, most)
    assert matched == max(sizes, default=0)
    if matched:
        assert end - begin == len(places(files, tail[-matched:]))


@given(texts, st.lists(few_letters, min_size=1, max_size=40), st.integers(1, 6))
def test_what_follows_is_what_stands_behind_the_match_up_to_the_end_of_the_file(
    files: list[list[int]], tail: list[int], limit: int
) -> None:
    index = index_of(*files)
    matched, found = index.longest(tail)
    if not matched or found[1] - found[0] > VOTES:
        return
    expected = [
        [*files[number], *[SEPARATOR] * limit][end : end + limit]
        for number, end in places(files, tail[-matched:])
    ]
    rows = [_until_end(row) for row in index.following(matched, found, limit)]
    assert sorted(rows) == sorted(map(_until_end, expected))


def _until_end(row: list[int]) -> list[int]:
    return row[: row.index(SEPARATOR)] if SEPARATOR in row else row


def test_many_places_are_asked_in_proportion() -> None:
    """1 is followed by 2 three times as often as by 3."""
    index = index_of([1, 2] * 3000 + [1, 3] * 1000)
    matched, found = index.longest([1])
    votes = [row[0] for row in index.following(matched, found, 1)]
    assert len(votes) == VOTES
    assert 0.7 < votes.count(2) / VOTES < 0.8


def test_no_match_spans_two_files() -> None:
    assert index_of([1, 2], [3, 4]).longest([1, 2, 3])[0] == 1
