"""What every engine promises (`pilotfish.engines.base`); the engines are listed in `engines.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.engines import ENGINES, MakeEngine
from pilotfish.bans import BannedSequences
from pilotfish.engines.base import Chunk, Engine
from pilotfish.errors import EngineError
from pilotfish.history import History
from pilotfish.logprobs import logprobs
from pilotfish.sampling import Sampling, choose
from strategies import splits

MOST_IDS = 1000
"""Ids are drawn from the lowest ones, which every engine with a real vocabulary has."""

EXAMPLES = settings(max_examples=25)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    make: MakeEngine = request.param
    return make(request)


@pytest.fixture
def opened(engine: Engine) -> Iterator[Callable[[], int]]:
    """Opens sequences and closes them after the test."""
    handles: list[int] = []

    def open_() -> int:
        handles.append(engine.open())
        return handles[-1]

    yield open_
    for handle in handles:
        engine.close(handle)


class Opened:
    """Sequences opened within one example of a property, closed at its end."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.handles: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            self.engine.close(handle)

    def open(self) -> int:
        """Open a sequence."""
        return self.keep(self.engine.open())

    def keep(self, handle: int) -> int:
        """Close this one at the end too."""
        self.handles.append(handle)
        return handle


def texts(engine: Engine, most: int = 20) -> st.SearchStrategy[list[int]]:
    ids = st.integers(0, min(engine.vocab_size, MOST_IDS) - 1)
    return st.lists(ids, min_size=1, max_size=most)


def digests(engine: Engine, sequence: int, tokens: Sequence[int]) -> list[int]:
    """Append tokens in one pass and return a digest of each row."""
    rows = engine.forward([Chunk(sequence, tokens, wanted=len(tokens))])
    return [rows.digest(i) for i in range(len(rows))]


def one_by_one(engine: Engine, tokens: Sequence[int]) -> list[int]:
    """Return the digests that the tokens have, alone in an engine and one a pass."""
    with Opened(engine) as opened:
        handle = opened.open()
        return [digests(engine, handle, [token])[0] for token in tokens]


# A row's bits


@given(data=st.data())
@EXAMPLES
def test_a_row_has_the_same_bits_however_the_tokens_are_split_into_passes(
    engine: Engine, data: st.DataObject
) -> None:
    tokens = data.draw(texts(engine))
    expected = one_by_one(engine, tokens)
    with Opened(engine) as opened:
        handle, got, begin = opened.open(), [], 0
        for size in data.draw(splits(len(tokens))):
            got += digests(engine, handle, tokens[begin : begin + size])
            begin += size
    assert got == expected


@given(data=st.data())
@EXAMPLES
def test_a_row_has_the_same_bits_whatever_its_neighbours_in_the_pass(
    engine: Engine, data: st.DataObject
) -> None:
    """Sequences share passes in any order; some want only their last rows."""
    all_tokens = data.draw(st.lists(texts(engine, 8), min_size=2, max_size=4))
    expected = [one_by_one(engine, tokens) for tokens in all_tokens]
    parts = [data.draw(splits(len(tokens))) for tokens in all_tokens]
    with Opened(engine) as opened:
        handles = [opened.open() for _ in all_tokens]
        for turn in range(max(map(len, parts))):
            order = data.draw(st.permutations([i for i, p in enumerate(parts) if turn < len(p)]))
            chunks, due = [], []
            for i in order:
                begin, size = sum(parts[i][:turn]), parts[i][turn]
                wanted = data.draw(st.integers(0, size))
                chunks.append(Chunk(handles[i], all_tokens[i][begin : begin + size], wanted))
                due += expected[i][begin + size - wanted : begin + size]
            rows = engine.forward(chunks)
            assert len(rows) == len(due)
            assert [rows.digest(row) for row in range(len(rows))] == due


@given(data=st.data())
@EXAMPLES
def test_tokens_evaluated_again_after_a_truncation_have_the_same_bits(
    engine: Engine, data: st.DataObject
) -> None:
    """What was cut off leaves no trace."""
    tokens, others = data.draw(texts(engine)), data.draw(texts(engine))
    kept = data.draw(st.integers(0, len(tokens)))
    expected = one_by_one(engine, tokens)
    with Opened(engine) as opened:
        handle = opened.open()
        digests(engine, handle, [*tokens[:kept], *others])
        engine.truncate(handle, kept)
        assert engine.length(handle) == kept
        if kept < len(tokens):
            assert digests(engine, handle, tokens[kept:]) == expected[kept:]


@given(data=st.data())
@EXAMPLES
def test_a_fork_and_its_parent_go_separate_ways(engine: Engine, data: st.DataObject) -> None:
    """Each goes on as if alone, cut back or closed as the other may be."""
    stem, left, right = (data.draw(texts(engine)) for _ in range(3))
    back = data.draw(st.integers(0, len(stem)))
    expected_left = one_by_one(engine, [*stem, *left])[len(stem) :]
    expected_right = one_by_one(engine, [*stem[:back], *right])[back:]
    with Opened(engine) as opened:
        parent = engine.open()
        digests(engine, parent, stem)
        child = opened.keep(engine.fork(parent))
        assert engine.length(child) == len(stem)
        engine.truncate(child, back)
        assert digests(engine, parent, left) == expected_left
        engine.close(parent)
        assert digests(engine, child, right) == expected_right


# Lengths and handles


def test_a_new_sequence_is_empty_and_handles_differ(engine: Engine, opened: Callable[[], int]) -> None:
    first, second = opened(), opened()
    assert first != second
    assert engine.length(first) == engine.length(second) == 0


def test_a_pass_appends_all_tokens_of_its_chunks(engine: Engine, opened: Callable[[], int]) -> None:
    first, second = opened(), opened()
    engine.forward([Chunk(first, [1, 2, 3], wanted=0), Chunk(second, [4], wanted=1)])
    assert (engine.length(first), engine.length(second)) == (3, 1)


def test_a_context_can_be_filled_to_its_last_token_and_no_further(
    engine: Engine, opened: Callable[[], int]
) -> None:
    handle = opened()
    tokens = [i % 8 for i in range(engine.context)]
    assert len(digests(engine, handle, tokens[:-1])) == engine.context - 1
    with pytest.raises(EngineError):
        engine.forward([Chunk(handle, [1, 2], wanted=1)])
    assert engine.length(handle) == engine.context - 1
    digests(engine, handle, tokens[-1:])
    assert engine.length(handle) == engine.context
    with pytest.raises(EngineError):
        engine.forward([Chunk(handle, [1], wanted=1)])


def test_a_closed_sequence_is_unknown(engine: Engine) -> None:
    handle = engine.open()
    engine.close(handle)
    for use in (engine.close, engine.length, engine.fork, lambda h: engine.truncate(h, 0)):
        with pytest.raises(EngineError):
            use(handle)
    with pytest.raises(EngineError):
        engine.forward([Chunk(handle, [1], wanted=1)])


@pytest.mark.parametrize("length", [-1, 4, 10**12])
def test_a_truncation_to_a_length_that_is_not_there_is_refused(
    engine: Engine, opened: Callable[[], int], length: int
) -> None:
    handle = opened()
    digests(engine, handle, [1, 2, 3])
    with pytest.raises(EngineError):
        engine.truncate(handle, length)
    assert engine.length(handle) == 3


# Failures


@pytest.mark.parametrize(
    "bad",
    [
        lambda _engine, handle: Chunk(handle, [], wanted=0),
        lambda _engine, handle: Chunk(handle, [1, 2], wanted=3),
        lambda _engine, handle: Chunk(handle, [1, 2], wanted=-1),
        lambda _engine, handle: Chunk(handle, [1, -1], wanted=1),
        lambda engine, handle: Chunk(handle, [1, engine.vocab_size], wanted=1),
        lambda engine, handle: Chunk(handle, [1] * (engine.context + 1), wanted=1),
        lambda _engine, handle: Chunk(handle + 1000, [1], wanted=1),
        lambda _engine, _handle: Chunk(-1, [1], wanted=1),
    ],
    ids=[
        "no tokens",
        "too many rows",
        "negative rows",
        "negative id",
        "id beyond the vocabulary",
        "beyond the context",
        "unknown handle",
        "negative handle",
    ],
)
@pytest.mark.parametrize("bad_first", [True, False])
def test_a_refused_pass_leaves_every_sequence_as_it_was(
    engine: Engine,
    opened: Callable[[], int],
    bad: Callable[[Engine, int], Chunk],
    bad_first: bool,
) -> None:
    good, other = opened(), opened()
    digests(engine, good, [1, 2])
    chunks = [Chunk(good, [3, 4], wanted=1), bad(engine, other)]
    with pytest.raises(EngineError):
        engine.forward(chunks[::-1] if bad_first else chunks)
    assert (engine.length(good), engine.length(other)) == (2, 0)
    assert digests(engine, good, [5, 6]) == one_by_one(engine, [1, 2, 5, 6])[2:]
    assert digests(engine, other, [7]) == one_by_one(engine, [7])


def test_a_sequence_twice_in_a_pass_is_refused(engine: Engine, opened: Callable[[], int]) -> None:
    handle = opened()
    with pytest.raises(EngineError):
        engine.forward([Chunk(handle, [1], wanted=1), Chunk(handle, [2], wanted=1)])
    assert engine.length(handle) == 0


# Rows


def test_rows_come_in_order_and_only_those_wanted(engine: Engine, opened: Callable[[], int]) -> None:
    first, second, third = opened(), opened(), opened()
    rows = engine.forward(
        [
            Chunk(first, [1, 2, 3], wanted=2),
            Chunk(second, [4, 5], wanted=0),
            Chunk(third, [6], wanted=1),
        ]
    )
    expected = [*one_by_one(engine, [1, 2, 3])[1:], *one_by_one(engine, [6])]
    assert len(rows) == 3
    rows = engine.forward([Chunk(h, [7], wanted=1) for h in (third, first)])
    got = [rows.digest(0), rows.digest(1)]
    assert got == [one_by_one(engine, [6, 7])[-1], one_by_one(engine, [1, 2, 3, 7])[-1]]
    for handle in (first, third):
        engine.truncate(handle, 0)
    rows = engine.forward([Chunk(first, [1, 2, 3], wanted=2), Chunk(third, [6], wanted=1)])
    assert [rows.digest(i) for i in range(3)] == expected


def test_what_rows_say_agrees_with_their_logits(engine: Engine, opened: Callable[[], int]) -> None:
    handle = opened()
    tokens = [1, 2, 3, 4, 5, 1, 2, 3]
    rows = engine.forward([Chunk(handle, tokens, wanted=len(tokens))])
    for row in range(len(rows)):
        logits = rows.logits(row)
        assert logits.dtype == np.float32
        assert logits.shape == (engine.vocab_size,)
        best = int(np.argmax(logits))
        assert rows.argmax(row) == best
        second, first = np.sort(logits)[-2:]
        assert rows.margin(row) == pytest.approx(float(first - second), rel=1e-6, abs=1e-7)
        weights = np.exp(logits.astype(np.float64) - float(first))
        for token in (best, 0, engine.vocab_size - 1):
            expected = weights[token] / weights.sum()
            assert rows.probability(row, token) == pytest.approx(expected, rel=1e-4, abs=1e-12)
        for position, temperature in itertools.product((0, 9), (0.0, 0.8, 1.5)):
            sampling = Sampling(temperature, top_k=5, top_p=0.95, seed=2**63 + 1, choice=1)
            assert rows.choose(row, sampling, position) == choose(logits, sampling, position)


def test_adjusted_choices_and_log_probabilities_agree_with_the_logits(
    engine: Engine, opened: Callable[[], int]
) -> None:
    handle = opened()
    tokens = [1, 2, 3, 4, 5, 1, 2, 3]
    rows = engine.forward([Chunk(handle, tokens, wanted=len(tokens))])
    for row, temperature in itertools.product(range(len(rows)), (0.0, 0.8)):
        logits = rows.logits(row)
        sampling = Sampling(
            temperature,
            top_p=0.95,
            presence_penalty=0.5,
            frequency_penalty=0.25,
            repeat_penalty=1.3,
            repeat_last_n=4,
            logit_bias=((0, 1.0), (7, -2.0)),
        )
        history = History(sampling, 3, bans=[BannedSequences([[int(np.argmax(logits))], [5, 1]])])
        adjustment = history.after(tokens[: row + 1])
        expected = choose(logits, sampling, row + 1, adjustment)
        assert expected != int(np.argmax(logits))
        assert rows.choose(row, sampling, row + 1, adjustment) == expected
        for token, top in ((0, 0), (engine.vocab_size - 1, 5)):
            assert rows.logprobs(row, token, top) == logprobs(logits, token, top)


def test_equal_digests_mean_equal_logits(engine: Engine, opened: Callable[[], int]) -> None:
    handle = opened()
    rows = engine.forward([Chunk(handle, [1, 2, 3, 1, 2, 3, 4], wanted=7)])
    bits = [rows.logits(i).tobytes() for i in range(7)]
    for i, j in itertools.combinations(range(7), 2):
        assert (rows.digest(i) == rows.digest(j)) == (bits[i] == bits[j])
    assert all(0 <= rows.digest(i) < 2**64 for i in range(7))
    assert len(set(bits)) > 1


def test_logits_are_a_copy(engine: Engine, opened: Callable[[], int]) -> None:
    handle = opened()
    rows = engine.forward([Chunk(handle, [1], wanted=1)])
    before = rows.digest(0)
    rows.logits(0)[:] = 0
    assert rows.digest(0) == before


def test_a_truncation_leaves_the_rows_of_the_last_pass_readable(
    engine: Engine, opened: Callable[[], int]
) -> None:
    handle = opened()
    rows = engine.forward([Chunk(handle, [1, 2], wanted=2)])
    before = [rows.digest(0), rows.digest(1)]
    engine.truncate(handle, 0)
    assert [rows.digest(0), rows.digest(1)] == before
