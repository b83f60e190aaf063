"""The compiled sampler: the same tokens as the reference, and the distribution of many choices."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pilotfish import sampling as reference
from pilotfish.errors import NumericsError
from pilotfish.kernels import _kernels
from pilotfish.sampling import Sampling
from sampling_oracle import TRUNCATIONS, assert_distributed, truncated

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

ROW = np.array([1.5, 0.25, 2.0, -1.0, 2.0, 0.5, -1.5, 1.0], dtype=np.float32)


def choose(logits: NDArray[np.float32], sampling: Sampling, position: int) -> int:
    token: int = _kernels.choose(
        logits,
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.min_p,
        sampling.seed,
        sampling.choice,
        position,
    )
    return token


def test_philox_is_the_reference_and_gives_a_published_vector() -> None:
    counter = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    words = [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    assert _kernels.philox4x32(counter, [0xA4093822, 0x299F31D0]) == words
    random = np.random.default_rng(1)
    for _ in range(50):
        drawn = random.integers(0, 2**32, 6, dtype=np.uint32)
        twin = _kernels.philox4x32(drawn[:4].tolist(), drawn[4:].tolist())
        assert twin == reference.philox4x32(drawn[:4], drawn[4:].tolist()).tolist()


def test_exp_and_log_have_the_bits_of_the_reference() -> None:
    random = np.random.default_rng(2)
    x = np.concatenate(
        [-random.exponential(10, 20_000), random.uniform(-720, 709, 20_000), [0.0, -0.0, -math.inf]]
    )
    assert [_kernels.exp64(v) for v in x.tolist()] == reference.exp64(x).tolist()
    y = np.concatenate(
        [random.uniform(0, 1, 20_000), 2.0 ** random.uniform(-1022, 1023, 20_000), [1.0, 2.0**-1022]]
    )
    assert [_kernels.log64(v) for v in y.tolist()] == reference.log64(y).tolist()


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
rows = st.one_of(
    arrays.arrays(np.float32, st.integers(1, 300), elements=finite),
    arrays.arrays(np.float32, st.integers(1, 300), elements=st.floats(-30, 30, width=32)),
    # few values: many ties, negative zeros among them
    arrays.arrays(
        np.float32, st.integers(1, 300), elements=st.sampled_from([-2.0, -0.0, 0.0, 1e-45, 1.0, 1.5])
    ),
)
samplings = st.builds(
    Sampling,
    temperature=st.one_of(
        st.floats(0.1, 3.0), st.floats(0, 1.7e308), st.sampled_from([0.0, 5e-324, 1e-300, 1e-6, 100.0, 1e38])
    ),
    top_k=st.one_of(st.just(0), st.integers(0, 310), st.just(2**31 - 1)),
    top_p=st.one_of(st.just(1.0), st.floats(0, 1, exclude_min=True)),
    min_p=st.one_of(st.just(0.0), st.floats(0, 1, exclude_max=True)),
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 2**32 - 1),
)
positions = st.integers(0, 2**64 - 1)


@settings(max_examples=400, deadline=None)
@given(logits=rows, sampling=samplings, position=positions)
@example(np.array([-3.4e38, 3.4e38], np.float32), Sampling(1.7e308), 0)
@example(np.array([0.0, -0.0, 0.0], np.float32), Sampling(5e-324, 2, 0.5, 0.5), 2**64 - 1)
def test_the_twin_chooses_what_the_reference_chooses(
    logits: NDArray[np.float32], sampling: Sampling, position: int
) -> None:
    assert choose(logits, sampling, position) == reference.choose(logits, sampling, position)


def vocabulary_rows() -> dict[str, NDArray[np.float32]]:
    """Return rows as wide as a vocabulary, one not a multiple of 64, of 4, of 16."""
    random = np.random.default_rng(3)
    peaked = random.normal(0, 2.5, 151_936).astype(np.float32)
    peaked[random.integers(0, len(peaked), 40)] += np.linspace(8, 20, 40, dtype=np.float32)
    coarse = (np.round(random.normal(0, 2, 151_673) * 4) / 4).astype(np.float32)
    return {
        "peaked": peaked,
        "coarse, with ties": coarse,
        "flat": random.normal(0, 0.5, 151_936).astype(np.float32),
        "all equal": np.full(151_935, -7.25, dtype=np.float32),
        "rising": np.arange(151_936, dtype=np.float32) * np.float32(1e-4),
        "huge spread": random.normal(0, 1e37, 50_257).astype(np.float32),
    }


@pytest.mark.parametrize("name", vocabulary_rows())
def test_the_twin_chooses_what_the_reference_chooses_in_a_whole_vocabulary(name: str) -> None:
    logits = vocabulary_rows()[name]
    samplings = [
        Sampling(1.0),
        Sampling(0.3),
        Sampling(100.0),
        Sampling(1e-6),
        Sampling(0.8, top_p=0.95),
        Sampling(1.3, top_p=0.999),
        Sampling(1.0, top_k=40),
        Sampling(1.0, top_k=3000),
        Sampling(2.0, top_k=70_000, top_p=0.9),
        Sampling(1.0, min_p=0.05),
        Sampling(1.5, 40, 0.95, 0.05),
    ]
    for i, sampling in enumerate(samplings):
        seeded = Sampling(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, 2**40 + i, i)
        assert choose(logits, seeded, 1000 + i) == reference.choose(logits, seeded, 1000 + i)


def test_no_winner_is_ruled_out_by_the_bound() -> None:
    """Rows of one size and many seeds, so that rare large noise decides."""
    random = np.random.default_rng(5)
    for seed in range(150):
        logits = random.normal(0, 3, 2000).astype(np.float32)
        logits[random.integers(0, 2000)] = 14
        sampling = Sampling(1.0, seed=seed)
        assert choose(logits, sampling, seed) == reference.choose(logits, sampling, seed)


@pytest.mark.parametrize("truncation", TRUNCATIONS, ids=str)
def test_choices_follow_the_truncated_distribution(truncation: dict[str, Any]) -> None:
    """Over seeds at one position, over positions with one seed, and over choices."""
    parameters = {"temperature": 1.0, **truncation}
    sampling = Sampling(**parameters)
    exact = truncated(ROW, sampling)
    draws = range(10_000)
    over_seeds = (choose(ROW, Sampling(**parameters, seed=seed), 17) for seed in draws)
    over_choices = (choose(ROW, Sampling(**parameters, choice=choice), 17) for choice in draws)
    assert_distributed(Counter(over_seeds), exact)
    assert_distributed(Counter(over_choices), exact)
    assert_distributed(Counter(choose(ROW, sampling, position) for position in draws), exact)


@pytest.mark.parametrize("other", ["position", "choice", "seed"])
def test_neighbouring_positions_choices_and_seeds_are_independent(other: str) -> None:
    logits = np.array([0.5, 0.0, -0.5], dtype=np.float32)
    exact = truncated(logits, Sampling(temperature=1.0))
    pairs: Counter[tuple[int, int]] = Counter()
    for seed in range(0, 40_000, 2):
        first = choose(logits, Sampling(1.0, seed=seed), 3)
        neighbour = Sampling(1.0, seed=seed + int(other == "seed"), choice=int(other == "choice"))
        pairs[first, choose(logits, neighbour, 3 + int(other == "position"))] += 1
    assert_distributed(pairs, {(i, j): p * q for i, p in exact.items() for j, q in exact.items()})


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.5])
def test_rows_that_share_noise_agree_at_least_as_often_as_proved(spread: float) -> None:
    """Daliri, Musco, Suresh 2024: at least (1 - TV) / (1 + TV)."""
    random = np.random.default_rng(4)
    target = random.normal(0, 2, 20).astype(np.float32)
    draft = target + random.normal(0, spread, 20).astype(np.float32)
    p, q = (truncated(logits, Sampling(temperature=1.0)) for logits in (target, draft))
    distance = sum(abs(p[i] - q[i]) for i in p) / 2
    bound = (1 - distance) / (1 + distance)
    draws = 20_000
    samplings = [Sampling(1.0, seed=seed) for seed in range(draws)]
    equal = sum(choose(target, sampling, 9) == choose(draft, sampling, 9) for sampling in samplings)
    assert 0.01 < distance < 0.8
    assert equal / draws > bound - 5 * math.sqrt(bound * (1 - bound) / draws)


@settings(max_examples=200, deadline=None)
@given(logits=rows)
def test_argmax_is_the_lowest_id_of_the_largest(logits: NDArray[np.float32]) -> None:
    assert _kernels.argmax(logits) == int(np.argmax(logits))


@settings(max_examples=200, deadline=None)
@given(logits=rows)
def test_margin_is_the_largest_less_the_second(logits: NDArray[np.float32]) -> None:
    if len(logits) == 1:
        assert _kernels.margin(logits) == math.inf
    else:
        second, first = np.sort(logits)[-2:].tolist()
        assert _kernels.margin(logits) == first - second


@settings(max_examples=200, deadline=None)
@given(
    logits=arrays.arrays(np.float32, st.integers(1, 300), elements=st.floats(-60, 60, width=32)),
    data=st.data(),
)
def test_probability_is_the_softmax(logits: NDArray[np.float32], data: st.DataObject) -> None:
    token = data.draw(st.integers(0, len(logits) - 1))
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    expected = float(weights[token] / weights.sum())
    assert _kernels.probability(logits, token) == pytest.approx(expected, rel=1e-5, abs=1e-30)


def test_probabilities_of_a_whole_vocabulary_sum_to_one_and_survive_extremes() -> None:
    logits = vocabulary_rows()["peaked"]
    likely = np.argsort(-logits)[:2000].tolist()
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    expected = float(weights[likely].sum() / weights.sum())
    assert sum(_kernels.probability(logits, token) for token in likely) == pytest.approx(expected, rel=1e-6)
    extreme = np.array([-3.4e38, 3.4e38, 0, 3.4e38], dtype=np.float32)
    assert [_kernels.probability(extreme, i) for i in (1, 3)] == [0.5, 0.5]
    assert _kernels.probability(extreme, 0) < 1e-37
    with pytest.raises(IndexError):
        _kernels.probability(extreme, 4)
    with pytest.raises(IndexError):
        _kernels.probability(extreme, -1)


@settings(max_examples=200, deadline=None)
@given(logits=rows, data=st.data())
def test_digest_changes_with_any_bit_and_with_the_length(
    logits: NDArray[np.float32], data: st.DataObject
) -> None:
    before = _kernels.digest(logits)
    assert _kernels.digest(logits.copy()) == before
    if len(logits) > 1:
        assert _kernels.digest(logits[:-1]) != before
    changed = logits.copy()
    index = data.draw(st.integers(0, len(logits) - 1))
    changed.view(np.uint32)[index] ^= np.uint32(1 << data.draw(st.sampled_from([0, 1, 12, 22, 31])))
    if np.isfinite(changed).all():
        assert _kernels.digest(changed) != before


def test_digests_of_random_and_of_swapped_rows_differ() -> None:
    logits = np.random.default_rng(6).normal(0, 1, 64).astype(np.float32)
    digests = {_kernels.digest(logits)}
    for i in range(64):
        for j in range(i):
            logits[[i, j]] = logits[[j, i]]
            digests.add(_kernels.digest(logits))
            logits[[i, j]] = logits[[j, i]]
    assert len(digests) == 1 + 64 * 63 // 2
    bits = np.array([[digest >> i & 1 for i in range(64)] for digest in digests]).mean(axis=0)
    assert (abs(bits - 0.5) < 0.07).all()


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [(5, 0), (5, 4), (1000, 63), (1000, 64), (1000, 999)])
def test_logits_that_are_not_finite_are_an_error(bad: float, at: tuple[int, int]) -> None:
    size, index = at
    logits = np.zeros(size, dtype=np.float32)
    logits[index] = bad
    calls: list[Callable[[], object]] = [
        lambda: choose(logits, Sampling(), 0),
        lambda: choose(logits, Sampling(1.0), 0),
        lambda: choose(logits, Sampling(1.0, top_k=1), 0),
        lambda: _kernels.argmax(logits),
        lambda: _kernels.margin(logits),
        lambda: _kernels.probability(logits, 0),
        lambda: _kernels.digest(logits),
    ]
    for call in calls:
        with pytest.raises(
            NumericsError, match=f"token {index} is {abs(bad) if math.isnan(bad) else bad}"
        ) as caught:
            call()
        assert caught.value.hint


def test_an_empty_row_and_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to"):
        _kernels.argmax(np.zeros(0, dtype=np.float32))
    for other in (np.zeros(3), np.zeros((2, 2), dtype=np.float32), np.zeros(6, dtype=np.float32)[::2]):
        with pytest.raises(TypeError):
            _kernels.argmax(other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sampling",
    [Sampling(0.8), Sampling(1.0, top_p=0.95), Sampling(1.0, 40), Sampling(1.0, min_p=0.05)],
    ids=str,
)
def test_a_row_of_a_vocabulary_takes_about_a_millisecond(sampling: Sampling) -> None:
    """Generous, for busy machines: the reference takes 20 ms and more."""
    logits = vocabulary_rows()["peaked"]
    seconds = []
    for position in range(30):
        start = time.perf_counter()
        choose(logits, sampling, position)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.004
