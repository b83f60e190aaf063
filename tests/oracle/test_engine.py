"""The native engine against the reference: weights, rotation, attention and the rest, end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from oracle.quants import KINDS, block_shape, normwise_error
from oracle.reference import Reference
from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

# More than a page of the cache, within the vocabulary of the tiny models.
TOKENS = np.random.default_rng(1).integers(0, 97, 70).tolist()


def engine_logits(path: Path, tokens: list[int], *, float_activations: bool) -> NDArray[np.float64]:
    engine = NativeEngine.load(path, threads=2, context=128, float_activations=float_activations)
    rows = engine.forward([Chunk(engine.open(), tokens, wanted=len(tokens))])
    return np.stack([rows.logits(i) for i in range(len(tokens))]).astype(np.float64)


def tiny_model(path: Path, family: str, kind: str) -> Path:
    """One layer of every tensor type: deeper ones multiply the roundings that fall the other way."""
    tied = kind in {"Q4_1", "Q8_0"}
    shape = Tiny(family, kind, embedding_kind=kind, layers=1, width=256, mlp_width=512, tied=tied)
    return write_tiny(path / "tiny.gguf", shape)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("kind", KINDS)
def test_float_activations_give_the_reference(tmp_path: Path, family: str, kind: str) -> None:
    """Measured 7e-7 to 4e-5, as NumPy in float32 gives: keys and values that round to the other float16."""
    path = tiny_model(tmp_path, family, kind)
    want = Reference(path, kv_f16=True).logits(TOKENS)
    got = engine_logits(path, TOKENS, float_activations=True)
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 2e-4


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if block_shape(kind)[0] > 1])
def test_int8_activations_give_the_same_scheme_in_float64(tmp_path: Path, family: str, kind: str) -> None:
    """Measured 1e-7 where no code rounds the other way, and at most a sixth of the scheme's own error."""
    path = tiny_model(tmp_path, family, kind)
    want = Reference(path, kv_f16=True, int8_activations=True).logits(TOKENS)
    exact = Reference(path, kv_f16=True).logits(TOKENS)
    got = engine_logits(path, TOKENS, float_activations=False)
    assert np.linalg.norm(got - want) < 0.3 * np.linalg.norm(want - exact)
    assert normwise_error(got[:1], want[:1]) < 1e-4


@pytest.mark.models
def test_float_activations_give_the_reference_on_a_real_model(smollm2: Path) -> None:
    """Measured 1e-4 to 5e-4, KL 4e-7 to 1e-6: the float16 cache (NumPy in float32 without it: 1e-6)."""
    tokens = np.random.default_rng(0).integers(3, 49152, 64).tolist()
    want = Reference(smollm2).logits(tokens)
    got = engine_logits(smollm2, tokens, float_activations=True)
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 2e-3
    log_want, log_got = (x - np.logaddexp.reduce(x, axis=1, keepdims=True) for x in (want, got))
    assert (np.exp(log_want) * (log_want - log_got)).sum(axis=1).mean() < 1e-5
