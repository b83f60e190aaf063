"""A long text is read over several steps by the draft model, so that nobody else waits long for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.either import Either
from pilotfish.drafters.model import REACHES, READ_SLICE, READY, WHOLE, ModelDrafter
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import ScriptedEngine, ngrams
from pilotfish.errors import EngineError
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import VOCAB, draft_model

RULE = ngrams(VOCAB, 2, seed=3)


def text(size: int, first: int = 1) -> Sequence:
    return Sequence([first, *(i % VOCAB for i in range(1, size))], Sampling(), 100)


def engine_of(drafter: ModelDrafter) -> ScriptedEngine:
    assert isinstance(drafter.engine, ScriptedEngine)
    return drafter.engine


def read(drafter: ModelDrafter, s: Sequence) -> int:
    """Return how many tokens the draft model holds of a text, after checking which these are."""
    cache = drafter._caches.get(s.key)
    if cache is None:
        return 0
    held = engine_of(drafter).sequences[cache.handle]
    assert held == tuple(s.tokens[:-1])[cache.begin : cache.begin + len(held)]
    return len(held)


def grow(drafter: ModelDrafter, batch: list[Sequence], drafts: list[Draft], right: int = 0) -> None:
    """Do what the algorithm does after a pass: some guesses were right, the target says 9."""
    for s, draft in zip(batch, drafts, strict=True):
        accepted = min(right, len(draft.tokens))
        s.tokens += [*draft.tokens[:accepted], 9]
        drafter.observe(s, draft, accepted)


def test_beside_another_one_a_long_text_is_read_slice_by_slice_and_then_drafted_for() -> None:
    """The other one has its draft in every step; the long text holds a slice more after each."""
    drafter, long, short = draft_model(RULE), text(700), text(3)
    for step in range(1, 7):
        drafts = drafter.propose([long, short], [4, 4])
        assert (len(drafts[0].tokens), len(drafts[1].tokens)) == ((0, 4) if step < 6 else (4, 4))
        assert sum(tokens for tokens, _ in drafter.passes) <= READ_SLICE + 2 * READY + 2 * 4
        grow(drafter, [long, short], drafts)
        assert read(drafter, long) == (step * READ_SLICE if step < 6 else 700 + 5)
    assert drafts[0] == draft_model(RULE).propose([Sequence(long.tokens[:-1], Sampling(), 9)], [4])[0]


def test_alone_a_text_is_read_at_once() -> None:
    drafter, long = draft_model(RULE), text(700)
    assert len(drafter.propose([long], [4])[0].tokens) == 4
    assert [tokens for tokens, _ in drafter.passes] == [128] * 5 + [60, 1, 1, 1]


def test_alone_no_more_than_a_slice_is_read_from_when_on_others_wait() -> None:
    """Someone arrives while the third slice is read, and leaves again after two steps."""
    drafter, long = draft_model(RULE), text(1000)
    waiting = False

    def awaited() -> bool:
        return waiting or engine_of(drafter).passes == 3

    long.awaited = awaited
    slices = []
    for step in range(4):
        waiting = step in {1, 2}
        drafts = drafter.propose([long], [4])
        slices.append([tokens for tokens, _ in drafter.passes if tokens > 1])
        assert bool(drafts[0].tokens) == (step == 3)
        grow(drafter, [long], drafts)
    assert slices == [[128] * 3, [128], [128], [128] * 2 + [1003 - 7 * 128]]


def test_those_that_lack_least_are_read_first_and_no_step_reads_more_than_a_slice() -> None:
    drafter = draft_model(RULE)
    batch = [text(400), text(90), text(60), text(5)]
    drafts = drafter.propose(batch, [2] * 4)
    assert [len(draft.tokens) for draft in drafts] == [0, 0, 2, 2]
    grow(drafter, batch, drafts)
    assert [read(drafter, s) for s in batch] == [0, READ_SLICE - 60, 60, 5]
    drafts = drafter.propose(batch, [2] * 4)
    assert [len(draft.tokens) for draft in drafts] == [0, 2, 2, 2]
    grow(drafter, batch, drafts)
    assert read(drafter, batch[0]) == READ_SLICE - (91 - (READ_SLICE - 60))


def test_whoever_is_given_no_turn_keeps_what_the_model_knows() -> None:
    """Else a text would lose its drafts long before the model begins to read more of it."""
    drafter, known, other = draft_model(RULE), text(700), text(400)
    drafter.propose([known], [2], levels=[0])
    drafter.observe(known, NO_DRAFT, 0)
    before = read(drafter, known)
    drafter.propose([other, known], [2, 2], levels=[WHOLE, WHOLE])
    assert read(drafter, known) == before == REACHES[0] - 1
    assert drafter.ways(known)[0] == (0, 1)


def test_a_text_that_is_being_read_is_read_to_its_end() -> None:
    """To read its end alone would be cheaper at each step, and give up what was read."""
    drafter, long = draft_model(RULE), text(700)
    assert [level for level, _ in drafter.ways(long)] == [0, 1, WHOLE]
    for step in range(5):
        assert drafter.is_reading(long) == (step > 0)
        assert drafter.ways(long)[-1] == (WHOLE, 700 - step * (READ_SLICE - 1))
        grow(drafter, [long], drafter.propose([long], [1], batch=2))
        assert len(drafter.ways(long)) == 1
    drafter.propose([long], [1], batch=2)
    assert not drafter.is_reading(long)


def test_a_text_that_outgrows_the_context_while_it_is_read_is_known_by_its_end() -> None:
    drafter, long = draft_model(RULE, context=300), text(299)
    drafter.propose([long], [1], batch=2)
    drafter.observe(long, NO_DRAFT, 0)
    assert drafter.ways(long) == [(WHOLE, 299 - READ_SLICE)]
    long.tokens += [1] * 10
    assert [level for level, _ in drafter.ways(long)] == [0, 1]
    assert len(drafter.propose([long], [1], levels=[0], batch=2)[0].tokens) == 1
    drafter.observe(long, NO_DRAFT, 0)
    assert read(drafter, long) == REACHES[0] - 1


@pytest.mark.parametrize("error", [EngineError("out of order"), KeyboardInterrupt()])
def test_a_failure_while_a_slice_is_read_loses_that_slice_only(error: BaseException) -> None:
    drafter, batch = draft_model(RULE), [text(400), text(3)]
    grow(drafter, batch, drafter.propose(batch, [2, 2]))
    engine_of(drafter).failures[engine_of(drafter).passes] = error
    with pytest.raises(type(error)):
        drafter.propose(batch, [2, 2])
    assert [read(drafter, s) for s in batch] == [READ_SLICE, 3]
    assert drafter.is_reading(batch[0])
    grow(drafter, batch, drafter.propose(batch, [2, 2]))
    assert read(drafter, batch[0]) == 2 * READ_SLICE


def test_at_a_fixed_length_the_suffix_serves_a_text_that_is_being_read() -> None:
    """What it is not sure of is better than nothing."""
    model = draft_model(RULE)
    unsure = Sequence([1, 2, 4, 1, 2, 5, 1, 2, 6, *[7, 8, 9, 0] * 100, 3, 1, 2], Sampling(), 100)
    either, other = Either(SuffixDrafter(), model), text(3)
    assert either.propose([unsure, other], [3, 3])[0].drafters[0] == "suffix"
    assert read(model, unsure) == READ_SLICE
    model.observe(unsure, NO_DRAFT, 0)
    assert either.propose([unsure], [3])[0].drafters == ("model",) * 3


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[list[int], list[int], int, bool]]:
    """Draw for each step the limits and levels of three texts, what grows, and whether a pass fails."""
    three = st.lists(st.integers(0, 4), min_size=3, max_size=3)
    levels = st.lists(st.integers(0, WHOLE), min_size=3, max_size=3)
    return draw(st.lists(st.tuples(three, levels, st.integers(0, 3), st.booleans()), max_size=10))


@given(st.lists(st.integers(1, 600), min_size=3, max_size=3), steps())
def test_whatever_is_asked_for_a_step_reads_a_slice_at_most_and_holds_the_text(
    sizes: list[int], asked: list[tuple[list[int], list[int], int, bool]]
) -> None:
    """A draft is the same as that of a model that has read all: the rule sees two tokens only."""
    drafter, batch = draft_model(RULE), [text(size, first) for first, size in enumerate(sizes)]
    engine = engine_of(drafter)
    for limits, levels, right, fails in asked:
        before = engine.tokens
        if fails:
            engine.failures[engine.passes + right] = EngineError("out of order")
        try:
            drafts = drafter.propose(batch, limits, levels=levels)
        except EngineError:
            drafts = [NO_DRAFT] * 3
        engine.failures.clear()
        assert engine.tokens - before <= READ_SLICE + 3 * READY + sum(limits)
        for s, draft in zip(batch, drafts, strict=True):
            size = len(draft.tokens)
            assert draft == draft_model(RULE).propose([s], [size])[0]
        grow(drafter, batch, drafts, right)
        for s in batch:
            read(drafter, s)
