"""What a few logits of a row are changed by before a token is chosen: penalties, biases, bans.

This is the readable reference; `kernels/adjust.cpp` has the same bits. Which ids are concerned is kept by
`history.py`, as short lists: nothing here or there goes through a vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pilotfish.sampling import Sampling

_LARGEST = float(np.finfo(np.float32).max)


def _no_ids() -> NDArray[np.int32]:
    return np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """Ids whose logits are changed at one position of one text; those outside a row are passed over.

    Attributes
    ----------
    ids
        Shape (m,), int32: distinct ids that have occurred, in any order.
    repeated, generated
        Shape (m,), int32: how often each stands in the window of `repeat_penalty`, and in the answer so far.
    biased, bias
        Shape (b,), int32 and float64: distinct ids, and what is added to their logits.
    banned
        Shape (k,), int32: ids that can't be chosen; one may stand there twice.
    """

    ids: NDArray[np.int32] = field(default_factory=_no_ids)
    repeated: NDArray[np.int32] = field(default_factory=_no_ids)
    generated: NDArray[np.int32] = field(default_factory=_no_ids)
    biased: NDArray[np.int32] = field(default_factory=_no_ids)
    bias: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    banned: NDArray[np.int32] = field(default_factory=_no_ids)


def adjusted(logits: NDArray[np.float32], sampling: Sampling, adjustment: Adjustment) -> NDArray[np.float32]:
    """Return a copy of a row with its penalties, then its biases, then its bans.

    Penalties and biases are each computed in float64 and rounded to float32 once, to the nearest that is
    finite; the logit of a banned id is -inf.

    - `repeat_penalty`, for ids that stand in its window: a positive logit is divided by it, another is
      multiplied by it (Keskar and others 2019, "CTRL", as implementations agree to read it).
    - `frequency_penalty` times the number of times, and `presence_penalty` once, are subtracted for ids that
      stand in the answer.
    - `logit_bias` is added.

    Parameters
    ----------
    logits
        Shape (vocab_size,), float32, finite.
    sampling
        Gives the penalties.
    adjustment
        Gives the ids.
    """
    row = logits.copy()
    inside = adjustment.ids < len(row)
    ids, repeated, generated = (
        a[inside] for a in (adjustment.ids, adjustment.repeated, adjustment.generated)
    )
    x = row[ids].astype(np.float64)
    penalty = float(sampling.repeat_penalty)
    x = np.where(repeated > 0, np.where(x > 0, x / penalty, x * penalty), x)
    less = generated * float(sampling.frequency_penalty) + float(sampling.presence_penalty)
    row[ids] = _rounded(np.where(generated > 0, x - less, x))
    inside = adjustment.biased < len(row)
    biased = adjustment.biased[inside]
    row[biased] = _rounded(row[biased].astype(np.float64) + adjustment.bias[inside])
    row[adjustment.banned[adjustment.banned < len(row)]] = -np.inf
    return row


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)
