"""A row's bits depend on its own tokens: not on passes, neighbours, threads or instruction sets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.kernels import _kernels

TINY = Tiny(family="qwen2", kind="Q4_K", embedding_kind="Q6_K", width=256, heads=4, layers=2)


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("exact") / "tiny.gguf", TINY)


@pytest.fixture(scope="module")
def engines(tiny_path: Path) -> list[NativeEngine]:
    """The same model with 1, 2, 3 and 5 threads on every instruction set of this machine."""
    return [
        NativeEngine.load(tiny_path, threads=threads, isa=isa, context=400)
        for isa in _kernels.isas()
        for threads in (1, 2, 3, 5)
    ]


def digests(engine: NativeEngine, parts: Sequence[Sequence[int]]) -> list[int]:
    """Evaluate the parts one pass each; hashes of all rows."""
    sequence, found = engine.open(), []
    for part in parts:
        rows = engine.forward([Chunk(sequence, part, len(part))])
        found += [rows.digest(i) for i in range(len(part))]
    engine.close(sequence)
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bits_agree_across_splits_threads_and_instruction_sets(
    engines: list[NativeEngine], data: st.DataObject
) -> None:
    # Long ones cross a border between blocks of attention (256 keys).
    common = [i % 97 for i in range(data.draw(st.sampled_from([0, 200]), label="common"))]
    tokens = common + data.draw(st.lists(st.integers(0, 96), min_size=1, max_size=150), label="tokens")
    want = digests(engines[0], [tokens])
    for engine in engines:
        cuts = sorted(data.draw(st.sets(st.integers(1, len(tokens)), max_size=6), label="cuts"))
        bounds = [0, *(c for c in cuts if c < len(tokens)), len(tokens)]
        parts = [tokens[a:b] for a, b in itertools.pairwise(bounds)]
        assert digests(engine, parts) == want


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bits_agree_with_any_neighbours_in_the_pass(engines: list[NativeEngine], data: st.DataObject) -> None:
    engine = data.draw(st.sampled_from(engines), label="engine")
    texts = data.draw(
        st.lists(st.lists(st.integers(0, 96), min_size=2, max_size=90), min_size=2, max_size=5), label="texts"
    )
    alone = [digests(engine, [text]) for text in texts]
    handles = [engine.open() for _ in texts]
    heads = [data.draw(st.integers(1, len(text) - 1), label="head") for text in texts]
    engine.forward([Chunk(h, t[:n], 0) for h, t, n in zip(handles, texts, heads, strict=True)])
    rows = engine.forward([Chunk(h, t[n:], 1) for h, t, n in zip(handles, texts, heads, strict=True)])
    assert [rows.digest(i) for i in range(len(texts))] == [a[-1] for a in alone]
    for handle in handles:
        engine.close(handle)


def test_attention_over_shared_pages_is_attention_over_whole_tiles(tiny_path: Path) -> None:
    """One row takes the path that splits pages among threads, many rows the one that doesn't."""
    engine = NativeEngine.load(tiny_path, threads=2, context=400)
    tokens = list(np.random.default_rng(0).integers(0, 97, 390))
    whole = digests(engine, [tokens[:128], tokens[128:256], tokens[256:384], tokens[384:]])
    assert digests(engine, [[t] for t in tokens]) == whole


def test_pages_are_shared_by_forks_and_given_back(tiny_path: Path) -> None:
    engine = NativeEngine.load(tiny_path, threads=1, context=400)
    first = engine.open()
    engine.forward([Chunk(first, [1] * 130, 0)])
    second = engine.fork(first)
    assert engine.pages_in_use == 3
    engine.forward([Chunk(second, [2], 1)])
    assert engine.pages_in_use == 4  # its own copy of the partial page
    engine.truncate(second, 64)
    assert engine.pages_in_use == 3
    engine.close(first)
    engine.close(second)
    assert engine.pages_in_use == 0


@pytest.mark.models
def test_bits_agree_across_instruction_sets_on_a_real_model(smollm2: Path) -> None:
    tokens = list(np.random.default_rng(1).integers(0, 49152, 70))
    found = {
        isa: digests(
            NativeEngine.load(smollm2, isa=isa, context=128), [tokens[:60], tokens[60:64], tokens[64:]]
        )
        for isa in _kernels.isas()
    }
    assert len(set(map(tuple, found.values()))) == 1
