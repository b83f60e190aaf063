"""Rows in which some ids can't be said: their logits are -inf, and all is over the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish import sampling as reference
from pilotfish.errors import NumericsError
from pilotfish.kernels import _kernels
from pilotfish.sampling import Sampling

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = np.float32(-1e30)
"""A logit that no token with it is chosen at, nor weighs anything."""

samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 400]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 2**64 - 1),
)


@st.composite
def rows(draw: st.DrawFn) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return logits, and which of the ids are absent: single ones, runs, or all but one."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 1500))
    logits = rng.normal(0, 3, n).astype(np.float32)
    run = draw(st.sampled_from([1, 16, 300, n]))
    absent = np.repeat(rng.random(-(-n // run)) < draw(st.floats(0, 1)), run)[:n]
    absent[rng.integers(n)] = False
    return logits, absent


@settings(max_examples=150, deadline=None)
@given(row=rows(), sampling=samplings, position=st.integers(0, 2**40))
def test_absent_ids_are_as_good_as_impossible(
    row: tuple[NDArray[np.float32], NDArray[np.bool_]], sampling: Sampling, position: int
) -> None:
    logits, absent = row
    with_infinities, with_never = (
        np.where(absent, value, logits).astype(np.float32) for value in (-np.inf, NEVER)
    )
    s = sampling
    chosen = _kernels.choose(
        with_infinities, s.temperature, s.top_k, s.top_p, s.min_p, s.seed, s.choice, position, absent=True
    )
    assert chosen == reference.choose(with_never, sampling, position)
    assert _kernels.argmax(with_infinities, absent=True) == int(with_never.argmax())
    said = logits[~absent].astype(np.float64)
    top = np.sort(said)[::-1]
    margin = top[0] - top[1] if len(top) > 1 else math.inf
    assert _kernels.margin(with_infinities, absent=True) == margin
    weights = np.exp(said - said.max())
    for token, share in zip(np.flatnonzero(~absent)[:20], weights[:20] / weights.sum(), strict=False):
        got = _kernels.probability(with_infinities, int(token), absent=True)
        assert math.isclose(got, share, rel_tol=1e-5, abs_tol=1e-12)
    for token in np.flatnonzero(absent)[:20]:
        assert _kernels.probability(with_infinities, int(token), absent=True) == 0.0


@settings(max_examples=50, deadline=None)
@given(row=rows(), token=st.integers(0, 10**6))
def test_where_no_id_is_absent_nothing_changes(
    row: tuple[NDArray[np.float32], NDArray[np.bool_]], token: int
) -> None:
    logits, token = row[0], token % row[0].size
    for name, more in (("argmax", ()), ("margin", ()), ("probability", (token,))):
        function = getattr(_kernels, name)
        assert function(logits, *more) == function(logits, *more, absent=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 70, 99])
def test_nan_and_plus_infinity_are_errors_still(bad: float, at: int) -> None:
    row = np.full(100, -np.inf, np.float32)
    row[::3] = 1.0
    row[at] = bad
    for call in (
        lambda: _kernels.argmax(row, absent=True),
        lambda: _kernels.margin(row, absent=True),
        lambda: _kernels.probability(row, 3, absent=True),
        lambda: _kernels.choose(row, 1.0, 0, 1.0, 0.0, 1, 0, 5, absent=True),
    ):
        with pytest.raises(NumericsError, match=f"token {at} is {bad}"):
            call()


def test_a_row_of_absent_ids_only_is_an_error() -> None:
    row = np.full(100, -np.inf, np.float32)
    for call in (
        lambda: _kernels.argmax(row, absent=True),
        lambda: _kernels.margin(row, absent=True),
        lambda: _kernels.probability(row, 3, absent=True),
    ):
        with pytest.raises(NumericsError, match="no token has a logit"):
            call()


def test_minus_infinity_is_an_error_where_it_is_not_allowed() -> None:
    row = np.array([0.0, -np.inf], np.float32)
    with pytest.raises(NumericsError, match="token 1 is -inf"):
        _kernels.argmax(row)
