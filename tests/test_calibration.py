"""What a confidence is worth: learned for a drafter slowly, for a text soon."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.calibration import Average, Calibration, Local


def test_at_first_a_claim_is_taken_at_its_word() -> None:
    local = Local(Calibration())
    assert [local.right(c, 0) for c in (0.1, 0.5, 0.9)] == pytest.approx([0.1, 0.5, 0.9])


def test_a_drafter_that_claims_too_much_is_found_out_over_all_texts() -> None:
    rng, calibration = random.Random(1), Calibration()  # noqa: S311 - no secret
    for _ in range(400):
        calibration.learn(0.9, 0, right=rng.random() < 0.6)
    assert calibration.right(0.9, 0) == pytest.approx(0.6, abs=0.1)
    assert calibration.right(0.9, 5) == pytest.approx(0.9)
    assert calibration.right(0.2, 0) == pytest.approx(0.2)


def test_a_text_on_which_it_fails_is_noticed_within_few_guesses() -> None:
    calibration = Calibration()
    for _ in range(200):
        calibration.learn(0.9, 0, right=True)
    local, other = Local(calibration), Local(calibration)
    for _ in range(6):
        local.learn(0.9, 0, right=False)
    assert local.right(0.9, 0) < 0.5
    assert other.right(0.9, 0) > 0.8
    for _ in range(25):
        local.learn(0.9, 0, right=True)
    assert local.right(0.9, 0) > 0.8


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.booleans()), max_size=60), st.floats(0, 1))
def test_it_is_a_probability(guesses: list[tuple[float, int, bool]], confidence: float) -> None:
    local = Local(Calibration())
    for claimed, place, right in guesses:
        local.learn(claimed, place, right=right)
    assert all(0 < local.right(confidence, place) < 1 for place in (0, 1, 7))


def test_an_average_starts_from_what_is_usual_and_returns_to_it() -> None:
    average = Average(0.9, 2.0)
    assert average.value(0.3) == 0.3
    for _ in range(50):
        average.add(1.0)
    assert average.value(0.3) > 0.85
    assert average.value(0.3, trust=0.0) == 0.3
    average.fade(0.0)
    assert average.value(0.3) == 0.3


def test_that_a_text_goes_better_than_others_is_believed_later_than_that_it_goes_worse() -> None:
    """As many guesses, as far from what was expected."""
    better, worse = Local(Calibration(1e9)), Local(Calibration(1e9))
    for _ in range(4):
        better.learn(0.5, 0, right=True)
        worse.learn(0.5, 0, right=False)
    assert 0.5 < better.right(0.5, 0) < 0.7
    assert worse.right(0.5, 0) < 0.25
