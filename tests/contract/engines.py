"""The engines that must keep the contract.

An entry makes an engine with a context of 64..512 tokens, at least 8 known ids and no sequence open; it may
get fixtures by name from the request. One engine serves all tests of the suite.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oracle.tiny import Tiny, of_family, write_tiny
from pilotfish.engines.base import Engine
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.scripted import ScriptedEngine, ngrams

MakeEngine = Callable[[pytest.FixtureRequest], Engine]


def scripted(_request: pytest.FixtureRequest) -> Engine:
    return ScriptedEngine(ngrams(24, order=64, seed=5), vocab_size=24, context=96)


def native(request: pytest.FixtureRequest, tiny: Tiny, isa: str | None = None, threads: int = 2) -> Engine:
    folder: Path = request.getfixturevalue("tmp_path_factory").mktemp("contract")
    return NativeEngine.load(write_tiny(folder / "tiny.gguf", tiny), threads=threads, context=300, isa=isa)


def native_q4_0(request: pytest.FixtureRequest) -> Engine:
    return native(request, Tiny(kind="Q4_0", embedding_kind="Q8_0"))


def native_q4_k(request: pytest.FixtureRequest) -> Engine:
    return native(request, Tiny(family="qwen2", kind="Q4_K", embedding_kind="Q6_K", width=256, heads=4))


def native_portable(request: pytest.FixtureRequest) -> Engine:
    return native(request, Tiny(kind="Q5_0", embedding_kind="F16", tied=True), "portable")


def native_gemma3(request: pytest.FixtureRequest) -> Engine:
    shape = {"width": 32, "mlp_width": 32, "heads": 2, "head": 32, "layers": 6, "embedding_kind": "Q8_0"}
    return native(request, of_family("gemma3", kind="Q8_0", **shape), threads=1)


ENGINES = [
    pytest.param(scripted, id="scripted"),
    pytest.param(native_q4_0, id="native-q4_0"),
    pytest.param(native_q4_k, id="native-q4_k"),
    pytest.param(native_portable, id="native-portable"),
    pytest.param(native_gemma3, id="native-gemma3"),
]
