"""What is told of a model from its header alone is what loading it would tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from oracle.changed import written_with
from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.native.checking import check_runs
from pilotfish.engines.native.container import Container
from pilotfish.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD = [
    Tiny(),
    Tiny(family="qwen2", kind="Q8_0", tied=True),
    Tiny(kind="Q4_K", width=256, heads=4, mlp_width=256, embedding_kind="Q6_K"),
]
BAD: dict[str, Callable[[gguf.GGUFWriter], None]] = {
    "a key that is not known": lambda w: w.add_uint32("llama.rope.scaling.orig", 4),
    "a tensor that is not known": lambda w: w.add_tensor("rope_freqs.weight", np.ones(8, np.float32)),
    "a scaled rope": lambda w: w.add_float32("llama.rope.scaling.factor", 2.0),
    "another size of values": lambda w: w.add_value_length(64),
    "a context of none": lambda w: w.add_context_length(0),
    "heads that do not divide": lambda w: w.add_head_count_kv(3),
    "a window": lambda w: w.add_sliding_window(16),
    "a bias in one layer only": lambda w: w.add_tensor("blk.0.attn_q.bias", np.ones(128, np.float32)),
    "an integer matrix": lambda w: w.add_tensor("blk.9.attn_q.weight", np.ones((32, 32), np.int32)),
}


def said(call: Callable[[], object]) -> str | None:
    try:
        call()
    except ModelError as error:
        return str(error)
    return None


@pytest.mark.parametrize("tiny", GOOD, ids=lambda tiny: tiny.kind)
def test_a_model_that_loads_is_found_good(tmp_path: Path, tiny: Tiny) -> None:
    path = write_tiny(tmp_path / "m.gguf", tiny)
    with Container.open(path) as container:
        check_runs(container)
    NativeEngine.load(path, threads=1)


@pytest.mark.parametrize("what", BAD)
def test_a_model_that_is_refused_is_refused_with_the_same_words(tmp_path: Path, what: str) -> None:
    with written_with(BAD[what]):
        path = write_tiny(tmp_path / "m.gguf")
    with Container.open(path) as container:
        words = said(lambda: check_runs(container))
    assert words is not None
    assert words == said(lambda: NativeEngine.load(path, threads=1))


@pytest.mark.models
def test_a_real_model_is_found_good_and_its_matrices_are_not_read(
    qwen05: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    data = Container.data

    def watched(self: Container, name: str) -> memoryview:
        read.append(self.tensors[name].nbytes)
        return data(self, name)

    monkeypatch.setattr(Container, "data", watched)
    with Container.open(qwen05) as container:
        check_runs(container)
    assert 0 < sum(read) < 1 << 20
