"""Several look-ups as one."""

from __future__ import annotations

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.lookup import Lookup
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import Fake, Recorder, draft_of

SHORT_SURE, LONG_UNSURE = draft_of([1], "sure", 0.95), draft_of([2, 3, 4, 5], "unsure", 0.45)
LONG_LIKELY = draft_of([6, 7, 8], "likely", 0.6)


def chosen(*drafts: Draft) -> Draft:
    fakes = [Fake(lambda _tokens, _limit, draft=draft: draft) for draft in drafts]  # type: ignore[misc]
    return Lookup(fakes).propose([Sequence([1], Sampling(), 9)], [8])[0]


def test_the_draft_with_most_tokens_expected_right_is_taken() -> None:
    """0.95 against 0.45 + 0.45² + … = 0.78 against 0.6 + 0.36 + 0.216 = 1.18."""
    assert chosen(SHORT_SURE, LONG_UNSURE) == chosen(LONG_UNSURE, SHORT_SURE) == SHORT_SURE
    assert chosen(SHORT_SURE, LONG_LIKELY, LONG_UNSURE) == LONG_LIKELY


def test_a_drafter_that_knows_nothing_leaves_it_to_the_others_and_the_first_wins_a_tie() -> None:
    assert chosen(NO_DRAFT, SHORT_SURE, NO_DRAFT) == SHORT_SURE
    assert chosen(NO_DRAFT, NO_DRAFT) == NO_DRAFT
    assert chosen(draft_of([1]), draft_of([2])) == draft_of([1])


def test_each_sequence_of_a_batch_is_served_by_its_own() -> None:
    first = Fake(lambda tokens, _limit: draft_of([1], "first", 0.9 if tokens[0] else 0.1))
    second = Fake(lambda _tokens, _limit: draft_of([2], "second", 0.5))
    batch = [Sequence([0], Sampling(), 9), Sequence([1], Sampling(), 9)]
    assert [d.drafters for d in Lookup([first, second]).propose(batch, [1, 1])] == [("second",), ("first",)]


def test_all_hear_and_forget() -> None:
    heard: list[object] = []

    class Hearing(Recorder):
        def observe(self, *what: object) -> None:
            heard.append(what)

        def forget(self, key: int) -> None:
            heard.append(key)

    sequence = Sequence([1], Sampling(), 9)
    both = Lookup([Hearing(Fake(lambda *_: [])), Hearing(Fake(lambda *_: []))])
    both.observe(sequence, SHORT_SURE, 1)
    both.forget(7)
    assert heard == [(sequence, SHORT_SURE, 1)] * 2 + [7] * 2
