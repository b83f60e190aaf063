"""Memory of the native engine: what the header promises, a cache that can't grow, a context that is full."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oracle.tiny import Tiny, write_tiny
from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.model import ModelDrafter
from pilotfish.engines.base import Chunk, Reserve
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.native.config import Config
from pilotfish.engines.native.container import Container
from pilotfish.engines.native.footprint import ONE_ANSWER, footprint_of
from pilotfish.engines.native.kv import PAGE
from pilotfish.engines.native.slim import Slim
from pilotfish.errors import OutOfMemory
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

if TYPE_CHECKING:
    from pilotfish.drafters.base import Drafter

TINY = Tiny(kind="Q8_0", embedding_kind="Q8_0", context=4096)
SLAB = 32 * PAGE
"""Tokens of a slab of pages."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("memory") / "m.gguf", TINY)


@pytest.fixture
def engine(path: Path) -> NativeEngine:
    return NativeEngine.load(path, threads=1)


def resident() -> int:
    """Return the bytes of this process that are in memory; 0 where that is not known."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def grown(engine: NativeEngine, sequence: int, count: int) -> None:
    """Append `count` tokens."""
    for begin in range(0, count, 512):
        engine.forward([Chunk(sequence, [7] * min(512, count - begin), 0)])


@pytest.mark.parametrize("slim", [None, Slim({"output.weight": "Q4_0", "blk.0.ffn_up.weight": "Q4_0"})])
def test_the_header_tells_the_bytes_of_packed_weights_and_of_a_full_context(
    path: Path, slim: Slim | None
) -> None:
    with Container.open(path) as container:
        promised = footprint_of(container, Config(container.metadata), 3 * PAGE + 1, slim)
        engine = NativeEngine.load(container, threads=1, slim=slim)
    assert promised.weights == engine.weights_bytes
    assert promised.kv == 4 * PAGE * engine.kv_bytes_per_token


@pytest.mark.models
@pytest.mark.parametrize("reserve", [ONE_ANSWER, Reserve(rows=272, wanted=144, tokens=3000)])
def test_what_is_reserved_is_what_the_header_tells_and_is_in_memory_at_once(
    smollm2: Path, reserve: Reserve
) -> None:
    """Within 2 % of what all of it takes; whoever reserves nothing has taken nothing yet."""
    with Container.open(smollm2) as container:
        told = footprint_of(container, Config(container.metadata), 2048, reserve=reserve, threads=2)
        engine = NativeEngine.load(container, threads=2, context=2048)
    assert engine.work_bytes == engine.reserved_tokens == 0
    before = resident()
    engine.reserve(reserve)
    grown = resident() - before
    kv = engine.reserved_tokens * engine.kv_bytes_per_token
    assert kv == -(-reserve.tokens // PAGE) * PAGE * engine.kv_bytes_per_token
    assert told.work - 0.02 * told.total <= engine.work_bytes <= told.work
    assert told.kv == max(kv, 2048 * engine.kv_bytes_per_token)
    if sys.platform == "linux":  # less where what passes work on lies in memory that earlier tests have freed
        assert kv - 0.02 * told.total <= grown <= kv + engine.work_bytes + 0.02 * told.total


def test_a_reserve_for_which_there_is_no_memory_is_a_clear_error(
    engine: NativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: 1000)
    with pytest.raises(
        OutOfMemory, match=r"a KV cache of 640 tokens needs \d+ MB of memory and 0 MB are free"
    ):
        engine.reserve(Reserve(rows=8, wanted=2, tokens=10 * PAGE))
    monkeypatch.undo()
    engine.reserve(Reserve(rows=8, wanted=2, tokens=10 * PAGE))
    grown(engine, engine.open(), 10 * PAGE)
    assert engine.reserved_tokens == 10 * PAGE


def test_pages_that_are_reserved_are_used_without_a_look_at_free_memory(
    engine: NativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in whole slabs only: 40 pages, then those of the slab they end in, then more."""
    engine.reserve(Reserve(rows=8, wanted=2, tokens=40 * PAGE))
    looks: list[None] = []
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: looks.append(None))
    sequence = engine.open()
    grown(engine, sequence, 40 * PAGE)
    assert (engine.reserved_tokens, looks) == (40 * PAGE, [])
    grown(engine, sequence, 24 * PAGE)
    assert (engine.reserved_tokens, looks) == (64 * PAGE, [])
    grown(engine, engine.open(), 1)
    assert looks == [None]


def test_a_reserve_that_ends_inside_a_slab_is_refused_where_the_slab_does_not_fit(
    engine: NativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since the rest of it is used without a look: 40 pages are two slabs of 32."""
    pages = 64 * PAGE * engine.kv_bytes_per_token
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: pages - 1)
    with pytest.raises(OutOfMemory):
        engine.reserve(Reserve(rows=8, wanted=2, tokens=40 * PAGE))
    assert engine.reserved_tokens == 0
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: pages)
    engine.reserve(Reserve(rows=8, wanted=2, tokens=40 * PAGE))
    assert engine.reserved_tokens == 40 * PAGE


def test_what_is_reserved_changes_no_bit(path: Path) -> None:
    """Nor does a reserve between two passes, whose rows stay readable."""
    plain, reserved = (NativeEngine.load(path, threads=2) for _ in range(2))
    chunks = [[5, 6, 7] * 30, [8], [9, 10]]
    digests: list[list[int]] = []
    for engine in (plain, reserved):
        digests.append([])
        sequence = engine.open()
        for tokens in chunks:
            rows = engine.forward([Chunk(sequence, tokens, 1)])
            if engine is reserved:
                engine.reserve(Reserve(rows=50 * len(digests[-1]) + 5, wanted=9, tokens=70 * PAGE))
            digests[-1].append(rows.digest(0))
    assert digests[0] == digests[1]


def test_memory_is_looked_at_before_the_cache_grows_and_never_else(
    engine: NativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look a slab; pages that were given back are used again without one."""
    looks: list[None] = []
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: looks.append(None))
    sequence = engine.open()
    grown(engine, sequence, SLAB)
    assert len(looks) == 1
    grown(engine, sequence, 1)
    assert len(looks) == 2
    engine.close(sequence)
    grown(engine, engine.open(), 2 * SLAB)
    assert len(looks) == 2


def test_a_short_context_asks_for_no_whole_slab(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = NativeEngine.load(path, context=2 * PAGE)
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: 2 * PAGE * engine.kv_bytes_per_token)
    grown(engine, engine.open(), 2 * PAGE)


def test_a_cache_that_can_not_grow_is_a_clear_error_and_the_engine_works_on(
    engine: NativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sequence of the pass holds what it held, also the one that had room."""
    full, short = engine.open(), engine.open()
    grown(engine, full, SLAB - PAGE)
    engine.forward([Chunk(short, [3], 1)])
    used = engine.pages_in_use
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: 1000)
    both = [Chunk(short, [5], 1), Chunk(full, [5] * PAGE, 1)]
    with pytest.raises(OutOfMemory, match=r"beyond 2048 tokens needs \d+ MB of memory and 0 MB are free"):
        engine.forward(both)
    assert (engine.length(full), engine.length(short)) == (SLAB - PAGE, 1)
    assert engine.pages_in_use == used
    alone = engine.forward([Chunk(short, [5], 1)]).digest(0)
    engine.truncate(short, 1)
    monkeypatch.undo()
    assert engine.forward(both).digest(0) == alone


def decoder_of(engine: NativeEngine, drafter: Drafter | None) -> Decoder:
    return Decoder(engine, drafter, FixedLength(5))


def test_an_answer_for_which_memory_ends_is_an_error_and_the_next_one_is_right(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both caches are freed, and after it both models answer as ever."""
    target, draft = (NativeEngine.load(path, threads=1) for _ in range(2))
    decoder = decoder_of(target, ModelDrafter(draft, "draft"))

    def asked(prompt: int, tokens: int) -> list[int]:
        sequence = Sequence([7] * prompt, Sampling(), tokens)
        return [token.id for token in decoder.run(sequence)]

    short = asked(20, 30)
    for engine in (target, draft):
        grown(engine, handle := engine.open(), SLAB - PAGE)  # so that the next page begins a slab soon
        engine.truncate(handle, SLAB - 2 * PAGE)
    held = target.pages_in_use, draft.pages_in_use
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: 0)
    with pytest.raises(OutOfMemory, match="growing the KV cache"):
        asked(PAGE, 3 * PAGE)
    assert (target.pages_in_use, draft.pages_in_use) == held
    assert asked(20, 30) == short


def test_when_only_the_draft_model_has_no_memory_the_answer_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target, draft = (NativeEngine.load(path, threads=1) for _ in range(2))
    grown(target, target.open(), 1)  # its first slab is there

    def asked(drafter: Drafter | None) -> list[int]:
        return [t.id for t in decoder_of(target, drafter).run(Sequence([7] * 20, Sampling(), 30))]

    plain = asked(None)
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: 0)
    assert asked(ModelDrafter(draft, "small")) == plain
    assert "drafter small failed to propose" in caplog.text
    assert draft.pages_in_use == 0


def test_an_address_space_that_is_full_is_an_error_too(path: Path) -> None:
    """Where the system itself refuses, as under `ulimit -v`; then the same engine goes on."""
    script = """
import resource, sys
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.errors import OutOfMemory

engine = NativeEngine.load(sys.argv[1], threads=1)
first, second = engine.open(), engine.open()
engine.forward([Chunk(first, [1, 2, 3], 1)])
engine.forward([Chunk(second, [7] * 128, 1)])
pages = [int(n) for n in open("/proc/self/statm").read().split()]
most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages[0] * resource.getpagesize() + (1 << 18), most[1]))
refused = ""
try:
    for _ in range(40):
        engine.forward([Chunk(second, [7] * 64, 1)])
except OutOfMemory as error:
    refused = str(error)
resource.setrlimit(resource.RLIMIT_AS, most)
held = engine.length(second)
engine.forward([Chunk(second, [7] * 64, 1)])
print(engine.length(second) - held, refused)
"""
    if sys.platform != "linux":
        pytest.skip("the size of the address space is read from /proc")
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.startswith(
        "64 growing the KV cache beyond 2048 tokens failed: the system has no memory"
    )


@pytest.mark.parametrize("context", [1 + 20, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 3])
def test_a_full_context_ends_an_answer_at_the_same_token_with_and_without_drafts(
    path: Path, context: int
) -> None:
    """At, before and behind the border of a page: all tokens that fit, none beyond, and reason `length`."""
    target = NativeEngine.load(path, threads=1, context=context)
    draft = NativeEngine.load(path, threads=1, context=context)
    answers = []
    for drafter in (None, ModelDrafter(draft, "draft")):
        sequence = Sequence([7] * 20, Sampling(), 10_000)
        tokens = list(decoder_of(target, drafter).run(sequence))
        assert len(sequence.tokens) == context
        assert tokens[-1].finish_reason == sequence.finish_reason == "length"
        answers.append([token.id for token in tokens])
    assert answers[0] == answers[1]
    assert target.pages_in_use == draft.pages_in_use == 0
