"""Rows are shared out fairly, and all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.serving.sharing import fair_shares, reading_shares

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


readers = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 4000)), min_size=1, max_size=128)


@given(readers, st.integers(128, 200))
def test_of_rows_for_reading_none_is_left_over_and_everyone_gets_some(
    texts: list[tuple[int, int]], room: int
) -> None:
    wants, left = [want for want, _ in texts], [rest for _, rest in texts]
    shares = reading_shares(wants, left, room)
    assert all(1 <= share <= want for share, want in zip(shares, wants, strict=True))
    assert sum(shares) == min(room, sum(wants))


@given(readers.filter(lambda texts: len(texts) <= 64))
def test_who_is_done_soonest_gets_half_of_the_rows_and_the_others_half_of_an_even_share(
    texts: list[tuple[int, int]],
) -> None:
    wants, left = [want for want, _ in texts], [rest for _, rest in texts]
    shares = reading_shares(wants, left, 128)
    first = left.index(min(left))
    assert shares[first] >= min(wants[first], 64)
    assert all(s >= min(want, 64 // len(texts)) for s, want in zip(shares, wants, strict=True))
