"""What choices must be distributed like: the plainest definition, and a test of counts against it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import Counter

    import numpy as np
    from numpy.typing import NDArray

    from pilotfish.sampling import Sampling

TRUNCATIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"temperature": 100.0},
    {"top_k": 3},
    {"top_k": 100},
    {"top_p": 0.8},
    {"top_p": 0.3},
    {"min_p": 0.2},
    {"min_p": 0.9},
    {"top_k": 5, "top_p": 0.9},
    {"top_k": 5, "min_p": 0.3},
    {"top_p": 0.95, "min_p": 0.25},
    {"temperature": 1.5, "top_k": 6, "top_p": 0.9, "min_p": 0.1},
]


def truncated(logits: NDArray[np.float32], sampling: Sampling) -> dict[int, float]:
    """Return the exact distribution after the truncations, in the plainest way."""
    weights = [math.exp((float(x) - float(logits.max())) / sampling.temperature) for x in logits]
    order = sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))
    if sampling.top_k:
        order = order[: sampling.top_k]
    if sampling.top_p < 1:
        total = math.fsum(weights[i] for i in order)
        keep = 1
        while math.fsum(weights[i] for i in order[:keep]) < sampling.top_p * total:
            keep += 1
        order = order[:keep]
    order = [i for i in order if weights[i] >= sampling.min_p * max(weights)]
    total = math.fsum(weights[i] for i in order)
    return {i: weights[i] / total for i in sorted(order)}


def chi_square_bound(freedom: int) -> float:
    """Return what chi-square exceeds once in a million (Wilson and Hilferty's approximation)."""
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + 4.7534 * math.sqrt(spread)) ** 3


def assert_distributed(counts: Counter[Any], exact: dict[Any, float]) -> None:
    draws = counts.total()
    assert set(counts) <= set(exact)
    assert all(draws * p > 2 for p in exact.values())
    statistic = sum((counts[i] - draws * p) ** 2 / (draws * p) for i, p in exact.items())
    assert statistic < chi_square_bound(max(1, len(exact) - 1))
