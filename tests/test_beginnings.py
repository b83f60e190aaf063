"""The longest common beginning of two texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.beginnings import common

bits = st.integers(0, 1)


@given(st.lists(bits, max_size=600), st.integers(0, 600), st.lists(bits, max_size=9))
def test_the_beginning_in_common_is_found(text: list[int], size: int, tail: list[int]) -> None:
    other = text[:size] + tail
    count = common(text, other)
    assert text[:count] == other[:count]
    assert count in {len(text), len(other)} or text[count] != other[count]
