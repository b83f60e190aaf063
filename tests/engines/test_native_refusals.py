"""Models that can't be run are refused by name, at load."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.native.kernel_types import KERNEL_TYPES
from pilotfish.engines.native.tensor_types import TENSOR_TYPES
from pilotfish.engines.native.threads import default_threads
from pilotfish.errors import EngineError, FormatError, ModelError, NumericsError, UnsupportedError, UsageError


def writer(path: Path, family: str = "llama", **changes: int) -> gguf.GGUFWriter:
    """A header of the family; tensors and further keys are the caller's."""
    w = gguf.GGUFWriter(path, family)
    w.add_block_count(1)
    w.add_context_length(64)
    w.add_embedding_length(changes.get("width", 64))
    w.add_feed_forward_length(64)
    w.add_head_count(changes.get("heads", 2))
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5)
    return w


def finish(w: gguf.GGUFWriter) -> None:
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def tensors(w: gguf.GGUFWriter, *, drop: str = "", wrong: str = "") -> None:
    shapes = {
        "token_embd.weight": (32, 64),
        "output_norm.weight": (64,),
        "blk.0.attn_norm.weight": (64,),
        "blk.0.ffn_norm.weight": (64,),
        "blk.0.attn_q.weight": (64, 64),
        "blk.0.attn_k.weight": (32, 64),
        "blk.0.attn_v.weight": (32, 64),
        "blk.0.attn_output.weight": (64, 64),
        "blk.0.ffn_gate.weight": (64, 64),
        "blk.0.ffn_up.weight": (64, 64),
        "blk.0.ffn_down.weight": (64, 64),
    }
    for name, shape in shapes.items():
        if name == drop:
            continue
        w.add_tensor(name, np.ones((shape[0] + 32 * (name == wrong), *shape[1:]), np.float32))


@pytest.mark.parametrize(
    "kind", sorted({kind.name for kind in TENSOR_TYPES.values() if kind.block > 1} - KERNEL_TYPES.keys())
)
def test_a_tensor_type_without_kernels_is_named_with_what_to_take_instead(tmp_path: Path, kind: str) -> None:
    """Before anything is packed, in the order of the file."""
    w, shares = writer(tmp_path / "m.gguf"), list[float]()
    tensors(w)
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = np.zeros((64, 256 // values * size), np.uint8)
    w.add_tensor("blk.0.another.weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    finish(w)
    with pytest.raises(UnsupportedError, match=rf"blk\.0\.another\.weight has type {kind},") as caught:
        NativeEngine.load(tmp_path / "m.gguf", progress=shares.append)
    assert "such as Q4_K_M" in caught.value.hint
    assert all(known in caught.value.hint for known in KERNEL_TYPES)
    assert not shares


def test_the_small_model_itself_loads(tmp_path: Path) -> None:
    w = writer(tmp_path / "m.gguf")
    tensors(w)
    finish(w)
    assert NativeEngine.load(tmp_path / "m.gguf").vocab_size == 32


def test_an_unknown_family_is_named(tmp_path: Path) -> None:
    w = writer(tmp_path / "m.gguf", "mamba")
    tensors(w)
    finish(w)
    with pytest.raises(UnsupportedError, match=r"'mamba'.*llama, qwen2"):
        NativeEngine.load(tmp_path / "m.gguf")


@pytest.mark.parametrize("key", ["rope.scaling.type", "attention.sliding_window", "attn_logit_softcapping"])
def test_a_key_that_changes_the_model_is_named(tmp_path: Path, key: str) -> None:
    w = writer(tmp_path / "m.gguf")
    w.add_uint32(f"llama.{key}", 7)
    tensors(w)
    finish(w)
    with pytest.raises(UnsupportedError, match=rf"llama\.{key} = 7"):
        NativeEngine.load(tmp_path / "m.gguf")


def test_a_tensor_without_a_place_is_named(tmp_path: Path) -> None:
    w = writer(tmp_path / "m.gguf")
    tensors(w)
    w.add_tensor("rope_factors_long.weight", np.ones(16, np.float32))
    finish(w)
    with pytest.raises(UnsupportedError, match="rope_factors_long"):
        NativeEngine.load(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["blk.0.ffn_up.weight", "output_norm.weight", "token_embd.weight"])
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    w = writer(tmp_path / "m.gguf")
    tensors(w, drop=name)
    finish(w)
    with pytest.raises(FormatError, match=name):
        NativeEngine.load(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["blk.0.ffn_up.weight", "blk.0.attn_k.weight", "output_norm.weight"])
def test_a_tensor_of_another_shape_is_refused(tmp_path: Path, name: str) -> None:
    w = writer(tmp_path / "m.gguf")
    tensors(w, wrong=name)
    finish(w)
    with pytest.raises(FormatError):
        NativeEngine.load(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("key", "value"), [("block_count", 0), ("context_length", 0), ("attention.head_count", 0)]
)
def test_a_zero_where_a_size_belongs_is_refused(tmp_path: Path, key: str, value: int) -> None:
    w = writer(tmp_path / "m.gguf")
    w.kv_data[0][f"llama.{key}"].value = value
    tensors(w)
    finish(w)
    with pytest.raises(FormatError, match=rf"llama\.{key} is 0"):
        NativeEngine.load(tmp_path / "m.gguf")


def test_heads_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    w = writer(tmp_path / "m.gguf", heads=3)
    tensors(w)
    finish(w)
    with pytest.raises(ModelError):
        NativeEngine.load(tmp_path / "m.gguf")


def test_options_out_of_range_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "m.gguf", Tiny())
    with pytest.raises(UsageError, match="context is 513"):
        NativeEngine.load(path, context=513)
    with pytest.raises(UsageError, match="threads is 0"):
        NativeEngine.load(path, threads=0)
    monkeypatch.setenv("PILOTFISH_ISA", "sse9")
    with pytest.raises(UsageError, match=r"'sse9'.*portable"):
        NativeEngine.load(path)


def test_a_model_with_nan_weights_gives_an_error_not_a_token(tmp_path: Path) -> None:
    w = writer(tmp_path / "m.gguf")
    tensors(w, drop="output_norm.weight")
    w.add_tensor("output_norm.weight", np.full(64, np.nan, np.float32))
    finish(w)
    engine = NativeEngine.load(tmp_path / "m.gguf")
    rows = engine.forward([Chunk(engine.open(), [1, 2], 1)])
    with pytest.raises(NumericsError):
        rows.argmax(0)


def test_rows_of_an_earlier_pass_and_a_disposed_engine_are_refused(tmp_path: Path) -> None:
    engine = NativeEngine.load(write_tiny(tmp_path / "m.gguf", Tiny()))
    sequence = engine.open()
    rows = engine.forward([Chunk(sequence, [1], 1)])
    engine.forward([Chunk(sequence, [2], 1)])
    with pytest.raises(EngineError, match="earlier pass"):
        rows.argmax(0)
    engine.dispose()
    with pytest.raises(EngineError, match="disposed"):
        engine.forward([Chunk(sequence, [3], 1)])


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "garbage"}, None),
        ({}, None),
    ],
)
def test_the_container_limits_threads(tmp_path: Path, files: dict[str, str], most: int | None) -> None:
    unlimited = default_threads(tmp_path / "nowhere")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert default_threads(tmp_path) == min(unlimited, most or unlimited)
