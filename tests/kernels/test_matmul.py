"""Matrix kernels against float64, and against each other bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oracle.quants import (
    Mode,
    block_shape,
    dequantize,
    dequantize_f32,
    int8_matmul,
    normwise_error,
    random_blocks,
)
from pilotfish.engines.native.kernel_types import KERNEL_TYPES
from pilotfish.kernels import _kernels

FLOATS = ("F32", "F16", "BF16")
QUANTIZED = tuple(kind for kind in KERNEL_TYPES if kind not in FLOATS)
ISAS = _kernels.isas()
LARGEST_TILE = {"portable": 4, "neon": 8, "avx2": 16, "avxvnni": 16, "avx512": 16}
MODES: tuple[Mode, ...] = ("random", "extreme")


def packed(raw: NDArray[np.uint8], kind: str, columns: int) -> _kernels.Weight:
    rows = raw.shape[0]
    arena = _kernels.Arena(_kernels.packed_bytes(KERNEL_TYPES[kind], rows, columns))
    weight = _kernels.Weight(arena, KERNEL_TYPES[kind], rows, columns)
    weight.pack(np.ascontiguousarray(raw).reshape(-1).view(np.uint8), None, 2)
    return weight


def activations(rng: np.random.Generator, tokens: int, columns: int) -> NDArray[np.float32]:
    return (rng.normal(size=(tokens, columns)) * rng.uniform(0.1, 10, size=(tokens, 1))).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", QUANTIZED)
def test_a_quantized_product_is_float64s_on_the_same_activations(kind: str, isa: str, mode: Mode) -> None:
    rng = np.random.default_rng(1)
    for rows, blocks in ((48, 3), (33, 1), (16, 35)):
        columns = blocks * block_shape(kind)[0]
        raw = random_blocks(kind, rows, columns, rng, mode=mode)
        x = activations(rng, 5, columns)
        got = _kernels.multiply(packed(raw, kind, columns), x, isa, 4)
        assert normwise_error(got, int8_matmul(x, raw, kind)) <= 1e-5


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", FLOATS)
def test_a_float_product_is_float64s(kind: str, isa: str) -> None:
    rng = np.random.default_rng(2)
    raw = random_blocks(kind, 35, 96, rng)
    x = activations(rng, 5, 96)
    got = _kernels.multiply(packed(raw, kind, 96), x, isa, 4)
    assert normwise_error(got, x.astype(np.float64) @ dequantize(raw, kind).T) <= 1e-5


@pytest.mark.parametrize("kind", QUANTIZED)
def test_the_debug_path_is_float64s_on_unquantized_activations(kind: str) -> None:
    rng = np.random.default_rng(3)
    columns = 2 * block_shape(kind)[0]
    raw = random_blocks(kind, 32, columns, rng)
    x = activations(rng, 3, columns)
    for isa in ISAS:
        got = _kernels.multiply(packed(raw, kind, columns), x, isa, 1, float_activations=True)
        assert normwise_error(got, x.astype(np.float64) @ dequantize(raw, kind).T) <= 1e-5


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(KERNEL_TYPES)),
    mode=st.sampled_from(MODES),
    rows=st.integers(1, 40),
    blocks=st.integers(1, 4),
    tokens=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_a_row_has_the_same_bits_in_every_tile_and_on_every_instruction_set(
    kind: str, mode: Mode, rows: int, blocks: int, tokens: int, seed: int, data: st.DataObject
) -> None:
    """Extreme mode has all-maximum codes and scales: sums at the limits of the kernels' integers."""
    rng = np.random.default_rng(seed)
    columns = blocks * max(32, block_shape(kind)[0])
    weight = packed(random_blocks(kind, rows, columns, rng, mode=mode), kind, columns)
    x = activations(rng, tokens, columns)
    if mode == "extreme":
        x = np.where(rng.random(x.shape) < 0.5, -1, 1).astype(np.float32) * np.float32(3)  # codes of +-127
    want = _kernels.multiply(weight, x, "portable", 1)
    for isa in ISAS:
        tile = data.draw(st.integers(1, LARGEST_TILE[isa]), label=f"{isa} tile")
        assert _kernels.multiply(weight, x, isa, tile).tobytes() == want.tobytes()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", sorted(KERNEL_TYPES))
def test_packing_loses_nothing(kind: str, mode: Mode) -> None:
    """A gathered row is the file's own row, dequantized, number by number."""
    rng = np.random.default_rng(4)
    columns = 2 * max(32, block_shape(kind)[0])
    raw = random_blocks(kind, 37, columns, rng, mode=mode)
    weight, want = packed(raw, kind, columns), dequantize(raw, kind)
    for row in (0, 1, 15, 16, 36):
        assert np.array_equal(weight.gather(row), want[row])


def test_every_scale_of_mxfp4_is_kept() -> None:
    """Powers of two from 2^-128, below the normal float32 numbers, to 2^127; the largest weights overflow."""
    rng = np.random.default_rng(7)
    raw = random_blocks("MXFP4", 256, 32, rng)
    raw[:, 0] = np.arange(256)
    weight = packed(raw, "MXFP4", 32)
    with np.errstate(over="ignore"):
        want = dequantize_f32(raw, "MXFP4")
    assert (np.abs(want[0][want[0] != 0]) < np.finfo(np.float32).smallest_normal * 6).all()
    for row in range(256):
        assert np.array_equal(weight.gather(row), want[row])


def test_rows_are_packed_in_the_order_asked_for() -> None:
    rng = np.random.default_rng(5)
    raw = random_blocks("Q4_1", 32, 64, rng)
    order = rng.permutation(32).astype(np.int32)
    arena = _kernels.Arena(_kernels.packed_bytes(3, 32, 64))
    weight = _kernels.Weight(arena, 3, 32, 64)
    weight.pack(raw.reshape(-1), order, 1)
    straight = packed(raw, "Q4_1", 64)
    for row in range(32):
        assert weight.gather(row).tobytes() == straight.gather(int(order[row])).tobytes()


@pytest.mark.parametrize("order", ["as filed", "mapped"])
@pytest.mark.parametrize("kind", sorted(KERNEL_TYPES))
def test_a_matrix_is_packed_in_parts_as_in_one_go(kind: str, order: str) -> None:
    rng = np.random.default_rng(6)
    columns = 2 * max(32, block_shape(kind)[0])
    raw = random_blocks(kind, 85, columns, rng)
    source = rng.permutation(85).astype(np.int32) if order == "mapped" else np.arange(85, dtype=np.int32)
    arena = _kernels.Arena(_kernels.packed_bytes(KERNEL_TYPES[kind], 85, columns))
    weight = _kernels.Weight(arena, KERNEL_TYPES[kind], 85, columns)
    for first, count in ((32, 32), (64, None), (0, 16), (16, 16)):
        data = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
        weight.pack(data, source if order == "mapped" else None, 2, first, count)
    whole = packed(raw[source], kind, columns)
    for row in range(85):
        assert weight.gather(row).tobytes() == whole.gather(row).tobytes()


@pytest.mark.parametrize(("first", "count"), [(-16, 16), (8, 16), (0, 8), (0, 0), (16, 21), (48, None)])
def test_parts_that_are_not_groups_of_rows_are_refused(first: int, count: int | None) -> None:
    rows = 36
    arena = _kernels.Arena(1 << 16)
    weight = _kernels.Weight(arena, KERNEL_TYPES["Q4_0"], rows, 64)
    data = np.zeros(rows * 36, np.uint8)
    with pytest.raises(ValueError, match="whole groups of rows"):
        weight.pack(data, None, 1, first, count)


def test_an_arena_that_is_full_says_so() -> None:
    arena = _kernels.Arena(64)
    with pytest.raises(MemoryError):
        _kernels.Weight(arena, 0, 64, 64)


def test_shapes_that_do_not_fit_are_refused() -> None:
    arena = _kernels.Arena(1 << 20)
    with pytest.raises(ValueError, match="multiple of the type's block"):
        _kernels.Weight(arena, KERNEL_TYPES["Q4_K"], 16, 128)
    with pytest.raises(ValueError, match="no kernels"):
        _kernels.Weight(arena, 99, 16, 128)
    weight = _kernels.Weight(arena, KERNEL_TYPES["Q4_0"], 16, 64)
    with pytest.raises(ValueError, match="don't fit its shape"):
        weight.pack(np.zeros(5, np.uint8), None, 1)
    with pytest.raises(ValueError, match="out of range"):
        weight.pack(np.zeros(16 * 36, np.uint8), np.full(16, 16, np.int32), 1)
