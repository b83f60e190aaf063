"""A slimmed model: a head that can say some ids, weights rounded at load; only ever a drafter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracle.tiny import Tiny, write_tiny
from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.model import ModelDrafter
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine, builder
from pilotfish.engines.native.slim import GROUP, HeadGroups, Slim
from pilotfish.errors import NumericsError
from pilotfish.kernels import _kernels
from pilotfish.sampling import Sampling, choose
from pilotfish.sequence import Sequence

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from pilotfish.engines.native.rows import NativeRows

VOCAB = 1000  # not a multiple of 16
TINY = Tiny(kind="Q8_0", embedding_kind="Q8_0", vocab_size=VOCAB)
IDS = st.integers(0, VOCAB - 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("slim") / "m.gguf", TINY)


@pytest.fixture(scope="module")
def whole(path: Path) -> NativeEngine:
    return NativeEngine.load(path, threads=2)


def restricted(path: Path, ids: Iterable[int], most: int = 512) -> NativeEngine:
    return NativeEngine.load(path, slim=Slim({}, frozenset(ids), most), threads=2)


def near(ids: Iterable[int]) -> NDArray[np.bool_]:
    """Tell for each id whether it shares a group with one of these."""
    groups = {token // GROUP for token in ids}
    return np.array([token // GROUP in groups for token in range(VOCAB)])


def check(rows: NativeRows, want: NativeRows, said: NDArray[np.bool_]) -> None:
    """Assert that ids that can be said have the bits of the whole head, and others -inf."""
    assert len(rows) == len(want) > 0
    for row in range(len(rows)):
        logits, full = rows.logits(row), want.logits(row)
        assert logits[said].tobytes() == full[said].tobytes()
        assert (logits[~said] == -np.inf).all()
        assert rows.argmax(row) == np.flatnonzero(said)[full[said].argmax()]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.sets(IDS, min_size=1, max_size=30),
    passes=st.lists(
        st.tuples(st.lists(IDS, max_size=40), st.lists(IDS, min_size=1, max_size=20), st.integers(1, 20)),
        min_size=1,
        max_size=5,
    ),
)
def test_a_restricted_head_has_the_bits_of_the_whole_one(
    path: Path, whole: NativeEngine, ids: set[int], passes: list[tuple[list[int], list[int], int]]
) -> None:
    """However many rows a pass wants, and whatever came in before it."""
    engine = restricted(path, ids)
    mine, theirs = engine.open(), whole.open()
    wanted = set(ids)
    for grown, tokens, rows in passes:
        engine.wants(grown)
        wanted |= set(grown)
        count = min(rows, len(tokens))
        check(
            engine.forward([Chunk(mine, tokens, count)]),
            whole.forward([Chunk(theirs, tokens, count)]),
            near(wanted),
        )
    whole.close(theirs)


def test_every_instruction_set_and_number_of_threads_gives_the_same_bits(path: Path) -> None:
    ids = {0, 5, 300, 999}
    found = set()
    for isa in _kernels.isas():
        for threads in (1, 3):
            engine = NativeEngine.load(path, slim=Slim({}, frozenset(ids)), threads=threads, isa=isa)
            found.add(engine.forward([Chunk(engine.open(), [1, 2, 3], 3)]).digest(2))
    assert len(found) == 1


def test_rows_stay_as_they_are_until_the_next_pass(path: Path, whole: NativeEngine) -> None:
    """What is wanted meanwhile, or goes for it, changes nothing of them."""
    engine = restricted(path, [0], most=1)
    mine, theirs = engine.open(), whole.open()
    engine.wants([500])
    rows = engine.forward([Chunk(mine, [1, 2], 2)])
    before = [rows.logits(i).tobytes() for i in range(2)]
    engine.wants([700])
    assert [rows.logits(i).tobytes() for i in range(2)] == before
    whole.forward([Chunk(theirs, [1, 2], 0)])
    rows, want = engine.forward([Chunk(mine, [3], 1)]), whole.forward([Chunk(theirs, [3], 1)])
    check(rows, want, near([0, 700]))


def test_what_was_not_wanted_for_the_longest_time_goes_first() -> None:
    head = HeadGroups([1], VOCAB, 2)
    assert head.take_changed() is not None

    def groups(*tokens: int) -> list[int] | None:
        head.want(tokens)
        found = head.take_changed()
        return None if found is None else found.tolist()

    assert groups(16, 17, 3) == [0, 1]
    assert groups(40) == [0, 1, 2]
    assert groups(18) is None  # there, and the newer one now
    assert groups(60) == [0, 1, 3]
    assert groups(2, 15) is None  # always there
    assert groups(-1, VOCAB) is None  # no ids
    assert groups(100, 120, 140) == [0, 7, 8]
    assert len(head) == 3


def test_sampling_is_over_the_ids_that_can_be_said(path: Path, whole: NativeEngine) -> None:
    engine = restricted(path, range(100, 200))
    said = near(range(100, 200))
    mine, theirs = engine.open(), whole.open()
    rows = engine.forward([Chunk(mine, [7, 8, 9], 1)])
    full = whole.forward([Chunk(theirs, [7, 8, 9], 1)]).logits(0)
    weights = np.exp(full[said].astype(np.float64) - full[said].max())
    shares = weights / weights.sum()
    for token, share in zip(np.flatnonzero(said)[::9], shares[::9], strict=True):
        assert math.isclose(rows.probability(0, int(token)), share, rel_tol=1e-5)
    assert rows.probability(0, 5) == 0.0
    top = np.sort(full[said].astype(np.float64))[::-1]
    assert rows.margin(0) == top[0] - top[1]
    never = np.where(said, full, np.float32(-1e30))
    for seed in range(20):
        sampling = Sampling(temperature=1.0, top_k=30, top_p=0.9, seed=seed)
        assert rows.choose(0, sampling, 3) == choose(never, sampling, 3)


def test_a_weight_that_is_not_a_number_is_an_error_still(tmp_path: Path) -> None:
    file = write_tiny(tmp_path / "m.gguf", Tiny(vocab_size=VOCAB))
    data = bytearray(file.read_bytes())
    data[-4:] = np.array([np.nan], np.float32).tobytes()  # the last row of the head
    file.write_bytes(data)
    engine = restricted(file, [0])
    sequence = engine.open()
    engine.forward([Chunk(sequence, [1], 1)]).argmax(0)  # not read
    engine.wants([VOCAB - 1])
    with pytest.raises(NumericsError, match=f"token {VOCAB - 1} is nan"):
        engine.forward([Chunk(sequence, [1], 1)]).argmax(0)


@pytest.mark.parametrize("tied", [False, True])
def test_the_bytes_of_a_token_are_those_that_are_left(tmp_path: Path, tied: bool) -> None:
    tiny = Tiny(kind="Q8_0", embedding_kind="F16", vocab_size=VOCAB, tied=tied)
    file = write_tiny(tmp_path / "m.gguf", tiny)
    width, mlp, kv = 128, 256, 64
    layer = 2 * width * width + 2 * kv * width + 3 * width * mlp
    norms = 4 * width * (2 * 2 + 1)
    assert NativeEngine.load(file).read_bytes == 2 * layer * 34 // 32 + norms + VOCAB * width * 2
    matrices = [f"blk.{i}.{name}.weight" for i in range(2) for name in ("ffn_up", "ffn_down", "attn_q")]
    head = "token_embd.weight" if tied else "output.weight"
    slim = Slim(dict.fromkeys([*matrices, head], "Q4_0"), frozenset(range(64)))
    engine = NativeEngine.load(file, slim=slim)
    rounded = 2 * (2 * width * mlp + width * width)
    of_layers = (2 * layer - rounded) * 34 // 32 + rounded * 18 // 32 + norms
    engine.wants([80, 500])
    assert engine.read_bytes == of_layers + (64 + 2 * GROUP) * width * 18 // 32


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q6_K"])
def test_a_model_rounded_in_parts_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, kind: str
) -> None:
    """Rows in an order of their own (llama's queries and keys) included."""
    file = write_tiny(tmp_path / "m.gguf", Tiny(family=family, kind=kind, width=256, vocab_size=VOCAB))
    names = [f"blk.0.{name}.weight" for name in ("attn_q", "attn_k", "ffn_up", "ffn_down")]

    def digest(names: list[str]) -> int:
        engine = NativeEngine.load(file, slim=Slim(dict.fromkeys(names, "Q4_0"), frozenset(range(50))))
        return engine.forward([Chunk(engine.open(), [1, 96, 5], 1)]).digest(0)

    at_once = digest(names)
    assert at_once != digest([])
    monkeypatch.setattr(builder, "_PART_BYTES", 1)
    assert digest(names) == at_once


def test_a_rounded_model_is_near_the_one_filed(path: Path, whole: NativeEngine) -> None:
    names = [f"blk.{i}.{name}.weight" for i in range(2) for name in ("attn_v", "attn_output", "ffn_down")]
    engine = NativeEngine.load(path, slim=Slim(dict.fromkeys([*names, "output.weight"], "Q4_0")))
    tokens = list(range(40))
    found, want = (e.forward([Chunk(e.open(), tokens, 40)]) for e in (engine, whole))
    for row in range(40):
        assert 0.9 < np.corrcoef(found.logits(row), want.logits(row))[0, 1] < 1 - 1e-6


def answer(engine: NativeEngine, drafter: ModelDrafter | None, sampling: Sampling) -> tuple[list[int], int]:
    """Return the tokens of an answer, and how many guesses were accepted."""
    sequence = Sequence([3, 700, 9], sampling, 40)
    tokens = [token.id for token in Decoder(engine, drafter, FixedLength(4)).run(sequence)]
    return tokens, sequence.stats.accepted


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("ids", [range(VOCAB), range(500), [1]])
def test_a_slimmed_drafter_never_changes_the_answer(
    path: Path, whole: NativeEngine, temperature: float, ids: Iterable[int]
) -> None:
    sampling = Sampling(temperature=temperature, seed=5)
    plain, _ = answer(whole, None, sampling)
    slim = Slim({f"blk.{i}.ffn_up.weight": "Q4_0" for i in range(2)}, frozenset(ids))
    drafted, accepted = answer(whole, ModelDrafter(NativeEngine.load(path, slim=slim), "slim"), sampling)
    assert drafted == plain
    assert accepted > 0 or ids == [1]


def test_groups_that_are_none_are_refused(path: Path) -> None:
    program = restricted(path, [0]).program(0)
    count = -(-VOCAB // GROUP)
    for groups in ([], [-1], [count], [1, 1], [2, 1]):
        with pytest.raises(ValueError, match="group"):
            program.set_head_groups(np.array(groups, np.int32))
    with pytest.raises(ValueError, match="no restricted head"):
        NativeEngine.load(path).program(0).set_head_groups(np.array([0], np.int32))
