"""Norm, gate and activation quantization against NumPy, and bit by bit between instruction sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from oracle.quants import normwise_error, quantize_activations
from pilotfish.kernels import _kernels

ISAS = _kernels.isas()


@pytest.mark.parametrize("isa", ISAS)
def test_quantized_activations_are_the_documented_scheme_bit_for_bit(isa: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=4096) * np.exp(rng.normal(size=4096) * 3)).astype(np.float32)
    x[64:96] = 0
    x[96:128] = np.float32(1e-35)
    codes, scales = _kernels.quantize(x, isa)
    want_codes, want_scales = quantize_activations(x)
    assert np.array_equal(codes, want_codes.reshape(-1).astype(np.float32))
    assert scales.tobytes() == want_scales.reshape(-1).tobytes()


@pytest.mark.parametrize("isa", ISAS)
def test_rms_norm_is_float64s(isa: str) -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.normal(size=896).astype(np.float32) for _ in range(2))
    want = x.astype(np.float64) / np.sqrt(np.mean(x.astype(np.float64) ** 2) + 1e-6) * w
    got = _kernels.rms_norm(x, w, 1e-6, isa)
    assert normwise_error(got, want) <= 1e-6
    assert got.tobytes() == _kernels.rms_norm(x, w, 1e-6, "portable").tobytes()


@pytest.mark.parametrize("isa", ISAS)
def test_the_gate_is_float64s_from_tiny_to_huge(isa: str) -> None:
    gate = np.linspace(-120, 120, 1600).astype(np.float32)
    up = np.linspace(3, -3, 1600).astype(np.float32)
    g = gate.astype(np.float64)
    got = _kernels.silu_mul(gate, up, isa)
    # exp is held at e^88: beyond that the gate is next to nothing anyway
    np.testing.assert_allclose(got, g / (1 + np.exp(-g)) * up, rtol=5e-7, atol=1e-35)
    assert got.tobytes() == _kernels.silu_mul(gate, up, "portable").tobytes()


@pytest.mark.parametrize("isa", ISAS)
def test_the_gelu_gate_is_float64s_from_tiny_to_huge(isa: str) -> None:
    gate = np.concatenate([np.linspace(-20, 20, 1600), np.geomspace(1e-30, 1e12, 320)]).astype(np.float32)
    gate = np.concatenate([gate, -gate])
    up = np.linspace(3, -3, len(gate)).astype(np.float32)
    g = gate.astype(np.float64)
    got = _kernels.gelu_mul(gate, up, isa)
    want = g / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))) * up
    # Where gelu is next to nothing, 1 + tanh cancels in NumPy, and an error of the angle is one of exp.
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-7)
    assert got.tobytes() == _kernels.gelu_mul(gate, up, "portable").tobytes()


@pytest.mark.parametrize("act", [_kernels.silu_mul, _kernels.gelu_mul])
def test_a_gate_that_is_no_number_stays_none(act: Callable[..., NDArray[np.float32]]) -> None:
    gate = np.array([np.nan, *np.ones(15)], dtype=np.float32)
    for isa in ISAS:
        assert list(np.isnan(act(gate, np.ones(16, dtype=np.float32), isa))) == [True] + [False] * 15
