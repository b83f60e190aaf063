"""What `bench passes` reports is what its clock and its counts say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli_calls import call
from oracle.tiny import Tiny, write_tiny
from pilotfish.bench.passes import measure
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.native.rows import NativeRows
from pilotfish.errors import UsageError
from pilotfish.kernels import _kernels

TINY = Tiny(kind="Q4_0", embedding_kind="Q8_0")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NativeEngine:
    monkeypatch.setattr(_kernels, "read_bandwidth", lambda *_: 1e9)
    return NativeEngine.load(write_tiny(tmp_path / "tiny.gguf", TINY), threads=1)


def test_times_come_from_the_clock_and_the_floor_from_bytes(engine: NativeEngine) -> None:
    ticks = itertools.count()
    passes = measure(engine, 100, 3, clock=lambda: float(next(ticks)), tokens=(1, 4))
    assert passes.rows == {1: [1.0, 1.0, 1.0], 4: [1.0, 1.0, 1.0]}
    assert passes.prefill[512] == [1.0]
    assert passes.floor_s == passes.bytes / 1e9
    report = passes.as_dict()
    assert [row["cost_ratio"] for row in report["rows"]] == [1.0, 1.0]  # type: ignore[attr-defined]
    assert set(passes.parts) == {"embed", "rope", "norm", "qkv", "attention", "output", "mlp", "head"}
    assert engine.pages_in_use == 0


def test_the_parts_are_those_of_one_token_without_the_warm_up(
    engine: NativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine tells of its last pass; this one tells which it was."""
    sizes: list[int] = []
    forward = NativeEngine.forward

    def noticed(self: NativeEngine, chunks: Sequence[Chunk]) -> NativeRows:
        sizes.append(len(chunks[0].tokens))
        return forward(self, chunks)

    monkeypatch.setattr(NativeEngine, "forward", noticed)
    monkeypatch.setattr(NativeEngine, "parts_s", lambda _self: {"mlp": sizes.count(1), str(sizes[-1]): 0})
    passes = measure(engine, 100, 2, clock=lambda: 0.0, tokens=(4, 1))
    assert passes.parts == {"mlp": 2.5, "1": 0}  # the second and the third over one token


def test_the_floor_counts_what_is_read_in_full(tmp_path: Path) -> None:
    """An embedding counts only if it is the head too; keys and values of the cached tokens are read."""
    untied, tied = (
        NativeEngine.load(
            write_tiny(tmp_path / f"{tied}.gguf", Tiny(kind="Q8_0", embedding_kind="F32", tied=tied))
        )
        for tied in (False, True)
    )
    assert untied.read_bytes == tied.read_bytes
    width, mlp, kv = 128, 256, 2 * 32
    layer = (2 * width * width + 2 * kv * width + 3 * width * mlp) * 34 // 32 + 2 * 4 * width
    assert tied.read_bytes == 2 * layer + 97 * width * 4 + 4 * width
    assert tied.kv_bytes_per_token == 2 * 2 * kv * 2


def test_a_context_without_room_is_refused(engine: NativeEngine) -> None:
    with pytest.raises(UsageError, match="context is 500"):
        measure(engine, 500, 1, clock=lambda: 0.0)
    assert engine.pages_in_use == 0


def test_a_picture_that_can_not_be_drawn_is_refused_before_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model of that name is looked for yet."""
    command = ["bench", "passes", "-m", "no-such-model", "--plot"]
    assert "'curve.doc'" in call(*command, "curve.doc").error
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert 'pip install "pilotfish[plot]"' in call(*command, "curve.png").error


@pytest.mark.models
def test_the_command_prints_one_line_of_json(smollm2: Path) -> None:
    arguments = ["bench", "passes", "-m", str(smollm2), "--context", "16", "--repeats", "1", "--json"]
    report = call(*arguments).json
    assert report["kind"] == "bench passes"
    assert [row["n"] for row in report["rows"]] == [1, 2, 3, 4, 6, 8, 12, 16, 32]
    assert report["machine"]["read_gb_s"] > 0
    assert 0 < report["one_row"]["share"] < 1.5
