"""The oracle's own blocks are what they claim to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from oracle.quants import (
    KINDS,
    block_shape,
    dequantize,
    dequantize_activations,
    int8_matmul,
    normwise_error,
    quantize_activations,
    random_blocks,
)

if TYPE_CHECKING:
    from oracle.quants import Mode


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["random", "extreme"])
def test_random_blocks_are_finite_weights_of_the_shape_asked_for(kind: str, mode: Mode) -> None:
    values, size = block_shape(kind)
    k = 512 if values == 1 else 3 * values
    raw = random_blocks(kind, 7, k, np.random.default_rng(1), mode=mode)
    assert raw.shape == (7, k // values * size)
    weights = dequantize(raw, kind)
    assert weights.shape == (7, k)
    assert weights.dtype == np.float64
    assert np.isfinite(weights).all()
    assert np.abs(weights).max() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes(kind: str) -> None:
    first, second = (random_blocks(kind, 3, 256, np.random.default_rng(5)) for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("Q4_0", -8, 7),
        ("Q4_1", 0, 15),
        ("Q5_0", -16, 15),
        ("Q5_1", 0, 31),
        ("Q8_0", -128, 127),
        ("IQ4_NL", -127, 113),
        ("MXFP4", -6, 0),
        ("Q4_K", 0, 945),
        ("Q5_K", 0, 1953),
    ],
)
def test_extreme_blocks_reach_both_limits_of_the_codes(kind: str, low: int, high: int) -> None:
    """With scale one and minimum zero a weight is its code, in K types times a 6-bit scale.

    MXFP4 has its largest code, 6, in the middle: all bits set are -6.
    """
    raw = random_blocks(kind, 2, 256, np.random.default_rng(2), mode="extreme")
    blocks = raw.reshape(2, -1, block_shape(kind)[1])
    if kind == "MXFP4":
        blocks[..., 0] = 127
    else:
        blocks[..., :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    if kind in {"Q4_1", "Q5_1", "Q4_K", "Q5_K"}:
        blocks[..., 2:4] = 0
    weights = dequantize(raw, kind)
    assert set(weights.ravel()) == {low, high}


def test_extreme_q6_k_reaches_both_limits_of_scale_and_code() -> None:
    raw = random_blocks("Q6_K", 2, 256, np.random.default_rng(2), mode="extreme")
    raw[:, 208:] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    assert set(dequantize(raw, "Q6_K").ravel()) == {31 * 127, -32 * -128}


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("Q2_K", {3 * 15 - 15, 0}),
        ("Q3_K", {3 * 31, -4 * -32}),
        ("IQ4_XS", {113 * 31, -127 * -32}),
    ],
)
def test_extreme_blocks_have_extreme_scales(kind: str, weights: set[int]) -> None:
    """Signed scales of six bits, and in Q2_K a scale and a minimum of four."""
    raw = random_blocks(kind, 2, 256, np.random.default_rng(2), mode="extreme")
    one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    at = {"Q2_K": [80, 82], "Q3_K": [108], "IQ4_XS": [0]}[kind]
    for first in at:
        raw[:, first : first + 2] = one
    assert set(dequantize(raw, kind).ravel()) == weights


def test_activations_round_half_to_even_and_reach_127() -> None:
    x = np.zeros(64, dtype=np.float32)
    x[:5] = [127, 0.5, 1.5, 2.5, -127]
    codes, scales = quantize_activations(x)
    assert codes[:5].tolist() == [127, 0, 2, 2, -127]
    assert scales.tolist() == [1, 0]
    assert not codes[5:].any()
    assert scales.dtype == np.float32


def test_activations_too_small_to_invert_become_zero() -> None:
    codes, scales = quantize_activations(np.full((2, 32), 1e-40, dtype=np.float32))
    assert not codes.any()
    assert not scales.any()


def test_activation_codes_are_within_half_a_step_of_the_values() -> None:
    x = np.random.default_rng(3).normal(0, 3, (5, 320)).astype(np.float32)
    codes, scales = quantize_activations(x)
    error = np.abs(dequantize_activations(codes, scales) - x).reshape(5, -1, 32).max(axis=2)
    assert (error <= scales * 0.50001).all()


def test_the_int8_product_is_near_the_float_product() -> None:
    rng = np.random.default_rng(4)
    raw = random_blocks("Q4_K", 8, 512, rng)
    x = rng.normal(0, 1, (3, 512)).astype(np.float32)
    error = normwise_error(int8_matmul(x, raw, "Q4_K"), x.astype(np.float64) @ dequantize(raw, "Q4_K").T)
    assert 0 < error < 0.02


def test_a_row_length_that_is_no_multiple_of_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="K = 100"):
        random_blocks("Q4_0", 1, 100, np.random.default_rng())
    with pytest.raises(ValueError, match="K = 100"):
        quantize_activations(np.zeros(100, dtype=np.float32))
