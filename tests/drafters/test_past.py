"""What came of earlier claims, and what the next are worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.drafters.past import MEMORY, PRIOR, SUREST, PastSuccess


@given(st.integers(0, 400), st.booleans())
def test_past_success_keeps_a_confidence_between_0_and_1(steps: int, right: bool) -> None:
    past = PastSuccess()
    for step in range(steps):
        past.expect(step, [(7, 0.01 if right else 0.99, 5)])
        past.learn([7 if right else 8] * (step + 1))
    for claim in (0.001, 0.5, 0.9, SUREST, 0.9999):
        assert 0 < past.corrected(claim, 5) <= max(claim, SUREST)
        assert past.corrected(claim, 1) == claim, "other lengths of match have records of their own"


def test_past_success_counts_a_draft_up_to_its_first_wrong_guess() -> None:
    """Two guesses claimed at 0.5, one right and one wrong: the third, behind the wrong one, is not known."""
    past = PastSuccess()
    past.expect(1, [(5, 0.5, 4), (6, 0.5, 5), (7, 0.5, 6)])
    past.learn([4, 5, 9, 9])
    later_counts_more = (PRIOR + MEMORY) / (PRIOR + 0.5 * MEMORY + 0.5)
    assert past.corrected(0.4, 4) == pytest.approx(0.4 * later_counts_more)


def test_past_success_of_guesses_that_nothing_came_of_teaches_nothing() -> None:
    past = PastSuccess()
    past.expect(3, [(5, 0.5, 4)])
    past.learn([1, 2, 3])
    past.learn([1, 2, 3, 9])
    assert past.corrected(0.5, 4) == 0.5
