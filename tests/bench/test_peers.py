"""Ours and a peer's passes alternate, each on what it holds, and are reported side by side."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cli_calls import call
from oracle.tiny import Tiny, write_tiny
from pilotfish.bench import peers
from pilotfish.bench.passes import PAUSE_S, measure
from pilotfish.bench.peer_features import unused_features
from pilotfish.bench.plot_passes import plot
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.errors import EngineError, OutOfMemory, PilotfishError
from pilotfish.kernels import _kernels
from tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
TINY = Tiny(kind="Q4_0", embedding_kind="Q8_0")
CONTEXT, SLOWER, PROMPT_FASTER = 100, 3.0, 4.0
COMMAND = ["bench", "passes", "-m", "tiny", "--context", str(CONTEXT), "--repeats", "1", "--peer", "fake"]


@dataclass
class _Stage:
    """A clock that only work moves, and what happened in which order."""

    now: float = 0.0
    events: list[tuple[str, str, int]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        assert seconds == PAUSE_S
        self.events.append(("pause", "", 0))

    def work(self, who: str, what: str, tokens: int, seconds: float) -> None:
        self.now += seconds
        self.events.append((who, what, tokens))


@dataclass
class _FakePeer:
    """A peer whose passes take 3 s a token, the first of a size 100 s more; it reads 4 tokens a second."""

    stage: _Stage
    name: str = "fake"
    version: str = "fake 1.2"
    build: str = "CPU : AVX2 = 1"
    fails: bool = False
    closed: int = 0
    held: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)

    def hold(self, tokens: Sequence[int]) -> None:
        self.held = self.cached = list(tokens)

    def run(self, tokens: Sequence[int]) -> None:
        assert self.cached == self.held
        assert len(self.held) == CONTEXT
        if self.fails:
            raise EngineError("the fake is told to fail")
        self.cached = self.held + list(tokens)
        built = 0.0 if self.stage.events[-1] == (self.name, "run", len(tokens)) else 100.0
        self.stage.work(self.name, "run", len(tokens), SLOWER * len(tokens) + built)

    def read(self, tokens: Sequence[int]) -> None:
        self.cached = list(tokens)
        self.stage.work(self.name, "read", len(tokens), len(tokens) / PROMPT_FASTER)

    def restore(self) -> None:
        self.cached = self.held

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> _Stage:
    """A stage on which our passes take 1 s a token."""
    stage = _Stage()
    forward = NativeEngine.forward

    def timed(engine: NativeEngine, chunks: Sequence[Chunk]) -> Any:
        rows = forward(engine, chunks)
        tokens = len(chunks[0].tokens)
        stage.work("ours", "run" if chunks[0].wanted else "read", tokens, float(tokens))
        return rows

    monkeypatch.setattr(NativeEngine, "forward", timed)
    monkeypatch.setattr(_kernels, "read_bandwidth", lambda *_: 1e9)
    return stage


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf", TINY)


@pytest.fixture
def engine(model: Path) -> NativeEngine:
    return NativeEngine.load(model, threads=1)


def test_each_size_is_timed_by_both_before_the_next_in_turned_order(
    stage: _Stage, engine: NativeEngine
) -> None:
    peer = _FakePeer(stage)
    measure(engine, CONTEXT, 2, clock=stage.clock, tokens=(1, 4), peers=[peer], pause=stage.pause)
    runs = [(who, n) for who, what, n in stage.events if what == "run"]
    assert runs[::2] == runs[1::2]  # the untimed ones
    assert runs[::2] == [
        *[("fake", 1), ("ours", 1), ("fake", 4), ("ours", 4)],
        *[("ours", 1), ("fake", 1), ("ours", 4), ("fake", 4)],
        *[("fake", 1), ("ours", 1), ("fake", 4), ("ours", 4)],
    ]
    assert engine.pages_in_use == 0


def test_all_rest_before_another_implementation_has_its_turn(stage: _Stage, engine: NativeEngine) -> None:
    """The other's threads have stopped waiting for work by then."""
    measure(engine, CONTEXT, 1, clock=stage.clock, tokens=(1, 4), peers=[_FakePeer(stage)], pause=stage.pause)
    before = [stage.events[i - 1] for i, event in enumerate(stage.events) if event[1] == "run"]
    assert [event[0] for event in before[::2]] == ["pause"] * 8
    assert [event[1] for event in before[1::2]] == ["run"] * 8
    reads = [i for i, event in enumerate(stage.events) if event == ("fake", "read", 512)]
    assert [stage.events[i - 1][0] for i in reads] == ["pause"]


def test_without_peers_nothing_pauses_or_goes_untimed(stage: _Stage, engine: NativeEngine) -> None:
    result = measure(engine, CONTEXT, 1, clock=stage.clock, tokens=(1,), pause=stage.pause)
    assert ("pause", "", 0) not in stage.events
    assert stage.events.count(("ours", "run", 1)) == 2  # the warm-up and one repeat
    assert result.as_dict()["peers"] == {}


def test_times_are_of_the_work_alone_and_go_to_whom_they_belong(stage: _Stage, engine: NativeEngine) -> None:
    """The fake takes three times ours for a pass, and a fourth for a prompt; what it builds isn't counted."""
    result = measure(
        engine, CONTEXT, 3, clock=stage.clock, tokens=(1, 4), peers=[_FakePeer(stage)], pause=stage.pause
    )
    assert result.rows == {1: [1.0] * 3, 4: [4.0] * 3}
    assert result.peers["fake"].rows == {1: [3.0] * 3, 4: [12.0] * 3}
    assert (result.prefill, result.peers["fake"].prefill) == ({512: [512.0]}, {512: [128.0]})
    assert (result.ratio("fake", 4), result.prefill_ratio("fake", 512)) == (3.0, 0.25)


def test_a_peer_is_reported_with_the_fields_that_ours_has(stage: _Stage, engine: NativeEngine) -> None:
    result = measure(
        engine, CONTEXT, 1, clock=stage.clock, tokens=(1, 4), peers=[_FakePeer(stage)], pause=stage.pause
    )
    report: Any = json.loads(json.dumps(result.as_dict()))
    peer = report["peers"]["fake"]
    assert set(peer) == {"version", "build", "rows", "prefill"}
    assert (peer["version"], peer["build"]) == ("fake 1.2", "CPU : AVX2 = 1")
    assert [set(row) for row in peer["rows"]] == [set(row) for row in report["rows"]]
    assert [row["median_ms"] for row in peer["rows"]] == [3000.0, 12000.0]
    assert [row["cost_ratio"] for row in peer["rows"]] == [1.0, 4.0]
    assert peer["rows"][0]["over_floor"] == pytest.approx(3 * report["rows"][0]["over_floor"])
    assert peer["prefill"] == [{"n": 512, "tokens_per_s": 4.0}]


def test_the_command_shows_both_and_the_ratio_and_closes_the_peer(
    stage: _Stage, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = _stand_in(stage, model, monkeypatch)
    done = call(*COMMAND)
    assert done.code == 0
    four = next(line.split() for line in done.out.splitlines() if line.startswith(" 4 ") or "   4 " in line)
    assert (four[0], four[1], four[-2:]) == ("4", "4000.00", ["12000.00", "3.00"])
    assert "prompt of 512 tokens: 1 tokens/s; fake 4, ratio 0.25" in done.out
    assert "fake: fake 1.2; CPU : AVX2 = 1\nratio above 1: pilotfish is faster\n" in done.out
    assert peer.closed == 1


def test_the_peer_is_closed_when_measuring_fails(
    stage: _Stage, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = _stand_in(stage, model, monkeypatch, fails=True)
    assert "told to fail" in call(*COMMAND).error
    assert peer.closed == 1


def test_a_peer_that_was_not_compiled_here_is_told_of(
    stage: _Stage, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(stage, model, monkeypatch)
    monkeypatch.setattr("pilotfish.bench.peer_features.unused_features", lambda _build: ["AVX512_VNNI"])
    done = call(*COMMAND, "--json")
    assert "fake was not compiled for this processor (AVX512_VNNI); type: make peers" in done.err
    assert done.json["settings"]["peers"] == ["fake"]


@pytest.mark.parametrize(
    ("build", "unused"),
    [
        ("CPU : SSE3 = 1 | AVX2 = 1 | FMA = 1 | AVX512 = 1 | AVX512_VNNI = 1 | REPACK = 1", []),
        ("CPU : SSE3 = 1 | AVX2 = 1 | FMA = 1 | REPACK = 1 | ", ["AVX512", "AVX512_VNNI"]),
        ("CPU : FMA = 1 | AVX2 = 0", ["AVX2", "AVX512", "AVX512_VNNI"]),
        ("Metal : EMBED_LIBRARY = 1 | CPU : AVX2 = 1 | FMA = 1 | AVX512 = 1 | AVX512_VNNI = 1", []),
        ("", ["AVX2", "FMA", "AVX512", "AVX512_VNNI"]),
    ],
)
def test_features_are_unused_if_the_processor_has_them_and_the_build_does_not(
    tmp_path: Path, build: str, unused: list[str]
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: sse2 fma avx2 avx512f avx512_vnni\nbugs\t\t: avx_vnni\n")
    assert unused_features(build, cpuinfo) == unused
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimddp\n")
    assert unused_features("CPU : NEON = 1", cpuinfo) == ["DOTPROD"]
    assert unused_features(build, tmp_path / "none") == []


def test_an_unknown_peer_is_refused_with_those_known_before_anything_is_loaded() -> None:
    said = call("bench", "passes", "-m", "no-such-model", "--peer", "lama.cpp").error
    assert "'lama.cpp'" in said
    assert "known are: llama.cpp" in said


def test_a_missing_package_is_named_with_how_to_compile_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is loaded."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    said = call("bench", "passes", "-m", "no-such-model", "--peer", "llama.cpp").error
    assert "make peers" in said
    assert "-DGGML_NATIVE=ON" in said
    assert peers.LLAMA_CPP_PACKAGE in said


def test_the_package_named_is_that_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert peers.LLAMA_CPP_PACKAGE in project["optional-dependencies"]["peers"]


def test_a_second_copy_that_does_not_fit_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: True)
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: 10)
    with pytest.raises(OutOfMemory, match=r"second copy of tiny\.gguf for llama\.cpp"):
        peers.open_peer("llama.cpp", model, room=600, threads=1)


def test_the_picture_names_the_peer(stage: _Stage, engine: NativeEngine, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = measure(
        engine, CONTEXT, 1, clock=stage.clock, tokens=(1, 4), peers=[_FakePeer(stage)], pause=stage.pause
    )
    plot(result, "title", tmp_path / "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert re.search(r"fake \(fake 1\.2\)", drawn)


@pytest.mark.models
def test_llama_cpp_holds_what_it_is_given_and_says_what_ours_says(smollm2: Path) -> None:
    """Its logits after passes of any size are near ours, so both do the same work on the same tokens."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="make peers compiles it")
    from pilotfish.bench.peer_llama_cpp import LlamaCpp

    text = [1 + i % 999 for i in range(560)]
    held, behind = text[:520], text[520:532]
    engine = NativeEngine.load(smollm2, threads=2)
    sequence = engine.open()
    engine.forward([Chunk(sequence, held, 0)])
    rows = engine.forward([Chunk(sequence, behind, len(behind))])
    expected = [rows.logits(i).copy() for i in range(len(behind))]
    engine.dispose()
    peer = LlamaCpp(smollm2, room=600, threads=2)
    try:
        peer.hold(held)
        for n in (1, 12, 3):
            peer.run(behind[:n])
            assert peer.length == len(held) + n
            peer.restore()
            assert peer.length == len(held)
        peer.read(text[:512])
        assert peer.length == 512
        peer.restore()
        assert peer.length == len(held)
        peer.run(behind)
        for i, logits in enumerate(expected):
            row = llama_cpp.llama_get_logits_ith(peer._context, i)
            theirs = np.ctypeslib.as_array(row, logits.shape)
            assert np.corrcoef(theirs, logits)[0, 1] > 0.99
    finally:
        peer.close()
        peer.close()


@pytest.mark.models
def test_llama_cpp_refuses_what_is_no_model(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="make peers compiles it")
    file = tmp_path / "nothing.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(PilotfishError, match=r"can't load .*nothing\.gguf"):
        peers.open_peer("llama.cpp", file, room=600, threads=1)


def _stand_in(
    stage: _Stage, model: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False
) -> _FakePeer:
    """Make the command load the tiny model, take the fake for a peer, and the stage's clock for the time."""
    peer = _FakePeer(stage, fails=fails)
    monkeypatch.setattr("pilotfish.bench.peers.PEERS", ("fake",))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: True)
    monkeypatch.setattr("pilotfish.bench.peers.open_peer", lambda *_args, **_more: peer)
    monkeypatch.setattr("pilotfish.bench.peer_features.unused_features", lambda _build: [])
    monkeypatch.setattr("time.perf_counter", stage.clock)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    engine = NativeEngine.load(model, threads=1)
    target = dataclasses.replace(tiny_model(), engine=engine, path=model, dispose=engine.dispose)
    monkeypatch.setattr("pilotfish.loading.load_models", lambda *_args, **_more: (target, []))
    return peer
