"""Files that are well formed and mean harm: refused at load, or an error instead of a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import pytest

from gguf_files import GgufFile, Tensor, Typed
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.errors import EngineError, FormatError, ModelError, NumericsError, UnsupportedError

WIDTH = 64
SHAPES = {
    "token_embd.weight": (WIDTH, 32),
    "output.weight": (WIDTH, 32),
    "output_norm.weight": (WIDTH,),
    "blk.0.attn_norm.weight": (WIDTH,),
    "blk.0.ffn_norm.weight": (WIDTH,),
    "blk.0.attn_q.weight": (WIDTH, 64),
    "blk.0.attn_k.weight": (WIDTH, 32),
    "blk.0.attn_v.weight": (WIDTH, 32),
    "blk.0.attn_output.weight": (64, WIDTH),
    "blk.0.ffn_gate.weight": (WIDTH, 64),
    "blk.0.ffn_up.weight": (WIDTH, 64),
    "blk.0.ffn_down.weight": (64, WIDTH),
}
KEYS: dict[str, Any] = {
    "context_length": 64,
    "block_count": 1,
    "embedding_length": WIDTH,
    "feed_forward_length": 64,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.layer_norm_rms_epsilon": 1e-5,
}


def write(
    path: Path,
    *,
    keys: dict[str, Any] | None = None,
    shapes: dict[str, tuple[int, ...]] | None = None,
    factors: dict[str, float] | None = None,
    family: str = "llama",
) -> Path:
    """Write a small model, random but for what is named; `factors` scale tensors."""
    rng = np.random.default_rng(0)
    entries: list[tuple[str | bytes, Any]] = [("general.architecture", family)]
    entries += [(f"{family}.{key}", value) for key, value in {**KEYS, **(keys or {})}.items()]
    tensors = []
    for name, shape in {**SHAPES, **(shapes or {})}.items():
        values = rng.normal(0, 0.1, shape).astype(np.float32) * np.float32((factors or {}).get(name, 1))
        tensors.append(Tensor(name, shape, data=values.tobytes()))
    path.write_bytes(GgufFile(entries, tensors).build())
    return path


def test_the_model_without_changes_answers(tmp_path: Path) -> None:
    engine = NativeEngine.load(write(tmp_path / "m.gguf"))
    assert engine.forward([Chunk(engine.open(), [1, 31], 1)]).argmax(0) < 32


def test_a_head_with_more_rows_than_the_embedding_is_refused(tmp_path: Path) -> None:
    """Its last tokens would be read from beyond the embedding."""
    path = write(tmp_path / "m.gguf", shapes={"output.weight": (WIDTH, 4096)})
    with pytest.raises(FormatError, match=r"output\.weight"):
        NativeEngine.load(path)


def test_an_embedding_of_another_width_than_the_header_says_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", keys={"embedding_length": 128, "attention.key_length": 32})
    with pytest.raises(FormatError, match=r"token_embd\.weight"):
        NativeEngine.load(path)


@pytest.mark.parametrize("base", [0.5, 1e-300, 5e-324])
def test_a_rope_base_below_one_is_refused(tmp_path: Path, base: float) -> None:
    """Its angles grow without bound."""
    path = write(tmp_path / "m.gguf", keys={"rope.freq_base": Typed("f64", base)})
    with pytest.raises(UnsupportedError, match=r"rope base"):
        NativeEngine.load(path)


def test_more_rows_than_an_index_holds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    entries: list[tuple[str | bytes, Any]] = [("general.architecture", "llama")]
    entries += [(f"llama.{key}", value) for key, value in {**KEYS, "embedding_length": 32}.items()]
    entries.append(("llama.attention.key_length", 32))
    rows = (1 << 24) + 1
    path.write_bytes(GgufFile(entries, [Tensor("token_embd.weight", (32, rows), "Q4_1", data=b"")]).build())
    with path.open("r+b") as file:  # zeros that take no room on the disk
        file.truncate(path.stat().st_size + 20 * rows + 32)
    with pytest.raises(UnsupportedError, match=str(rows)):
        NativeEngine.load(path)


def test_layers_that_are_only_claimed_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", keys={"block_count": 4096})
    with pytest.raises(FormatError, match=r"blk\.1\."):
        NativeEngine.load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 4097),
        ("attention.head_count", 1 << 20),
        ("attention.head_count", 65),
        ("attention.head_count_kv", 1 << 31),
        ("attention.head_count_kv", 3),
        ("attention.key_length", 1),
        ("attention.key_length", 1 << 30),
        ("embedding_length", 1 << 31),
        ("context_length", 1 << 31),
        ("attention.layer_norm_rms_epsilon", -1.0),
    ],
)
def test_sizes_out_of_range_are_refused(tmp_path: Path, key: str, value: float) -> None:
    with pytest.raises(ModelError):
        NativeEngine.load(write(tmp_path / "m.gguf", keys={key: value}))


@pytest.mark.parametrize(
    ("name", "factor"),
    [(name, factor) for name in SHAPES for factor in (np.inf, np.nan)]
    + [("token_embd.weight", 1e38), ("blk.0.attn_k.weight", 1e38), ("blk.0.attn_v.weight", 1e38)],
)
def test_weights_that_overflow_give_an_error_not_a_token(tmp_path: Path, name: str, factor: float) -> None:
    """Infinite keys, for one, would make all scores NaN, and a NaN that is lost on the way a likely token."""
    engine = NativeEngine.load(write(tmp_path / "m.gguf", factors={name: factor}))
    rows = engine.forward([Chunk(engine.open(), [1, 2, 3], 1)])
    with pytest.raises(NumericsError):
        rows.argmax(0)


def test_a_pass_within_a_pass_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    """As it would come from another thread: the passes would share buffers."""
    engine = NativeEngine.load(write(tmp_path / "m.gguf"))
    sequence, other = engine.open(), engine.open()
    refusals: list[EngineError] = []

    class Nested(Sequence[int]):
        def __len__(self) -> int:
            return 1

        @overload
        def __getitem__(self, index: int) -> int: ...
        @overload
        def __getitem__(self, index: slice) -> Sequence[int]: ...
        def __getitem__(self, index: int | slice) -> int | Sequence[int]:
            raise NotImplementedError

        def __iter__(self) -> Iterator[int]:
            with pytest.raises(EngineError, match="runs already") as refusal:
                engine.forward([Chunk(other, [1], 1)])
            refusals.append(refusal.value)
            return iter([5])

    nested = engine.forward([Chunk(sequence, Nested(), 1)])
    assert refusals
    assert engine.length(sequence) == 1
    assert engine.length(other) == 0
    digest = nested.digest(0)
    assert engine.forward([Chunk(other, [5], 1)]).digest(0) == digest
