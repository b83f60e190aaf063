"""Pass costs: what was measured is found again, whatever the noise, and nothing costs less for more rows."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.costs import READ_ROWS, ROWS, Costs, PassCosts
from simulation import AVX2, STEEP, VNNI, cost, noisy

finite = st.floats(1e-4, 10.0)


@pytest.mark.parametrize("table", [AVX2, VNNI, STEEP])
@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_what_rows_cost_is_learned_from_few_passes(table: dict[int, float], spread: float) -> None:
    """With noise and outliers. Three rows are never measured: assumptions must be near for that."""
    true, costs = cost(table, 0.05, 0.0), PassCosts()
    noise = noisy(3, spread, 0.03) if spread else lambda: 1.0
    for _ in range(30):
        for rows in (1, 2, 4, 8):
            costs.learn(rows, 0, true(rows, 0) * noise())
    for rows in (1, 2, 4, 8) if table is STEEP else (1, 2, 3, 4, 8):
        assert costs.seconds(rows) == pytest.approx(true(rows, 0), rel=0.15 if table is STEEP else 0.1)


@given(st.lists(st.tuples(st.integers(1, ROWS), st.integers(0, 1 << 16), finite), max_size=30))
def test_more_rows_never_cost_less(passes: list[tuple[int, int, float]]) -> None:
    costs = PassCosts()
    for rows, context, seconds in passes:
        costs.learn(rows, context, seconds)
    table = [costs.seconds(rows, 100.0) for rows in range(1, ROWS + 20)]
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(table))
    assert costs.shape(1) == 1.0
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in table)


@given(
    st.lists(st.tuples(st.integers(1, ROWS), st.integers(0, 1 << 16), finite), max_size=10),
    st.integers(1, ROWS + 20),
    st.integers(0, ROWS + 20),
    st.integers(0, 1 << 16),
)
def test_what_more_rows_cost_is_the_difference_of_two_passes(
    passes: list[tuple[int, int, float]], rows: int, most: int, own: int
) -> None:
    costs = PassCosts()
    for count, context, seconds in passes:
        costs.learn(count, context, seconds)
    others = costs.seconds(rows, 1000)
    expected = [costs.seconds(rows + k, 1000 + k * own) - others for k in range(1, most + 1)]
    assert costs.more(rows, most, own) == pytest.approx(expected, abs=1e-9 * others, rel=1e-6)


def test_a_machine_that_gets_slower_keeps_its_shape() -> None:
    costs = PassCosts()
    for factor in (1.0, 1.5):
        for _ in range(60):
            for rows in (1, 4):
                costs.learn(rows, 0, cost(VNNI, 0.05, 0.0)(rows, 0) * factor)
    assert costs.seconds(1) == pytest.approx(0.075, rel=0.05)
    assert costs.shape(4) == pytest.approx(VNNI[4], rel=0.05)


def test_a_long_context_makes_rows_dearer() -> None:
    costs = PassCosts()
    assert costs.seconds(8, 8 * 8000) > costs.seconds(8, 8 * 100) > costs.seconds(8)


@pytest.mark.parametrize(
    "passes", [(0, 1.0), (ROWS + 1, 1.0), (1, 0.0), (1, -1.0), (1, math.inf), (1, math.nan)]
)
def test_what_is_no_timing_teaches_nothing(passes: tuple[int, float]) -> None:
    costs = PassCosts()
    costs.learn(passes[0], 0, passes[1])
    assert not costs.measured
    assert costs.unit == 1.0


def test_the_draft_model_is_learned_from_steps_that_mix_its_passes() -> None:
    costs = Costs(draft_ratio=0.4)
    true = cost(AVX2, 0.015, 0.0)
    costs.target.learn(1, 0, 0.05)
    assert costs.draft_s(1) == pytest.approx(0.02)
    for _ in range(20):
        costs.learn_draft([(2, 0), (1, 0), (1, 0)], true(2, 0) + 2 * true(1, 0))
    assert costs.draft_s(1) == pytest.approx(0.015, rel=0.05)
    for _ in range(8):
        costs.learn_draft([(128, 0), (100, 0), (1, 0)], 228 * 0.004 + 0.015)
    assert costs.draft_s(200) == pytest.approx(200 * 0.004, rel=0.1)


@pytest.mark.parametrize("slices", [1, 4, 32])
def test_a_text_teaches_the_same_cost_of_reading_in_however_many_steps_it_is_read(slices: int) -> None:
    """Later slices attend to more tokens: that is no reason to think that reading costs more."""
    costs = Costs(draft_ratio=0.4)
    costs.target.learn(1, 0, 0.05)
    unit = costs.draft_s(1)
    passes = [(128, 128 * (128 * i + 64)) for i in range(32)]
    took = [unit * (0.3 * rows + costs.draft.slope * context) for rows, context in passes]
    for _ in range(8):
        for begin in range(0, 32, 32 // slices):
            some = slice(begin, begin + 32 // slices)
            costs.learn_draft(passes[some], sum(took[some]))
    assert costs.draft_s(128) == pytest.approx(128 * 0.3 * unit, rel=0.02)
    assert costs.draft_s(*passes[-1]) == pytest.approx(took[-1], rel=0.02)


def test_one_bad_moment_does_not_condemn_the_draft_model() -> None:
    """Its first pass took ten times as long; while it is not asked, that is believed less and less."""
    costs = Costs(draft_ratio=0.3)
    costs.target.learn(1, 0, 0.05)
    costs.learn_draft([(1, 0)], 0.15)
    assert costs.draft_s(1) < 0.03
    for _ in range(100):
        costs.relax()
    assert costs.draft_s(1) == pytest.approx(0.015, rel=0.05)


def test_what_was_learned_survives_json() -> None:
    costs, again = Costs(), Costs()
    for rows in (1, 3, 5):
        costs.target.learn(rows, 100, 0.05 + 0.01 * rows)
    costs.learn_draft([(1, 0), (READ_ROWS, 0)], 0.2)
    again.restore(json.loads(json.dumps(costs.as_dict())))
    for rows in range(1, 20):
        assert again.pass_s(rows, 50) == pytest.approx(costs.pass_s(rows, 50), rel=0.02)
        assert again.draft_s(rows) == pytest.approx(costs.draft_s(rows), rel=0.02)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["target", "draft", "read", "unit_s", "slope", "bends", "3"]), inner
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_anything_else_is_refused_as_a_whole(data: object) -> None:
    costs = Costs()
    try:
        costs.restore(data)
    except ValueError:
        assert not costs.target.measured
    assert costs.pass_s(5) >= costs.pass_s(1) > 0
