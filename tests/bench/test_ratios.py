"""Ratios of sums, and intervals that mean what they say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.bench.ratios import interval, ratio

seconds = st.floats(0.01, 100.0)
pairs = st.lists(st.tuples(seconds, seconds), min_size=2, max_size=12)


def test_a_ratio_is_of_sums_and_not_a_mean_of_ratios() -> None:
    assert ratio([(1.0, 1.0), (9.0, 3.0)]) == 2.5


def test_without_time_there_is_no_ratio() -> None:
    assert ratio([]) is None
    assert ratio([(0.0, 0.0)]) is None


def test_one_prompt_says_nothing_about_others() -> None:
    assert interval([(2.0, 1.0)], 0) is None
    assert interval([(2.0, 1.0), (0.0, 0.0)], 0) is None
    assert interval([], 0) is None
    assert interval([(2.0, 1.0), (2.0, 0.0)], 0) is None


def test_three_prompts_give_the_quantiles_of_all_27_resamples() -> None:
    """All are listed here, where the code draws some; 1/27 is more than 2.5 %, so both ends count."""
    three = [(2.0, 1.0), (3.0, 2.0), (10.0, 2.5)]
    every = [ratio(drawn) for drawn in itertools.product(three, repeat=3)]
    found = interval(three, 0)
    assert found == pytest.approx((min(every), max(every)))  # type: ignore[type-var]


def test_five_prompts_give_about_the_quantiles_of_all_3125_resamples() -> None:
    """The sums are resampled: the interval of the mean of ratios would end at 4.0 in place of 2.4."""
    five = [(1.0, 0.2), (20.0, 15.0), (2.0, 2.5), (30.0, 31.0), (4.0, 1.0)]
    every = [ratio(drawn) or 0.0 for drawn in itertools.product(five, repeat=5)]
    found = [interval(five, seed) or (0.0, 0.0) for seed in range(9)]
    assert np.median(found, axis=0) == pytest.approx(np.quantile(every, [0.025, 0.975]), rel=0.03)
    assert len(set(found)) > 1  # the seed counts


def test_prompts_that_took_no_time_do_not_count() -> None:
    assert interval([(2.0, 1.0), (0.0, 0.0), (3.0, 2.0)], 5) == interval([(2.0, 1.0), (3.0, 2.0)], 5)


@given(pairs, st.integers(0, 2**32))
def test_a_seed_gives_the_same_interval_and_it_is_within_the_prompts_ratios(
    times: list[tuple[float, float]], seed: int
) -> None:
    low, high = interval(times, seed) or (0.0, 0.0)
    assert interval(times, seed) == (low, high)
    each = [a / b for a, b in times]
    assert min(each) * (1 - 1e-9) <= low <= high <= max(each) * (1 + 1e-9)


@given(pairs, st.floats(0.5, 4.0))
def test_equal_ratios_leave_no_doubt(times: list[tuple[float, float]], factor: float) -> None:
    assert interval([(factor * other, other) for _, other in times], 1) == pytest.approx((factor, factor))


def test_about_95_percent_of_intervals_hold_the_true_ratio() -> None:
    """150 experiments with 40 prompts whose true ratio of expected seconds is 1.5."""
    random = np.random.default_rng(7)
    held = 0
    for experiment in range(150):
        other = random.gamma(4.0, 1.0, 40)
        baseline = other * 1.5 * random.gamma(9.0, 1 / 9.0, 40)
        low, high = interval(list(zip(baseline, other, strict=True)), experiment) or (0.0, 0.0)
        held += low <= 1.5 <= high
    assert 0.87 <= held / 150 <= 0.99
