"""The reference behaves like a causal language model, and knows the two rotary conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from oracle.quants import KINDS, dequantize_f32
from oracle.reference import Reference
from oracle.tiny import Tiny, write_tiny

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = [5, 90, 17, 17, 3, 44, 60, 8, 1, 72]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_a_row_does_not_depend_on_later_tokens(tmp_path: Path, family: str) -> None:
    reference = Reference(write_tiny(tmp_path / "tiny.gguf", Tiny(family=family)))
    whole = reference.logits(TOKENS)
    assert whole.shape == (len(TOKENS), 97)
    assert whole.dtype == np.float64
    np.testing.assert_allclose(reference.logits(TOKENS[:6]), whole[:6], rtol=0, atol=1e-12)
    np.testing.assert_allclose(reference.logits(TOKENS, rows=slice(-2, None)), whole[-2:], rtol=0, atol=1e-12)
    assert np.abs(reference.logits([*TOKENS[:3], 2, *TOKENS[4:]])[-1] - whole[-1]).max() > 1e-3


def test_sequences_evaluated_together_do_not_meet(tmp_path: Path) -> None:
    reference = Reference(write_tiny(tmp_path / "tiny.gguf", Tiny(family="qwen2")))
    together = reference.hidden([TOKENS, TOKENS[2:5], TOKENS[::-1]])
    for tokens, hidden in zip([TOKENS, TOKENS[2:5], TOKENS[::-1]], together, strict=True):
        np.testing.assert_allclose(hidden, reference.hidden([tokens])[0], rtol=0, atol=1e-12)


def test_a_llama_file_is_the_qwen2_network_with_permuted_query_and_key_rows(tmp_path: Path) -> None:
    """Adjacent-pair rotation on interleaved rows is half rotation on the original rows."""
    tiny = Tiny(family="llama")
    llama = write_tiny(tmp_path / "llama.gguf", tiny)
    reader = gguf.GGUFReader(llama)
    writer = gguf.GGUFWriter(tmp_path / "qwen2.gguf", "qwen2")
    for field in reader.fields.values():
        if field.name.startswith("llama."):
            writer.add_key_value(field.name.replace("llama.", "qwen2."), field.contents(), field.types[0])
    for tensor in reader.tensors:
        weights = dequantize_f32(tensor.data, "F32")
        if "attn_q." in tensor.name or "attn_k." in tensor.name:
            size = tiny.width // tiny.heads
            pairs = weights.reshape(-1, size // 2, 2, tiny.width)
            weights = np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weights.shape))
        writer.add_tensor(tensor.name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    qwen2 = Reference(tmp_path / "qwen2.gguf").logits(TOKENS)
    np.testing.assert_allclose(Reference(llama).logits(TOKENS), qwen2, rtol=0, atol=1e-10)


def test_roundings_of_the_engine_change_little(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", Tiny(kind="Q8_0"))
    exact = Reference(path).logits(TOKENS)
    size = np.linalg.norm(exact)
    assert 1e-7 < np.linalg.norm(Reference(path, kv_f16=True).logits(TOKENS) - exact) / size < 1e-3
    assert 1e-3 < np.linalg.norm(Reference(path, int8_activations=True).logits(TOKENS) - exact) / size < 0.05
    quick = Reference(path, dtype=np.float32).logits(TOKENS)
    assert quick.dtype == np.float32
    assert 0 < np.linalg.norm(quick - exact) / size < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_type_gives_a_model_of_the_same_scale(tmp_path: Path, kind: str) -> None:
    tiny = Tiny(kind=kind, embedding_kind=kind, width=256, mlp_width=512, tied=True, layers=1)
    logits = Reference(write_tiny(tmp_path / "tiny.gguf", tiny), keep=True).logits(TOKENS)
    assert 0.3 < logits.std() < 3


def test_a_tensor_the_reference_does_not_use_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", Tiny(layers=2))
    data = path.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight")
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"blk\.1\.ffn_xx\.weight"):
        Reference(path)


@pytest.mark.models
def test_the_real_model_knows_a_capital(smollm2: Path) -> None:
    """The capital of Italy, after those of France and Germany, with the ids that llama.cpp gives the text."""
    france = [504, 3575, 282, 4649, 314, 7042, 30]
    germany = [378, 3575, 282, 4521, 314, 11452, 28]
    italy = [284, 260, 3575, 282, 7158, 314]
    rome = 7268
    logits = Reference(smollm2).logits([*france, *germany, *italy], rows=slice(-1, None))
    assert logits.argmax() == rome
