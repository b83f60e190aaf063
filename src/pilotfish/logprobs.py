"""Log-probabilities of a row: what the target itself holds of its tokens, before the sampler's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.sampling import check_finite, exp64, lane_sum, log64, scaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_TOP = 20
"""Most likeliest tokens that are told of a position; OpenAI's bound."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of softmax(logits), of the raw logits.

    Attributes
    ----------
    logprob
        Of the token that stands there.
    top
        (id, log-probability) of the likeliest, in order of (-logit, id); the token itself may not be one.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def logprobs(logits: NDArray[np.float32], token: int, top: int = 0) -> Logprobs:
    """Return the log-probabilities of a token and of the `top` likeliest; the reference of the C++ twin.

    In float64: with s = logit - largest, s - log(`lane_sum` of exp(s)).

    Raises
    ------
    NumericsError
        If a logit is NaN or infinite.
    """
    check_finite(logits)
    shifted = scaled(logits, 1.0)
    values = shifted - log64(np.array([lane_sum(exp64(shifted))]))[0]
    order = np.argsort(-logits, kind="stable")[:top]
    return Logprobs(float(values[token]), tuple((int(i), float(values[i])) for i in order))
