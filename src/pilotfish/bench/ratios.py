"""Ratios of seconds over prompts, and how sure they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES = 2000
LEVEL = 0.95

Pair = tuple[float, float]
"""Seconds of the baseline and of what is compared with it, on one prompt."""


def ratio(pairs: Sequence[Pair]) -> float | None:
    """Return the baseline's seconds over the other's, both summed; above 1 the other is faster.

    None if the other took no time, as where every answer ends with its first token.
    """
    baseline, other = (sum(seconds) for seconds in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    return baseline / other if other > 0 else None


def interval(pairs: Sequence[Pair], seed: int) -> tuple[float, float] | None:
    """Return the 95 % interval of `ratio`: percentile bootstrap over prompts (Efron 1979), 2,000 resamples.

    Prompts are drawn anew with their pair of times, so it says how much the ratio depends on which prompts
    were asked. Prompts on which neither took time are left out. None for fewer than two prompts: one says
    nothing about others.
    """
    timed = np.array([pair for pair in pairs if any(pair)], np.float64).reshape(-1, 2)
    count = len(timed)
    if count < 2 or not timed[:, 1].all():
        return None
    drawn = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    sums = timed[drawn].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
