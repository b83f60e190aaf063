"""Counters and the rates derived from them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.stats import Parts, Stats

drafts = st.integers(0, 9).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted)))


def test_nothing_counted_gives_rates_of_0() -> None:
    stats = Stats()
    assert (stats.acceptance, stats.tokens_per_pass, stats.tokens_per_s) == (0.0, 0.0, 0.0)


def test_rates_leave_out_the_first_token() -> None:
    """It comes from the prompt's pass."""
    stats = Stats(tokens=9, passes=4, drafted=8, accepted=6, decode_s=2.0)
    assert (stats.acceptance, stats.tokens_per_pass, stats.tokens_per_s) == (0.75, 2.0, 4.0)


def test_plain_decoding_is_one_token_a_pass() -> None:
    assert Stats(tokens=9, passes=8).tokens_per_pass == 1.0


@given(st.lists(drafts, max_size=12))
def test_counts_by_position_add_up(counted: list[tuple[int, int]]) -> None:
    stats = Stats()
    for drafted, accepted in counted:
        stats.count_draft(drafted, accepted)
    assert stats.drafted == sum(stats.drafted_at) == sum(d for d, _ in counted)
    assert stats.accepted == sum(stats.accepted_at) == sum(a for _, a in counted)
    for i, (drafted_at, accepted_at) in enumerate(zip(stats.drafted_at, stats.accepted_at, strict=True)):
        assert drafted_at == sum(d > i for d, _ in counted)
        assert accepted_at == sum(a > i for _, a in counted)


def test_positions_that_no_draft_reached_are_not_listed() -> None:
    stats = Stats()
    stats.count_draft(0, 0)
    assert stats.drafted_at == []
    stats.count_draft(2, 1)
    assert (stats.drafted_at, stats.accepted_at) == ([1, 1], [1, 0])


def test_the_dictionary_is_json_by_the_fixed_names() -> None:
    stats = Stats(tokens=3, passes=2, parts=Parts(draft=0.25, pass_=0.5))
    data = stats.as_dict()
    assert list(data) == [
        "tokens",
        "passes",
        "prompt_tokens",
        "drafted",
        "accepted",
        "drafted_at",
        "accepted_at",
        "acceptance",
        "tokens_per_pass",
        "prompt_s",
        "decode_s",
        "parts_s",
        "control",
    ]
    assert json.loads(json.dumps(data))["parts_s"] == {
        "draft": 0.25,
        "pass": 0.5,
        "sample": 0.0,
        "control": 0.0,
        "other": 0.0,
    }


def test_the_dictionary_does_not_change_with_the_counters() -> None:
    stats = Stats()
    data = stats.as_dict()
    stats.count_draft(1, 1)
    assert data["drafted_at"] == []
