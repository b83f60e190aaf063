"""Rounding packed weights to four bits: sixteen steps of one size for 32 weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import gguf.quants
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.quants import Mode, block_shape, random_blocks
from pilotfish.engines.native.kernel_types import KERNEL_TYPES
from pilotfish.kernels import _kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODES: tuple[Mode, ...] = ("random", "extreme")
LARGEST_HALF = np.float32(65504)


def weight_of(kind: str, rows: int, columns: int) -> _kernels.Weight:
    code = KERNEL_TYPES[kind]
    arena = _kernels.Arena(_kernels.packed_bytes(code, rows, columns))
    return _kernels.Weight(arena, code, rows, columns)


def packed(kind: str, raw: NDArray[np.uint8], columns: int) -> _kernels.Weight:
    weight = weight_of(kind, raw.shape[0], columns)
    weight.pack(np.ascontiguousarray(raw).reshape(-1).view(np.uint8), None, 2)
    return weight


def of_floats(x: NDArray[np.float32]) -> _kernels.Weight:
    return packed("F32", x.view(np.uint8), x.shape[1])


def values(weight: _kernels.Weight) -> NDArray[np.float32]:
    return np.stack([weight.gather(row) for row in range(weight.rows)])


def rounded(source: _kernels.Weight, threads: int = 2) -> NDArray[np.float32]:
    weight = weight_of("Q4_0", source.rows, source.columns)
    weight.round_from(source, 0, threads)
    return values(weight)


def half(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.clip(x, -LARGEST_HALF, LARGEST_HALF).astype(np.float16).astype(np.float32)


def reference(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round blocks of 32 in NumPy, in float32 as the kernels do."""
    blocks = x.reshape(-1, 32)
    most = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    with np.errstate(all="ignore"):
        steps = blocks * (np.float32(-8) / most) + np.float32(8.5)
    codes = np.floor(np.clip(np.nan_to_num(steps, nan=0, posinf=15, neginf=0), 0, 15)) - np.float32(8)
    found: NDArray[np.float32] = (codes * half(most / np.float32(-8))).reshape(x.shape)
    return found


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(KERNEL_TYPES)),
    mode=st.sampled_from(MODES),
    rows=st.integers(1, 40),
    blocks=st.integers(1, 3),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounding_is_the_references_number_by_number(
    kind: str, mode: Mode, rows: int, blocks: int, threads: int, seed: int
) -> None:
    """From every type, with all-maximum codes and scales too."""
    columns = blocks * max(32, block_shape(kind)[0])
    raw = random_blocks(kind, rows, columns, np.random.default_rng(seed), mode=mode)
    source = packed(kind, raw, columns)
    assert np.array_equal(rounded(source, threads), reference(values(source)), equal_nan=True)


@settings(max_examples=60, deadline=None)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 2**32 - 1))
def test_a_weight_becomes_the_nearest_step_and_the_largest_stays(scale: float, seed: int) -> None:
    """There are steps from -8 to 7, so one as large as the largest, of the other sign, loses a step."""
    x = (np.random.default_rng(seed).normal(size=(16, 96)) * scale).astype(np.float32)
    blocks, got = x.reshape(-1, 32), rounded(of_floats(x)).reshape(-1, 32)
    at = np.abs(blocks).argmax(1)
    most = np.take_along_axis(blocks, at[:, None], 1)
    step = np.abs(most) / 8
    lost = np.abs(got - blocks)
    slack = np.abs(most) * 2.0**-10 + 1e-6
    opposite = blocks * np.sign(most) < -7 * step
    assert (lost <= np.where(opposite, 1.0, 0.5) * step + slack).all()
    assert (np.take_along_axis(lost, at[:, None], 1) <= slack).all()


def test_rounding_is_that_of_the_gguf_package() -> None:
    """Which computes in float64: a weight half way between two steps may fall to the other side."""
    x = np.random.default_rng(8).normal(size=(64, 256)).astype(np.float32)
    blocks = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q4_0)
    want = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0)
    got = rounded(of_floats(x))
    assert (got != want).mean() < 1e-3
    assert np.abs(got - want).max() <= np.abs(x).max() / 7


@settings(max_examples=40, deadline=None)
@given(value=st.floats(-500_000, 500_000, width=32))
def test_a_constant_block_stays_constant(value: float) -> None:
    """It is off by a half's rounding at most; zeros stay zeros."""
    x = np.full((16, 64), value, np.float32)
    x[:, 32:] = 0
    got = rounded(of_floats(x))
    assert np.allclose(got[:, :32], value, rtol=2**-11, atol=2**-22)
    assert (got[:, :32] == got[0, 0]).all()
    assert (got[:, 32:] == 0).all()


def test_weights_beyond_halves_stay_finite_and_in_order() -> None:
    x = np.linspace(-3e38, 3e38, 16 * 32, dtype=np.float32).reshape(16, 32)
    got = rounded(of_floats(x))
    assert np.isfinite(got).all()
    assert (np.diff(got, axis=1) >= 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_hidden(bad: float) -> None:
    """The block is NaN, so that a pass says so; others are as without it."""
    x = np.random.default_rng(1).normal(size=(16, 96)).astype(np.float32)
    want = rounded(of_floats(x))
    x[3, 40] = bad
    got = rounded(of_floats(x))
    assert np.isnan(got[3, 32:64]).all()
    want[3, 32:64] = got[3, 32:64]
    assert got.tobytes() == want.tobytes()


def test_a_matrix_rounded_in_parts_is_the_same() -> None:
    raw = random_blocks("Q8_0", 85, 64, np.random.default_rng(6))
    whole, parts = packed("Q8_0", raw, 64), weight_of("Q4_0", 85, 64)
    for first, end in ((32, 64), (64, 85), (0, 16), (16, 32)):
        parts.round_from(packed("Q8_0", raw[first:end], 64), first, 2)
    assert values(parts).tobytes() == rounded(whole).tobytes()


def test_what_stands_in_sixteen_steps_already_stays() -> None:
    """The step is a half, so it is found again."""
    rng = np.random.default_rng(7)
    codes = rng.permuted(np.tile(np.arange(16), (64, 2)), axis=1).reshape(32, 64).astype(np.float32)
    x = codes * np.float32(0.25) - np.float32(2)
    assert rounded(of_floats(x)).tobytes() == x.tobytes()


def test_what_does_not_fit_is_refused() -> None:
    source, target = weight_of("Q8_0", 16, 64), weight_of("Q4_0", 40, 64)
    for first in (-16, 8, 32):
        with pytest.raises(ValueError, match="whole groups of rows"):
            target.round_from(source, first, 1)
    with pytest.raises(ValueError, match="whole groups of rows"):
        target.round_from(weight_of("Q8_0", 8, 64), 16, 1)
    with pytest.raises(ValueError, match="another length"):
        target.round_from(weight_of("Q8_0", 16, 32), 0, 1)
    with pytest.raises(ValueError, match="rounded to Q4_0 only"):
        source.round_from(source, 0, 1)
    with pytest.raises(ValueError, match="at least one thread"):
        target.round_from(source, 0, 0)
