"""The builder of programs: layers work in the same place, and nothing is read after it was overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.engines.native.builder import Builder


def test_a_model_of_more_layers_works_in_the_same_place(tmp_path: Path) -> None:
    sizes = []
    for layers in (1, 5):
        engine = NativeEngine.load(write_tiny(tmp_path / f"{layers}.gguf", Tiny(layers=layers)), threads=1)
        engine.forward([Chunk(engine.open(), [7] * 100, 1)])
        sizes.append(engine.work_bytes)
    assert sizes[0] == sizes[1] > 0


def test_a_family_that_reads_what_was_overwritten_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the norm before attention, read once more behind the one before the MLP."""

    def build(m: Builder) -> None:
        x = m.embed("token_embd.weight")
        first = m.norm(x, "blk.0.attn_norm.weight", 1e-5)
        m.norm(x, "blk.0.ffn_norm.weight", 1e-5)
        m.qkv(first, [f"blk.0.attn_{part}.weight" for part in "qkv"])

    path = write_tiny(tmp_path / "m.gguf", Tiny(layers=1))
    monkeypatch.setattr("pilotfish.engines.native.engine.family_named", lambda _name: build)
    with pytest.raises(ValueError, match="read after another one of its kind was made"):
        NativeEngine.load(path, threads=1)
