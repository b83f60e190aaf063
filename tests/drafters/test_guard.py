"""The guard: whatever a drafter does, sane drafts come out."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.guard import Guard
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import Fake, Raising, Recorder, draft_of

ids = st.integers(-3, 13) | st.just(2**63)


def sequence() -> Sequence:
    return Sequence([1, 2], Sampling(), 9)


@given(st.lists(st.lists(ids, max_size=9), min_size=1, max_size=3), st.integers(0, 5))
def test_drafts_are_cut_to_their_limit_and_before_the_first_id_that_is_no_token(
    proposed: list[list[int]], limit: int
) -> None:
    queue = [draft_of(tokens) for tokens in proposed]
    guard = Guard(Fake(lambda _tokens, _limit: queue.pop(0)), token_count=10)
    limits = [limit] * len(proposed)
    for tokens, draft in zip(proposed, guard.propose([sequence() for _ in limits], limits), strict=True):
        assert len(draft.tokens) == len(draft.confidence) == len(draft.drafters) <= limit
        assert list(draft.tokens) == tokens[: len(draft.tokens)]
        assert all(0 <= token < 10 for token in draft.tokens)
        if len(draft.tokens) < min(limit, len(tokens)):
            assert not 0 <= tokens[len(draft.tokens)] < 10


@pytest.mark.parametrize(
    "drafts",
    [None, 3, [], [NO_DRAFT, NO_DRAFT], [None], [Draft(("a",))], [Draft(None)]],  # type: ignore[arg-type]
    ids=["none", "a number", "too few", "too many", "no draft object", "text", "no tokens"],
)
def test_an_answer_of_the_wrong_shape_is_no_draft(
    drafts: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(lambda _tokens, _limit: [])
    monkeypatch.setattr(fake, "propose", lambda *_: drafts)
    with caplog.at_level(logging.ERROR, logger="pilotfish.drafters.guard"):
        assert Guard(fake, 10).propose([sequence()], [4]) == [NO_DRAFT]
    assert "drafter fake failed to propose" in caplog.text


def test_tokens_without_names_get_the_drafters_name() -> None:
    guard = Guard(Fake(lambda _tokens, _limit: Draft((1, 2)), "quiet"), 10)
    assert guard.propose([sequence()], [4])[0].drafters == ("quiet", "quiet")


def test_ids_of_numpy_become_plain_ones() -> None:
    guard = Guard(Fake(lambda _tokens, _limit: Draft(tuple(np.array([1, 2])))), 10)
    assert [type(token) for token in guard.propose([sequence()], [4])[0].tokens] == [int, int]


def test_a_drafter_is_not_asked_when_every_limit_is_0() -> None:
    recorder = Recorder(Fake(lambda _tokens, _limit: [1]))
    assert Guard(recorder, 10).propose([sequence()], [0]) == [NO_DRAFT]
    assert not recorder.proposed


def test_whatever_raises_is_logged_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(Raising(), 10)
    with caplog.at_level(logging.ERROR, logger="pilotfish.drafters.guard"):
        assert guard.propose([sequence()], [4]) == [NO_DRAFT]
        guard.observe(sequence(), NO_DRAFT, 0)
        guard.forget(3)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "drafter raising failed to propose",
        "drafter raising failed to observe",
        "drafter raising failed to forget a sequence",
    ]


def test_no_drafter_proposes_nothing() -> None:
    guard = Guard(None, 10)
    assert guard.propose([sequence()], [4]) == [NO_DRAFT]
    guard.observe(sequence(), NO_DRAFT, 0)
    guard.forget(3)
