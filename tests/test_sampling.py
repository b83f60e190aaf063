"""The reference sampler: its generator, its arithmetic, and the distribution of its choices."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish import sampling as module
from pilotfish.errors import NumericsError, UsageError
from pilotfish.sampling import (
    Sampling,
    choose,
    exp64,
    fresh_seed,
    gumbel,
    kept,
    lane_sum,
    log64,
    philox4x32,
    scaled,
    uniform,
)
from sampling_oracle import TRUNCATIONS, assert_distributed, truncated

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROW = np.array([1.5, 0.25, 2.0, -0.25, 2.0, 0.5, 0.0, 1.0], dtype=np.float32)


def row(*logits: float) -> NDArray[np.float32]:
    return np.array(logits, dtype=np.float32)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_vectors(counter: str, key: str, words: str) -> None:
    """The vectors are those of Random123, tests/kat_vectors."""

    def parse(text: str) -> list[int]:
        return [int(word, 16) for word in text.split()]

    result = philox4x32(np.array([parse(counter)], dtype=np.uint32), parse(key))
    assert result.tolist() == [parse(words)]


def error_in_ulps(value: float, exact: Decimal) -> float:
    return float(abs(Decimal(value) - exact) / Decimal(math.ulp(value)))


def test_exp_is_within_one_ulp() -> None:
    random = np.random.default_rng(1)
    x = np.concatenate(
        [-random.exponential(5, 1500), random.uniform(-708, 709, 1000), random.normal(0, 1e-5, 99)]
    )
    x = np.maximum(np.append(x, [0.0, -0.0, -708.0, 709.0, 1e-300, -math.log(2) / 2]), -708.0)
    with localcontext() as context:
        context.prec = 40
        errors = [
            error_in_ulps(y, Decimal(v).exp()) for v, y in zip(x.tolist(), exp64(x).tolist(), strict=True)
        ]
    assert max(errors) < 1.0


def test_log_is_within_one_ulp() -> None:
    random = np.random.default_rng(2)
    near_one = 1.0 - 2.0 ** random.uniform(-53, -1, 1000)
    x = np.concatenate(
        [random.uniform(0, 1, 1000), 2.0 ** random.uniform(-1022, 1023, 500), near_one, 2 - near_one]
    )
    x = np.append(x, [2.0**-54, 1 - 2.0**-53, 1.0, 2.0**-1022, 1.7e308, math.sqrt(0.5), math.sqrt(2)])
    with localcontext() as context:
        context.prec = 40
        errors = [
            error_in_ulps(y, Decimal(v).ln()) for v, y in zip(x.tolist(), log64(x).tolist(), strict=True)
        ]
    assert max(errors) < 1.0
    assert log64(np.array([1.0]))[0] == 0.0


def test_exp_below_the_floor_is_tiny_and_normal() -> None:
    values = exp64(np.array([-708.0, -709.0, -1e6, -1e308, -math.inf]))
    assert (values == values[0]).all()
    assert 2.0**-1022 <= values[0] < 1e-307
    assert exp64(np.array([0.0]))[0] == 1.0


def test_lane_sum_adds_in_the_stated_order() -> None:
    weights = np.random.default_rng(3).uniform(0, 1, 77) ** 20
    lanes = [0.0] * 16
    for i, weight in enumerate(weights.tolist()):
        lanes[i % 16] += weight
    for width in (8, 4, 2, 1):
        lanes = [lanes[j] + lanes[j + width] for j in range(width)]
    assert lane_sum(weights) == lanes[0]


@pytest.mark.parametrize(("word", "low", "high"), [(0, 36.0, 38.0), (0xFFFFFFFF, 0.0, 2e-16)])
def test_noise_is_finite_at_the_extremes_of_the_generator(
    word: int, low: float, high: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "philox4x32", lambda counter, _: np.full_like(counter, word))
    ids = np.arange(4)
    u = uniform(ids, Sampling(), 0)
    assert ((u > 0) & (u < 1)).all()
    assert (low < -np.log(u)).all()
    assert (-np.log(u) < high).all()
    noise = gumbel(ids, Sampling(), 0)
    assert ((noise > -4) & (noise < 37)).all()


def test_the_counter_is_made_of_choice_position_and_id_and_the_key_of_the_seed() -> None:
    ids = np.array([0, 1, 2, 3, 4, 151_935])
    base = uniform(ids, Sampling(seed=5, choice=6), 7)
    assert len(set(base.tolist())) == len(ids)
    for sampling, position in [
        (Sampling(seed=5 + 2**32, choice=6), 7),
        (Sampling(seed=4, choice=6), 7),
        (Sampling(seed=5, choice=2**32 - 1), 7),
        (Sampling(seed=5, choice=6), 8),
        (Sampling(seed=5, choice=6), 7 + 2**32),
        (Sampling(seed=2**64 - 1, choice=6), 2**64 - 1),
    ]:
        assert not np.isin(uniform(ids, sampling, position), base).any()
    shuffled = np.array([4, 0, 151_935])
    assert uniform(shuffled, Sampling(seed=5, choice=6), 7).tolist() == base[[4, 0, 5]].tolist()
    words = philox4x32(np.array([[1, 7, 0, 6], [1 + 2**31, 7, 0, 6]], dtype=np.uint32), (5, 0))
    x = (int(words[0, 0]) << 32 | int(words[1, 0])) >> 11
    assert base[4] == (x + 0.5) * 2.0**-53


@pytest.mark.parametrize("settings", TRUNCATIONS, ids=str)
def test_choices_follow_the_truncated_distribution(settings: dict[str, Any]) -> None:
    """Few draws, for the reference is slow; the twin is tested with many."""
    sampling = Sampling(**{"temperature": 1.0, **settings})
    exact = truncated(ROW, sampling)
    assert kept(ROW, sampling).tolist() == list(exact)
    assert_distributed(Counter(choose(ROW, sampling, position) for position in range(250)), exact)


@given(
    logits=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40),
    temperature=st.sampled_from([0.05, 0.7, 1.0, 3.0]),
    top_k=st.integers(0, 45),
    top_p=st.floats(0.01, 1.0),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 0.99)),
)
def test_kept_ids_agree_with_the_plain_definition(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Up to rounding: an id at the very border may fall on either side."""
    values = row(*logits)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    result = set(kept(values, sampling).tolist())

    def with_slack(slack: float) -> set[int]:
        looser = Sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=min(1.0, top_p * (1 + slack)) if top_p < 1 else 1.0,
            min_p=min_p * (1 - slack),
        )
        return set(truncated(values, looser))

    assert with_slack(-1e-9) <= result <= with_slack(1e-9)


def test_top_k_ties_keep_the_lowest_ids() -> None:
    logits = row(1, 3, 2, 3, 2, 3, 2)
    for top_k, ids in [(1, [1]), (2, [1, 3]), (4, [1, 2, 3, 5]), (5, [1, 2, 3, 4, 5]), (7, list(range(7)))]:
        assert kept(logits, Sampling(temperature=1.0, top_k=top_k)).tolist() == ids


def test_top_p_keeps_the_crossing_token_and_breaks_ties_by_id() -> None:
    logits = row(0, 0, 0, 0)
    for top_p, count in [(0.25, 1), (0.250001, 2), (0.5, 2), (0.75, 3), (0.76, 4), (1.0, 4)]:
        assert kept(logits, Sampling(temperature=1.0, top_p=top_p)).tolist() == list(range(count))


def test_top_p_is_a_share_of_what_top_k_kept() -> None:
    logits = row(0, 0, 0, 0)
    assert kept(logits, Sampling(temperature=1.0, top_k=2, top_p=0.5)).tolist() == [0]


def test_negative_zero_ties_with_zero() -> None:
    logits = row(-0.0, 0.0, -0.0)
    assert choose(logits, Sampling(), 0) == 0
    assert kept(logits, Sampling(temperature=1.0, top_k=2)).tolist() == [0, 1]


@given(
    logits=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**64 - 1),
)
def test_top_k_1_and_a_tiny_top_p_are_greedy(logits: list[float], seed: int, position: int) -> None:
    values = row(*logits)
    greedy = choose(values, Sampling(), position)
    assert greedy == int(np.argmax(values))
    for sampling in (
        Sampling(temperature=0.7, top_k=1, seed=seed),
        Sampling(temperature=0.7, top_p=1e-300, seed=seed),
        Sampling(temperature=1e3, top_k=1, seed=seed),
    ):
        assert choose(values, sampling, position) == greedy


def test_equal_scores_go_to_the_lowest_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "philox4x32", lambda counter, _: np.zeros_like(counter))
    assert choose(row(0, 1, 1), Sampling(temperature=1.0), 0) == 1


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 5e-324])
def test_a_tiny_temperature_chooses_among_the_largest_only(temperature: float) -> None:
    logits = row(-3e38, 1, 3, 2.99999, 3, -1)
    chosen = Counter(choose(logits, Sampling(temperature=temperature, seed=seed), 0) for seed in range(100))
    assert_distributed(chosen, {2: 0.5, 4: 0.5})


@pytest.mark.parametrize("temperature", [1e10, 1e300, 1.7e308])
def test_a_huge_temperature_chooses_evenly(temperature: float) -> None:
    logits = row(-30, 1, 3, 3, 5)
    chosen = Counter(choose(logits, Sampling(temperature=temperature, seed=seed), 0) for seed in range(150))
    assert_distributed(chosen, dict.fromkeys(range(5), 0.2))


def test_the_largest_finite_logits_do_not_overflow() -> None:
    largest = float(np.finfo(np.float32).max)
    logits = row(-largest, largest, 0, largest)
    for temperature in (1e-300, 1.0, 1e30):
        assert choose(logits, Sampling(temperature=temperature, min_p=0.5, top_p=0.9), 3) in (1, 3)
    assert scaled(logits, 1e-300).tolist() == [-math.inf, 0.0, -math.inf, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=1)]
)
def test_logits_that_are_not_finite_are_an_error(bad: float, sampling: Sampling) -> None:
    with pytest.raises(NumericsError, match=f"token 2 is {bad}"):
        choose(row(0, 1, bad, 2, bad), sampling, 0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"temperature": -0.1}, "temperature -0.1"),
        ({"temperature": math.nan}, "temperature nan"),
        ({"temperature": math.inf}, "temperature inf"),
        ({"temperature": "hot"}, "temperature 'hot'"),
        ({"top_k": -1}, "top_k -1"),
        ({"top_k": 1.5}, r"top_k 1\.5"),
        ({"top_k": 2**31}, "top_k 2147483648"),
        ({"top_p": 0.0}, r"top_p 0\.0"),
        ({"top_p": 1.01}, r"top_p 1\.01"),
        ({"top_p": math.nan}, "top_p nan"),
        ({"min_p": -0.5}, "min_p -0.5"),
        ({"min_p": 1.0}, r"min_p 1\.0"),
        ({"min_p": math.nan}, "min_p nan"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 2**64}, "seed 18446744073709551616"),
        ({"seed": None}, "seed None"),
        ({"choice": 2**32}, "choice 4294967296"),
    ],
)
def test_parameters_out_of_range_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Sampling(**settings)


@pytest.mark.parametrize("position", [-1, 2**64])
def test_a_position_out_of_range_is_named(position: int) -> None:
    with pytest.raises(UsageError, match=f"position {position}"):
        choose(ROW, Sampling(temperature=1.0), position)


def test_the_extremes_of_every_parameter_are_allowed() -> None:
    sampling = Sampling(1.7e308, 2**31 - 1, 1e-320, 1 - 2.0**-53, 2**64 - 1, 2**32 - 1)
    assert choose(ROW, sampling, 2**64 - 1) == 2


def test_numpy_numbers_are_parameters_too() -> None:
    sampling = Sampling(np.float32(0.5), np.int64(3), seed=np.uint64(2**64 - 1))  # type: ignore[arg-type]
    plain = Sampling(0.5, 3, seed=2**64 - 1)
    assert choose(ROW, sampling, 5) == choose(ROW, plain, 5)


def test_fresh_seeds_differ_and_are_valid() -> None:
    seeds = {fresh_seed() for _ in range(20)}
    assert len(seeds) == 20
    assert max(Sampling(seed=seed).seed for seed in seeds) >= 2**48


def test_choosing_leaves_the_row_as_it_was() -> None:
    logits = ROW.copy()
    choose(logits, Sampling(0.8, 5, 0.9, 0.1), 0)
    assert (logits == ROW).all()
