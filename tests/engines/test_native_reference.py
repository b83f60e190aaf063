"""Whole models against the float64 reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from oracle.reference import Reference
from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine

TEXT_IDS = [int(x) for x in np.random.default_rng(7).integers(0, 90, 48)]


def all_logits(engine: NativeEngine, tokens: list[int]) -> NDArray[np.float64]:
    rows = engine.forward([Chunk(engine.open(), tokens, len(tokens))])
    return np.stack([rows.logits(i) for i in range(len(tokens))]).astype(np.float64)


def relative(got: NDArray[np.floating], want: NDArray[np.floating]) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize(
    "kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
)
def test_the_float_path_is_the_reference(tmp_path: Path, family: str, kind: str) -> None:
    """What is left is float32 rounding, and keys and values that round the other way to float16."""
    path = write_tiny(
        tmp_path / "tiny.gguf", Tiny(family=family, kind=kind, embedding_kind=kind, width=256, heads=4)
    )
    engine = NativeEngine.load(path, float_activations=True)
    want = Reference(path, kv_f16=True).logits(TEXT_IDS)
    assert relative(all_logits(engine, TEXT_IDS), want) < 3e-4


@pytest.mark.parametrize("kind", ["Q4_1", "Q4_K", "Q6_K"])
def test_the_int8_path_is_the_reference_with_int8_activations(tmp_path: Path, kind: str) -> None:
    """A code on the edge of two may round the other way: closer than the scheme's own error, no more."""
    path = write_tiny(
        tmp_path / "tiny.gguf", Tiny(kind=kind, embedding_kind=kind, width=256, heads=4, tied=True)
    )
    got = all_logits(NativeEngine.load(path), TEXT_IDS)
    want = Reference(path, kv_f16=True, int8_activations=True).logits(TEXT_IDS)
    scheme = relative(want, Reference(path, kv_f16=True).logits(TEXT_IDS))
    assert relative(got, want) < scheme / 2


@pytest.mark.models
def test_the_real_model_is_the_reference(smollm2: Path) -> None:
    tokens = [int(x) for x in np.random.default_rng(3).integers(0, 49000, 40)]
    want = Reference(smollm2, kv_f16=True).logits(tokens)
    floats = all_logits(NativeEngine.load(smollm2, float_activations=True), tokens)
    assert relative(floats, want) < 1e-3
    ours = all_logits(NativeEngine.load(smollm2), tokens)
    assert relative(ours, want) < 0.05


@pytest.mark.models
@pytest.mark.parametrize("name", ["qwen05"])
def test_a_real_qwen_model_is_near_the_reference(name: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(name)
    tokens = [int(x) for x in np.random.default_rng(4).integers(0, 150000, 12)]
    want = Reference(path, dtype=np.float32, kv_f16=True).logits(tokens).astype(np.float64)
    assert relative(all_logits(NativeEngine.load(path), tokens), want) < 0.06
