"""What of a draft model is slimmed, and when it isn't."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from pilotfish.engines.native.container import TensorInfo
from pilotfish.engines.native.slim import Slim
from pilotfish.engines.native.tensor_types import TENSOR_TYPES
from pilotfish.slimming import HEAD_IDS, SMALLEST_VOCABULARY, slim_for

TYPES = {kind.name: kind for kind in TENSOR_TYPES.values()}
LARGE = 151_936


def slim(matrices: dict[str, str], vocab_size: int = LARGE, *, tied: bool = False) -> Slim | None:
    """Ask for a model of two such matrices a type, an embedding in Q5_0 and a head."""
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        name: ((1024, 8192), kind) for name, kind in matrices.items()
    }
    shapes["blk.0.attn_norm.weight"] = ((1024,), "F32")
    shapes["token_embd.weight"] = ((1024, vocab_size), "Q5_0")
    if not tied:
        shapes["output.weight"] = ((1024, vocab_size), "Q8_0")
    tensors = {
        name: TensorInfo(name, shape, kind, 0, math.prod(shape) // TYPES[kind].block * TYPES[kind].nbytes)
        for name, (shape, kind) in shapes.items()
    }
    ends, others = frozenset({vocab_size - 2}), frozenset({vocab_size - 5})
    vocabulary: Any = SimpleNamespace(control_ids=ends, user_ids=others, end_ids=ends)
    return slim_for(tensors, vocabulary)


def test_matrices_above_five_bits_and_the_head_are_rounded() -> None:
    matrices = {kind: kind for kind in ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0")}
    small = {kind: kind for kind in ("Q4_0", "Q4_1", "Q4_K", "IQ4_XS", "Q2_K")}
    found = slim(matrices | small)
    assert found is not None
    assert found.types == dict.fromkeys([*matrices, "output.weight"], "Q4_0")


def test_types_that_the_kernels_do_not_know_are_left_to_be_refused() -> None:
    found = slim({"x": "TQ2_0"})
    assert found is not None
    assert "x" not in found.types


def test_a_tied_embedding_is_rounded_as_the_head_that_it_is() -> None:
    found = slim({"x": "Q8_0"}, tied=True)
    assert found is not None
    assert found.types == {"x": "Q4_0", "token_embd.weight": "Q4_0"}


def test_the_head_can_say_the_lowest_ids_and_those_with_a_meaning() -> None:
    found = slim({"x": "Q4_K"})
    assert found is not None
    assert found.head_ids == frozenset({*range(HEAD_IDS), LARGE - 2, LARGE - 5})


@pytest.mark.parametrize("vocab_size", [300, HEAD_IDS, SMALLEST_VOCABULARY])
def test_a_small_vocabulary_is_left_as_it_is(vocab_size: int) -> None:
    assert slim({"x": "F32"}, vocab_size) is None


def test_where_few_bytes_would_go_nothing_is_slimmed() -> None:
    """Seventy matrices of four bits beside a head that is a fifth of the model."""
    many = {str(i): "Q4_K" for i in range(300)}
    assert slim(many) is None
    assert slim(dict(list(many.items())[:30])) is not None


def test_a_file_without_a_head_is_left_to_be_refused() -> None:
    assert slim_for({}, SimpleNamespace()) is None  # type: ignore[arg-type]
