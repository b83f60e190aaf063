"""Quantized blocks for kernel tests: their exact meaning, random valid bytes, and int8 activations.

Weights are decoded by the `gguf` package, which computes in float32; the last rounding (one subtraction in
the types with a minimum) is off by at most half a float32 ulp of the larger term, far below what is tested
with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import gguf
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

KINDS = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"),
)
"""The tensor types with an oracle, by their GGUF names."""

GROUP = 32
"""Activations share one scale per so many values."""

Mode = Literal["random", "extreme"]


def block_shape(kind: str) -> tuple[int, int]:
    """Return (values, bytes) of one block."""
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    return int(values), int(size)


def dequantize_f32(raw: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """Return the weights, shape (rows, K), of a file's rows of bytes, shape (rows, K/values*bytes)."""
    weights = gguf.quants.dequantize(np.ascontiguousarray(raw), gguf.GGMLQuantizationType[kind])
    return np.asarray(weights, dtype=np.float32)


def dequantize(raw: NDArray[np.uint8], kind: str) -> NDArray[np.float64]:
    """Return `dequantize_f32` as float64."""
    return dequantize_f32(raw, kind).astype(np.float64)


def random_blocks(
    kind: str,
    rows: int,
    k: int,
    rng: np.random.Generator,
    *,
    mode: Mode = "random",
    std: float | None = None,
) -> NDArray[np.uint8]:
    """Return valid bytes of `rows` rows of `k` weights, shape (rows, k/values*bytes).

    "random": every code and every integer scale is equally likely; float scales are about 2^-10..2^-5 with
    either sign, one block in 16 has a subnormal float16 scale and one in 16 the scale zero (MXFP4's scales,
    which are powers of two, have no sign: one in 16 is subnormal as a float32). "extreme": row
    i has all bits of all codes and scales set (i % 3 = 0), none (1), or all or none per byte (2), which are
    the values with the largest sums; int8 codes and scales reach 127, -128 and both. With `std` the float
    scales are then multiplied so that the weights have this standard deviation, as the tests of whole
    models need.

    Raises
    ------
    ValueError
        If `k` is not a multiple of the block.
    """
    values, size = block_shape(kind)
    if k % values:
        raise ValueError(f"{kind} has blocks of {values} values, K = {k} is not a multiple")
    blocks = (rows, k // values)
    if values == 1:
        weights = _float_weights(blocks, rng, mode)
        if std is not None:
            weights *= np.float32(std / weights.std())
        return np.ascontiguousarray(_FLOATS[kind](weights)).view(np.uint8).reshape(rows, k * size)
    layout = _LAYOUT[kind].split()
    parts = [_PARTS[part[0]](blocks, int(part[1:]), rng, mode) for part in layout]
    raw = np.concatenate(parts, axis=2).reshape(rows, -1)
    if std is None:
        return raw
    factor = std / dequantize(raw, kind).std()
    for i, part in enumerate(layout):
        if part[0] == "f":
            parts[i] = (
                (parts[i].view(np.float16).astype(np.float64) * factor).astype(np.float16).view(np.uint8)
            )
        if part[0] == "e":
            parts[i] = np.clip(parts[i] + np.rint(np.log2(factor)), 0, 254).astype(np.uint8)
    return np.concatenate(parts, axis=2).reshape(rows, -1)


def quantize_activations(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return int8 codes, shape of `x`, and float32 scales, shape (..., K/32), exact to the bit.

    All arithmetic is float32: amax = max |x| of 32 values, scale = amax / 127, code = x * (127 / amax)
    rounded to nearest even and clamped to +-127. Where amax < 1e-30 (127 / amax may overflow) scale and codes
    are zero.

    Raises
    ------
    ValueError
        If K is not a multiple of 32.
    """
    x = np.asarray(x, dtype=np.float32)
    if x.shape[-1] % GROUP:
        raise ValueError(
            f"activations are quantized in groups of {GROUP}, K = {x.shape[-1]} is not a multiple"
        )
    groups = x.reshape(*x.shape[:-1], -1, GROUP)
    amax = np.abs(groups).max(axis=-1)
    tiny = amax < np.float32(1e-30)
    inverse = np.where(tiny, np.float32(0), np.float32(127) / np.where(tiny, np.float32(1), amax))
    scales = np.where(tiny, np.float32(0), amax / np.float32(127))
    codes = np.clip(np.rint(groups * inverse[..., None]), -127, 127).astype(np.int8)
    return codes.reshape(x.shape), scales


def dequantize_activations(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return code * scale, exact in float64, in the shape of `codes`."""
    groups = codes.reshape(*codes.shape[:-1], -1, GROUP).astype(np.float64)
    return (groups * scales[..., None].astype(np.float64)).reshape(codes.shape)


def int8_matmul(x: NDArray[np.float32], raw: NDArray[np.uint8], kind: str) -> NDArray[np.float64]:
    """Return what a kernel on int8 activations should give, in float64: (n, K), (rows, K) -> (n, rows)."""
    return dequantize_activations(*quantize_activations(x)) @ dequantize(raw, kind).T


def normwise_error(got: NDArray[np.floating], want: NDArray[np.floating]) -> float:
    """Return the largest over rows (last axis) of norm(got - want) / norm(want); 0/0 is 0."""
    difference = np.linalg.norm(np.asarray(got, dtype=np.float64) - want, axis=-1)
    size = np.linalg.norm(want, axis=-1)
    return float(np.max(np.where(difference == 0, 0.0, difference / np.where(size == 0, np.nan, size))))


def _float_weights(blocks: tuple[int, int], rng: np.random.Generator, mode: Mode) -> NDArray[np.float32]:
    if mode == "random":
        return rng.normal(0, 0.05, blocks).astype(np.float32)
    # Magnitudes 2^-20..2^14 of either sign, which float16 holds too (the small ones as subnormals).
    weights = rng.choice([-1.0, 1.0], blocks) * np.exp2(rng.integers(-20, 15, blocks))
    return weights.astype(np.float32)


def _to_bfloat16(weights: NDArray[np.float32]) -> NDArray[np.uint16]:
    # Cut, not rounded: any bits are a valid weight.
    return (weights.view(np.uint32) >> 16).astype(np.uint16)


_FLOATS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.generic]]] = {
    "F32": lambda weights: weights,
    "F16": lambda weights: weights.astype(np.float16),
    "BF16": _to_bfloat16,
}


def _float_scales(
    blocks: tuple[int, int], count: int, rng: np.random.Generator, mode: Mode
) -> NDArray[np.uint8]:
    shape = (*blocks, count)
    scales = rng.uniform(0.5, 1.0, shape) * rng.choice([-1, 1], shape) * np.exp2(rng.integers(-9, -4, shape))
    if mode == "random":
        odd = rng.integers(0, 16, shape)
        scales = np.where(odd == 0, 0.0, np.where(odd == 1, scales * 2.0**-12, scales))
    halves: NDArray[np.float16] = scales.astype(np.float16)
    return halves.view(np.uint8).reshape(*blocks, -1)


def _exponents(
    blocks: tuple[int, int], count: int, rng: np.random.Generator, mode: Mode
) -> NDArray[np.uint8]:
    shape = (*blocks, count)
    exponents = rng.integers(128 - 9, 128 - 4, shape, dtype=np.uint8)
    if mode == "random":
        exponents = np.where(rng.integers(0, 16, shape) == 0, rng.integers(0, 2, shape), exponents)
    return exponents.astype(np.uint8)


def _bytes(
    blocks: tuple[int, int],
    count: int,
    rng: np.random.Generator,
    mode: Mode,
    limits: tuple[int, int] = (255, 0),
) -> NDArray[np.uint8]:
    shape = (*blocks, count)
    if mode == "random":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    out = rng.choice(np.array(limits, dtype=np.uint8), shape)
    out[0::3] = limits[0]
    out[1::3] = limits[1]
    return out


def _int8(blocks: tuple[int, int], count: int, rng: np.random.Generator, mode: Mode) -> NDArray[np.uint8]:
    return _bytes(blocks, count, rng, mode, limits=(127, 128))


_PARTS = {"f": _float_scales, "e": _exponents, "b": _bytes, "i": _int8}
# Members of a block in file order: f float16 scales, e exponents, b bytes of packed bits, i int8, with their
# counts.
_LAYOUT = {
    "Q4_0": "f1 b16",
    "Q4_1": "f2 b16",
    "Q5_0": "f1 b20",
    "Q5_1": "f2 b20",
    "Q8_0": "f1 i32",
    "Q2_K": "b80 f2",
    "Q3_K": "b108 f1",
    "Q4_K": "f2 b140",
    "Q5_K": "f2 b172",
    "Q6_K": "b192 i16 f1",
    "IQ4_NL": "f1 b16",
    "IQ4_XS": "f1 b134",
    "MXFP4": "e1 b16",
}
