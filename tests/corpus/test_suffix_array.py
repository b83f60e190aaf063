"""Sorted suffixes against sorting them as lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.corpus.suffix_array import sort_suffixes


@given(st.lists(st.integers(0, 3) | st.just(0xFFFF_FFFF), max_size=60), st.sampled_from([1, 2, 4, 32]))
def test_suffixes_are_sorted_by_their_first_tokens_then_by_place(text: list[int], depth: int) -> None:
    expected = sorted(range(len(text)), key=lambda at: (text[at : at + depth], at))
    assert sort_suffixes(np.array(text, np.uint32), depth).tolist() == expected


@pytest.mark.parametrize("text", [[7] * 5000, [1, 2] * 2500], ids=["aaaa", "abab"])
def test_degenerate_text_is_sorted_as_far_as_the_depth_goes(text: list[int]) -> None:
    expected = sorted(range(len(text)), key=lambda at: (text[at : at + 32], at))
    assert sort_suffixes(np.array(text, np.uint32), 32).tolist() == expected
