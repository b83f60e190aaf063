"""choose(): what the target says at a position, a pure function of the row of logits and a few numbers.

This is the readable reference; `kernels/sampling.cpp` gives the same tokens in a fraction of the time. Both
use float64, only + - * / and bit operations, and sums in a stated order: the bits are the same everywhere.

A token is chosen by the Gumbel-max rule: the largest `logit / temperature + noise` wins, where the noise of a
token depends on seed, choice, position and token id alone. So the choice does not depend on what else is
computed, and a draft model that uses the same noise mostly makes the same one (Daliri, Musco, Suresh 2024,
"Coupling without Communication and Drafter-Invariant Speculative Decoding").
"""

from __future__ import annotations

import math
import numbers
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.adjusting import Adjustment, adjusted
from pilotfish.errors import NumericsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NUMERICS_HINT = "the model file may be damaged, or an operation of the model went wrong"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen from a row of logits.

    Attributes
    ----------
    temperature
        0 is greedy (argmax, lowest id on a tie); else logits are divided by it.
    top_k
        Keep the k largest logits, 0 keeps all; a tie keeps the lowest ids.
    top_p
        Keep the smallest set, in order of (-logit, id), whose probability reaches top_p; 1.0 keeps all.
    min_p
        Keep tokens at least min_p times as likely as the likeliest; 0.0 keeps all.
    seed
        0..2**64-1; key of the noise.
    choice
        Index of the choice among n answers to one prompt, 0..2**32-1.
    presence_penalty, frequency_penalty
        -2..2: subtracted from the logit of each id in the answer so far, once and for each time; 0.0 is none.
    repeat_penalty
        0.01..100: logits of ids in the window are divided by it if positive, else multiplied; 1.0 is none.
    repeat_last_n
        The window of `repeat_penalty`: so many of the last tokens of prompt and answer; -1 is all, 0 none.
    logit_bias
        Pairs of distinct ids and what is added to their logits, -100..100.

    Raises
    ------
    UsageError
        If a value is of the wrong type or out of range; it names the value.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    choice: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = -1
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", *_PENALTIES):
            if not isinstance(getattr(self, name), numbers.Real):
                raise UsageError(f"{name} {getattr(self, name)!r} is not a number")
        for name, bits in (("top_k", 31), ("seed", 64), ("choice", 32)):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or not 0 <= int(value) < 2**bits:
                raise UsageError(f"{name} {value!r} is not an integer of 0..2**{bits}-1", _HINTS[name])
        if not 0.0 <= self.temperature < math.inf:
            raise UsageError(f"temperature {self.temperature!r} is not a finite number >= 0", "0 is greedy")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_p {self.top_p!r} is outside (0, 1]", "1 keeps all tokens")
        if not 0.0 <= self.min_p < 1.0:
            raise UsageError(f"min_p {self.min_p!r} is outside [0, 1)", "0 keeps all tokens")
        self._check_penalties()
        self._check_bias()

    def _check_penalties(self) -> None:
        for name, (least, most, none) in _PENALTIES.items():
            if not least <= getattr(self, name) <= most:
                raise UsageError(
                    f"{name} {getattr(self, name)!r} is outside {least}..{most}", f"{none} is none"
                )
        window = self.repeat_last_n
        if not isinstance(window, numbers.Integral) or not -1 <= int(window) < 2**31:
            raise UsageError(
                f"repeat_last_n {window!r} is not an integer of -1..2**31-1",
                "-1 is all tokens so far, 0 is none",
            )

    def _check_bias(self) -> None:
        for token, bias in self.logit_bias:
            if not isinstance(token, numbers.Integral) or not 0 <= int(token) < 2**31:
                raise UsageError(f"logit_bias has the id {token!r}", "ids are whole numbers from 0 on")
            if not isinstance(bias, numbers.Real) or not abs(bias) <= MOST_BIAS:
                raise UsageError(
                    f"logit_bias {bias!r} of token {token} is outside -{MOST_BIAS}..{MOST_BIAS}",
                    "0 changes nothing; bad_words rule a token out",
                )
        ids = [token for token, _ in self.logit_bias]
        if len(set(ids)) < len(ids):
            raise UsageError(f"logit_bias names an id twice: {sorted(ids)}", "give each id once")

    @property
    def adjusts(self) -> bool:
        """Whether logits depend on the text so far, or are biased."""
        repeats = self.repeat_penalty != 1.0 and self.repeat_last_n != 0
        return repeats or bool(self.presence_penalty or self.frequency_penalty or self.logit_bias)


MOST_BIAS = 100
"""Largest bias of a logit, either way; OpenAI's bound."""

_PENALTIES = {
    "presence_penalty": (-2.0, 2.0, 0),
    "frequency_penalty": (-2.0, 2.0, 0),
    "repeat_penalty": (0.01, 100.0, 1),
}
"""Least, most, and the value that does nothing."""

_HINTS = {
    "top_k": "0 keeps all tokens",
    "seed": "leave it out for a random one",
    "choice": "choices count from 0",
}


def fresh_seed() -> int:
    """Return a random seed, 0..2**64-1, for a request that names none."""
    return secrets.randbits(64)


def choose(
    logits: NDArray[np.float32], sampling: Sampling, position: int, adjustment: Adjustment | None = None
) -> int:
    """Return the token that a row of logits says at a position.

    Penalties, biases and bans come first (`adjusted`), then `kept`, then the noise.

    Parameters
    ----------
    logits
        Shape (vocab_size,), float32, at least one.
    sampling
        How to choose.
    position
        Absolute position of the chosen token in its sequence, 0..2**64-1.
    adjustment
        The ids concerned by penalties, biases and bans; None if there are none.

    Raises
    ------
    NumericsError
        If a logit is NaN or infinite, or every token is banned.
    UsageError
        If the position is out of range.
    """
    if adjustment is not None:
        check_finite(logits)
        logits = adjusted(logits, sampling, adjustment)
        if logits.max() == -np.inf:
            raise NumericsError("no token has a logit", NUMERICS_HINT)
    ids = kept(logits, sampling, absent=adjustment is not None)
    if len(ids) == 1:
        return int(ids[0])
    with np.errstate(over="ignore"):  # -inf never wins
        scores = scaled(logits, sampling.temperature)[ids] + gumbel(ids, sampling, position)
    return int(ids[np.argmax(scores)])  # ids ascend, so the lowest wins a tie


def kept(logits: NDArray[np.float32], sampling: Sampling, *, absent: bool = False) -> NDArray[np.int64]:
    """Return the ids that may be chosen, ascending: temperature, then top_k, then top_p, then min_p.

    Every truncation keeps a prefix of the ids in order of (-logit, id), so at least the argmax. With
    w = exp(scaled logit):

    - top_k keeps the first k.
    - top_p keeps the ids up to the first one at which the running sum of w, in that order, is at least
      top_p times the sum (`lane_sum`) of w over the ids that top_k kept, ascending.
    - min_p keeps the ids whose scaled logit is at least log(min_p); below 2**-1022 it counts as 2**-1022.

    Parameters
    ----------
    logits
        Shape (vocab_size,), float32, at least one.
    sampling
        How to choose; at temperature 0 only the argmax is kept.
    absent
        A logit of -inf is that of an id that can't be chosen, and no fault.

    Raises
    ------
    NumericsError
        If a logit is NaN or infinite.
    """
    if not absent:
        check_finite(logits)
    if sampling.temperature == 0.0:
        return np.array([np.argmax(logits)], dtype=np.int64)
    order = np.argsort(-logits, kind="stable").astype(np.int64)
    shifted = scaled(logits, sampling.temperature)
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    if sampling.top_p < 1.0:
        wanted = sampling.top_p * lane_sum(exp64(shifted[np.sort(order)]))
        running = np.add.accumulate(exp64(shifted[order]))
        order = order[: np.searchsorted(running, wanted, side="left") + 1]
    if sampling.min_p > 0.0:
        least = log64(np.array([max(float(sampling.min_p), 2.0**-1022)]))[0]
        order = order[shifted[order] >= least]
    return np.sort(order[logits[order] > -np.inf])


def check_finite(logits: NDArray[np.float32]) -> None:
    """Raise NumericsError, naming the first token and the value, if a logit is NaN or infinite."""
    finite = np.isfinite(logits)
    if not finite.all():
        token = int(np.argmin(finite))
        raise NumericsError(f"the logit of token {token} is {logits[token]}", NUMERICS_HINT)


def scaled(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """Return (logit - largest logit) / temperature in float64: 0 or less, -inf if it overflows.

    The largest is subtracted first, so that no temperature, however small, makes two infinities meet.
    """
    wide = logits.astype(np.float64)
    with np.errstate(over="ignore"):
        result: NDArray[np.float64] = (wide - wide.max()) / float(temperature)
    return result


def lane_sum(weights: NDArray[np.float64]) -> float:
    """Return the sum in a fixed order: element i goes to lane i mod 16, lanes add at distances 8, 4, 2, 1."""
    padded = np.zeros(-(-len(weights) // 16) * 16)
    padded[: len(weights)] = weights
    lanes = np.add.accumulate(padded.reshape(-1, 16), axis=0)[-1]
    for width in (8, 4, 2, 1):
        lanes = lanes[:width] + lanes[width:]
    return float(lanes[0])


def gumbel(ids: NDArray[np.int64], sampling: Sampling, position: int) -> NDArray[np.float64]:
    """Return the noise -log(-log(u)) of each token, between -4 and 37; shape and order of `ids`."""
    return -log64(-log64(uniform(ids, sampling, position)))


def uniform(ids: NDArray[np.int64], sampling: Sampling, position: int) -> NDArray[np.float64]:
    """Return each token's u = (x + 1/2) 2**-53, inside (0, 1), from the top 53 of its 64 random bits.

    The upper 32 bits of token 4 b + i are word i of Philox at the counter (b, position's lower and upper
    word, choice), the lower 32 bits likewise at (b + 2**31, ...); the key is the seed's lower and upper word.
    (The upper bits alone rule out nearly every token: the twin computes a quarter of a call for a token.)

    Parameters
    ----------
    ids
        Token ids, 0..2**31-1, any order.
    sampling
        Gives seed and choice.
    position
        Absolute position, 0..2**64-1.
    """
    if not 0 <= position < 2**64:
        raise UsageError(f"position {position!r} is outside 0..2**64-1")
    counter = np.empty((2, len(ids), 4), dtype=np.uint32)
    counter[..., 0] = ids // 4
    counter[1, :, 0] += np.uint32(2**31)
    counter[..., 1:] = position & 0xFFFFFFFF, position >> 32, sampling.choice
    words = philox4x32(counter, (int(sampling.seed) & 0xFFFFFFFF, int(sampling.seed) >> 32))
    upper, lower = words[:, np.arange(len(ids)), ids % 4].astype(np.uint64)
    x = (upper << np.uint64(32) | lower) >> np.uint64(11)
    # x + 1/2 rounds to even from 2**52 on: the last of the 2**53 values would be 1.
    u: NDArray[np.float64] = np.minimum((x.astype(np.float64) + 0.5) * 2.0**-53, 1.0 - 2.0**-53)
    return u


def philox4x32(counter: NDArray[np.uint32], key: Sequence[int]) -> NDArray[np.uint32]:
    """Return four random words for each counter: Philox4x32 with 10 rounds.

    Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).

    Parameters
    ----------
    counter
        Shape (..., 4), uint32.
    key
        Two words, 0..2**32-1.

    Returns
    -------
        Shape (..., 4), uint32.
    """
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    c0, c1, c2, c3 = np.moveaxis(counter.astype(np.uint64), -1, 0)
    for i in range(10):
        key0 = np.uint64((int(key[0]) + i * 0x9E3779B9) & 0xFFFFFFFF)
        key1 = np.uint64((int(key[1]) + i * 0xBB67AE85) & 0xFFFFFFFF)
        p = c0 * np.uint64(0xD2511F53)
        q = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (q >> half) ^ c1 ^ key0, q & low, (p >> half) ^ c3 ^ key1, p & low
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # ln 2 with 21 zero bits behind: times n <= 2**11 is exact
_LN2_LOW = 1.90821492927058770002e-10  # ln 2 - _LN2_HIGH
_ROUND = 1.5 * 2.0**52  # adding it rounds to an integer

_EXP_EVEN = [1.0 / math.factorial(k) for k in (12, 10, 8, 6, 4, 2)]
_EXP_ODD = [1.0 / math.factorial(k) for k in (13, 11, 9, 7, 5, 3)]
_LOG = [2.0 / k for k in range(23, 1, -2)]


def exp64(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp(max(x, -708)), for x <= 709, within 1 ulp; the same bits on every machine.

    x = n ln 2 + r with abs(r) <= ln(2)/2; 1 + r, and Taylor's terms r**2 to r**13 (the rest is below 2**-57),
    even and odd ones apart. The floor keeps the result a normal number; 1e-308 beside the 1 of the likeliest
    token changes nothing.
    """
    x = np.maximum(x, -708.0)
    shifted = x * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    q = r * r
    y = 1.0 + (r + q * (_horner(_EXP_EVEN, q) + r * _horner(_EXP_ODD, q)))
    # The low bits of `shifted` are n: moved into the exponent they multiply by 2**n.
    bits: NDArray[np.uint64] = y.view(np.uint64) + (shifted.view(np.uint64) << np.uint64(52))
    return bits.view(np.float64)


def log64(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(x), for normal, positive, finite x, within 1 ulp; the same bits on every machine.

    x = 2**k (1 + d) with 1 + d in [sqrt(1/2), sqrt(2)); with s = d / (2 + d) the logarithm of 1 + d is
    2 atanh(s) = d - s (d - R), R = 2 (s**2/3 + s**4/5 + ...) to s**22 (the rest is below 2**-60).
    """
    root_half = np.uint64(0x3FE6A09E667F3BCD)
    one = np.uint64(0x3FF0000000000000)
    moved = x.view(np.uint64) - root_half + one
    k = ((moved >> np.uint64(52)).astype(np.int64) - 1023).astype(np.float64)
    d = ((moved & np.uint64(0x000FFFFFFFFFFFFF)) + root_half).view(np.float64) - 1.0
    s = d / (2.0 + d)
    q = s * s
    rest = _horner(_LOG, q) * q
    result: NDArray[np.float64] = k * _LN2_HIGH + (d - (s * (d - rest) - k * _LN2_LOW))
    return result


def _horner(coefficients: list[float], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the polynomial whose coefficients are given from the highest power down."""
    y = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        y = y * x + coefficient
    return y
