"""Rows are shared out fairly, and all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.serving.sharing import fair_shares

wanted = st.lists(st.integers(0, 300), max_size=20)


@given(wanted, st.integers(0, 200))
def test_no_row_is_left_that_someone_could_use(wants: list[int], room: int) -> None:
    shares = fair_shares(wants, room)
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    assert sum(shares) == min(room, sum(wants))


@given(wanted, st.integers(0, 200))
def test_who_gets_less_than_another_has_all_they_want(wants: list[int], room: int) -> None:
    """But for one row, where they can't be divided evenly."""
    shares = fair_shares(wants, room)
    for share, want in zip(shares, wants, strict=True):
        assert share == want or share >= max(shares, default=0) - 1


@given(st.lists(st.integers(1, 300), min_size=1, max_size=128))
def test_everyone_gets_something_while_there_is_a_row_for_each(wants: list[int]) -> None:
    assert min(fair_shares(wants, 128)) >= 1
