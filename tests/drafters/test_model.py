"""The draft model: what its cache holds, how many passes it costs, where it stops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.model import NEARLY, REACHES, WHOLE, ModelDrafter
from pilotfish.engines.scripted import ScriptedEngine, answers, ngrams, sure_of, uniform
from pilotfish.errors import EngineError
from pilotfish.sampling import Sampling, choose
from pilotfish.sequence import Sequence
from strategies import VOCAB, draft_model

RULE = ngrams(VOCAB, 2, seed=3)


def sequence(*tokens: int, sampling: Sampling = Sampling()) -> Sequence:  # noqa: B008
    return Sequence(list(tokens), sampling, 100)


def engine_of(drafter: ModelDrafter) -> ScriptedEngine:
    assert isinstance(drafter.engine, ScriptedEngine)
    return drafter.engine


def caches(drafter: ModelDrafter) -> list[tuple[int, ...]]:
    return list(engine_of(drafter).sequences.values())


def grow(drafter: ModelDrafter, s: Sequence, draft: Draft, accepted: int, own: int) -> None:
    """Do what the algorithm does after a pass."""
    s.tokens += [*draft.tokens[:accepted], own]
    drafter.observe(s, draft, accepted)


def test_a_draft_of_k_tokens_takes_k_passes() -> None:
    drafter = draft_model(RULE)
    draft = drafter.propose([sequence(1, 2, 3)], [5])[0]
    assert len(draft.tokens) == len(draft.confidence) == 5
    assert draft.drafters == ("model",) * 5
    assert engine_of(drafter).passes == 5


def test_sequences_of_a_batch_share_each_pass_and_drop_out_at_their_limits() -> None:
    drafter = draft_model(RULE)
    batch = [sequence(1, 2), sequence(3), sequence(4, 5, 6), sequence(7)]
    drafts = drafter.propose(batch, [4, 1, 0, 2])
    assert [len(d.tokens) for d in drafts] == [4, 1, 0, 2]
    assert engine_of(drafter).passes == 4
    assert engine_of(drafter).rows == 7
    alone = [draft_model(RULE).propose([s], [limit])[0] for s, limit in zip(batch, [4, 1, 0, 2], strict=True)]
    assert drafts == alone


def test_a_sequence_with_limit_0_is_not_read() -> None:
    drafter = draft_model(RULE)
    assert drafter.propose([sequence(1, 2, 3)], [0]) == [NO_DRAFT]
    assert engine_of(drafter).passes == 0
    assert caches(drafter) == []


def test_accepted_tokens_stay_in_the_cache_and_rejected_ones_do_not() -> None:
    drafter, s = draft_model(RULE), sequence(1, 2, 3)
    draft = drafter.propose([s], [5])[0]
    grow(drafter, s, draft, accepted=2, own=9)
    assert caches(drafter) == [(1, 2, 3, *draft.tokens[:2])]
    drafter.propose([s], [1])
    assert engine_of(drafter).tokens == 3 + 4 + 1  # the correction is all that was missing


def test_after_a_fully_accepted_draft_the_last_token_is_read_with_the_pending_one() -> None:
    drafter, s = draft_model(RULE), sequence(1, 2, 3)
    draft = drafter.propose([s], [3])[0]
    grow(drafter, s, draft, accepted=3, own=9)
    assert caches(drafter) == [(1, 2, 3, *draft.tokens[:2])]
    drafter.propose([s], [3])
    assert engine_of(drafter).passes == 6
    assert engine_of(drafter).tokens == 3 + 2 + 2 + 2


def test_an_end_inside_the_accepted_run_leaves_the_pending_token_out() -> None:
    drafter, s = draft_model(RULE), sequence(1, 2, 3)
    draft = drafter.propose([s], [5])[0]
    s.tokens += draft.tokens[:3]
    drafter.observe(s, draft, 3)
    assert caches(drafter) == [(1, 2, 3, *draft.tokens[:2])]


def test_a_draft_that_came_to_nothing_is_rolled_back() -> None:
    """As after a failed pass of the target, when the sequence has not grown."""
    drafter, s = draft_model(RULE), sequence(1, 2, 3)
    drafter.propose([s], [5])
    drafter.observe(s, NO_DRAFT, 0)
    assert caches(drafter) == [(1, 2)]


def test_what_was_never_observed_is_found_out_by_comparison() -> None:
    drafter, s = draft_model(RULE), sequence(1, 2, 3)
    draft = drafter.propose([s], [4])[0]
    s.tokens += [draft.tokens[0], (draft.tokens[1] + 1) % VOCAB, 5]
    assert drafter.propose([s], [4]) == draft_model(RULE).propose([s], [4])


def test_tokens_that_others_drafted_are_read_when_it_is_asked_again() -> None:
    drafter, s = draft_model(RULE), sequence(1, 2, 3)
    drafter.propose([s], [2])
    drafter.observe(s, NO_DRAFT, 0)
    s.tokens += [4, 5, 6, 7]
    assert drafter.propose([s], [3]) == draft_model(RULE).propose([s], [3])


@pytest.mark.parametrize(("length", "passes"), [(1, 1), (128, 1), (129, 2), (256, 2), (257, 3), (600, 5)])
def test_a_prompt_is_read_in_slices(length: int, passes: int) -> None:
    drafter = draft_model(RULE)
    long, short = sequence(*([1, 2, 3] * length)[:length]), sequence(4)
    drafts = drafter.propose([long, short], [1, 1], batch=1)
    assert engine_of(drafter).passes == passes
    assert engine_of(drafter).rows == 2
    assert drafts == [draft_model(RULE).propose([s], [1])[0] for s in (long, short)]


def test_a_failure_while_the_prompt_is_read_keeps_what_was_read() -> None:
    drafter = draft_model(RULE)
    engine_of(drafter).failures[2] = EngineError("out of order")
    s = sequence(*[1] * 400)
    with pytest.raises(EngineError, match="out of order"):
        drafter.propose([s], [3])
    assert caches(drafter) == [(1,) * 256]
    drafter.propose([s], [1])
    assert engine_of(drafter).tokens == 400


@pytest.mark.parametrize("error", [EngineError("out of order"), KeyboardInterrupt()])
def test_a_failure_midway_leaves_a_prefix(error: BaseException) -> None:
    drafter = draft_model(RULE)
    engine_of(drafter).failures[2] = error
    batch = [sequence(1, 2, 3), sequence(4, 5)]
    with pytest.raises(type(error)):
        drafter.propose(batch, [5, 5])
    assert caches(drafter) == [(1, 2), (4,)]


def test_rows_that_are_not_a_number_leave_a_prefix_in_every_cache() -> None:
    drafter = draft_model(RULE)
    engine_of(drafter).nan_at.add(5)
    batch = [sequence(1, 2, 3), sequence(4, 5)]
    with pytest.raises(EngineError):
        drafter.propose(batch, [5, 5])
    assert caches(drafter) == [(1, 2), (4,)]


def test_it_chooses_with_the_targets_noise_at_the_absolute_position() -> None:
    sampling = Sampling(temperature=1.0, seed=11, choice=2)
    s = sequence(1, 2, 3, sampling=sampling)
    draft = draft_model(uniform(VOCAB)).propose([s], [20])[0]
    flat = np.zeros(VOCAB, np.float32)
    assert draft.tokens == tuple(choose(flat, sampling, 3 + i) for i in range(20))
    assert len(set(draft.tokens)) > 4


def test_confidence_is_the_probability_at_temperature_1() -> None:
    s = sequence(1, sampling=Sampling(temperature=0.1, seed=1))
    draft = draft_model(uniform(VOCAB)).propose([s], [3])[0]
    assert draft.confidence == pytest.approx((1 / VOCAB,) * 3)


def test_a_draft_ends_with_the_token_that_makes_it_doubtful() -> None:
    """That token is paid for; with probabilities of 1/2 the product is 1/2, 1/4, 1/8."""

    def halves(_tokens: tuple[int, ...]) -> np.ndarray:
        row = np.full(VOCAB, -1000, np.float32)
        row[:2] = 0
        return row

    lengths = [
        len(draft_model(halves, min_confidence=floor).propose([sequence(1)], [6])[0].tokens)
        for floor in (0.0, 0.1, 0.2, 0.3, 0.6, 1.0)
    ]
    assert lengths == [6, 4, 3, 2, 1, 1]


def test_whoever_asks_may_decide_when_a_draft_ends() -> None:
    asked: list[tuple[int, int, int]] = []

    def go_on(index: int, tokens: list[int], confidence: list[float]) -> bool:
        asked.append((index, len(tokens), len(confidence)))
        return len(tokens) < 1 + index

    drafts = draft_model(RULE).propose([sequence(1), sequence(2), sequence(3)], [6, 0, 6], go_on=go_on)
    assert [len(d.tokens) for d in drafts] == [1, 0, 3]
    assert asked == [(0, 1, 1), (2, 1, 1), (2, 2, 2), (2, 3, 3)]


SAYS = answers({(1, 2): [3, 4, 5, 6, 7, 8]}, VOCAB)


@pytest.mark.parametrize(
    ("hints", "passes", "evaluated"),
    [((3, 4, 5), 3, 2 + 3 + 2), ((3, 9, 5), 5, 2 + 3 + 4), ((9,), 6, 2 + 1 + 5), ((), 6, 2 + 5)],
)
def test_hints_that_it_would_have_said_itself_cost_no_pass_of_their_own(
    hints: tuple[int, ...], passes: int, evaluated: int
) -> None:
    """The draft is the same with any hints; only what it costs differs."""
    drafter, s = draft_model(SAYS), sequence(1, 2)
    draft = drafter.propose([s], [6], hints=[hints])[0]
    assert draft.tokens == (3, 4, 5, 6, 7, 8)
    assert draft.confidence == draft_model(SAYS).propose([sequence(1, 2)], [6])[0].confidence
    assert engine_of(drafter).passes == len(drafter.passes) == passes
    assert engine_of(drafter).tokens == sum(tokens for tokens, _ in drafter.passes) == evaluated
    grow(drafter, s, draft, accepted=4, own=9)
    assert caches(drafter) == [(1, 2, 3, 4, 5, 6)]


def test_hints_go_up_to_the_limit_and_before_an_unknown_id() -> None:
    drafter = draft_model(SAYS)
    assert drafter.propose([sequence(1, 2)], [2], hints=[(3, 4, 5)])[0].tokens == (3, 4)
    assert engine_of(drafter).tokens == 3
    drafter = draft_model(SAYS)
    assert drafter.propose([sequence(1, 2)], [3], hints=[(3, VOCAB, 5)])[0].tokens == (3, 4, 5)


def test_hints_stay_within_the_context() -> None:
    drafter = draft_model(SAYS, context=4)
    assert drafter.propose([sequence(1, 2)], [9], hints=[(3, 4, 5, 6)])[0].tokens == (3, 4, 5)


def test_it_says_how_far_it_is_behind() -> None:
    drafter, s = draft_model(SAYS, context=12), sequence(1, 2)
    assert drafter.behind(s) == 2
    draft = drafter.propose([s], [3])[0]
    grow(drafter, s, draft, accepted=1, own=9)
    assert drafter.behind(s) == 1
    s.tokens += [1, 2, 3]
    assert drafter.behind(s) == 4
    s.tokens += [1] * 6
    assert drafter.behind(s) is None
    unknown = sequence(VOCAB)
    drafter.propose([unknown], [1])
    assert drafter.behind(unknown) is None


def test_of_a_long_text_it_reads_as_much_as_it_is_told_to() -> None:
    near, middle = REACHES
    drafter, s = draft_model(RULE), sequence(*(i % VOCAB for i in range(500)))
    assert drafter.ways(s) == [(0, near), (1, middle), (WHOLE, 500)]
    draft = drafter.propose([s], [3], levels=[0])[0]
    assert caches(drafter) == [(*s.tokens[-near:], *draft.tokens[:2])]
    grow(drafter, s, draft, accepted=1, own=9)
    assert drafter.ways(s) == [(0, 1), (1, middle), (WHOLE, 502)]
    assert drafter.propose([s], [3], levels=[1]) == draft_model(RULE).propose([s], [3])
    assert len(caches(drafter)[0]) == middle + 2
    drafter.observe(s, NO_DRAFT, 0)
    assert [level for level, _ in drafter.ways(s)] == [1, WHOLE]
    assert drafter.propose([s], [3]) == draft_model(RULE).propose([s], [3])
    drafter.observe(s, NO_DRAFT, 0)
    assert drafter.ways(s) == [(WHOLE, 1)]


def test_a_text_that_is_not_long_is_read_from_its_beginning() -> None:
    size = int(NEARLY * REACHES[0])
    drafter, s = draft_model(RULE), sequence(*(i % VOCAB for i in range(size)))
    assert drafter.ways(s) == [(WHOLE, size)]


def test_a_text_beyond_its_context_is_known_by_its_end() -> None:
    drafter, s = draft_model(RULE, context=150), sequence(*(i % VOCAB for i in range(149)))
    for _ in range(80):
        draft = drafter.propose([s], [3], levels=[1])[0]
        size = len(draft.tokens)
        assert size > 0
        assert draft == draft_model(RULE).propose([s], [size])[0]
        grow(drafter, s, draft, accepted=size, own=5)
    assert drafter.behind(s) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, WHOLE), st.integers(0, 5), st.integers(0, 5)),
        max_size=8,
    )
)
def test_whatever_is_read_the_cache_holds_a_stretch_of_the_text_up_to_the_pending_token(
    steps: list[tuple[int, int, int, int]],
) -> None:
    """Also if the text has grown by much that it was not asked for; the rule sees two tokens only."""
    drafter, s = draft_model(RULE), sequence(1, 2, 3)
    for grown, level, limit, accepted in steps:
        s.tokens += [i % VOCAB for i in range(grown)]
        draft = drafter.propose([s], [limit], levels=[level])[0]
        assert draft == draft_model(RULE).propose([s], [limit])[0]
        grow(drafter, s, draft, min(accepted, len(draft.tokens)), own=7)
        for held in caches(drafter):
            begin = 0 if held == tuple(s.tokens[: len(held)]) else drafter._caches[s.key].begin
            assert held == tuple(s.tokens[begin : begin + len(held)])
            assert begin + len(held) < len(s.tokens)


def test_sequences_that_stopped_by_confidence_leave_the_batch() -> None:
    def rule(tokens: tuple[int, ...]) -> np.ndarray:
        return sure_of(3, VOCAB) if tokens[0] == 1 else np.zeros(VOCAB, np.float32)

    drafter = draft_model(rule, min_confidence=0.5)
    drafts = drafter.propose([sequence(1), sequence(2)], [4, 4])
    assert [len(d.tokens) for d in drafts] == [4, 1]
    assert engine_of(drafter).rows == 5


@pytest.mark.parametrize(("length", "drafted"), [(5, 4), (7, 2), (8, 1), (9, 0), (30, 0)])
def test_a_full_context_ends_the_drafting(length: int, drafted: int) -> None:
    """A context of 8: the last token drafted is not evaluated."""
    drafter = draft_model(RULE, context=8)
    draft = drafter.propose([sequence(*[1] * length)], [10])[0]
    assert len(draft.tokens) == drafted
    assert engine_of(drafter).passes == drafted


def test_a_sequence_with_an_id_it_does_not_know_gets_no_draft() -> None:
    """Nor ever again, while the others of the batch go on."""
    drafter = draft_model(RULE)
    unknown, known = sequence(1, VOCAB, 2), sequence(1, 2)
    for _ in range(2):
        drafts = drafter.propose([unknown, known], [3, 3])
        assert drafts[0] == NO_DRAFT
        assert len(drafts[1].tokens) == 3
        for s, draft in zip((unknown, known), drafts, strict=True):
            grow(drafter, s, draft, len(draft.tokens), own=1)


def test_forgetting_closes_the_cache() -> None:
    drafter, s = draft_model(RULE), sequence(1, 2)
    drafter.propose([s], [2])
    drafter.forget(s.key)
    drafter.forget(s.key)
    assert caches(drafter) == []
    drafter.observe(s, NO_DRAFT, 0)


def test_it_says_what_its_model_says() -> None:
    rule = answers({(1,): [2, 3, 4, 5]}, VOCAB)
    draft = draft_model(rule).propose([sequence(1)], [4])[0]
    assert draft.tokens == (2, 3, 4, 5)
    assert min(draft.confidence) > 0.99
