"""The compiled adjustments and log-probabilities: the bits of the reference, and what is then chosen."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pilotfish import sampling as reference
from pilotfish.adjusting import Adjustment, adjusted
from pilotfish.engines.native.rows import packed
from pilotfish.errors import NumericsError
from pilotfish.history import History
from pilotfish.kernels import _kernels
from pilotfish.logprobs import logprobs
from pilotfish.sampling import Sampling
from sampling_oracle import assert_distributed, truncated
from sampling_rules import penalized

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTH = 151_936
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
rows = st.one_of(
    arrays.arrays(np.float32, st.integers(1, 200), elements=finite),
    arrays.arrays(np.float32, st.integers(1, 200), elements=st.floats(-30, 30, width=32)),
    arrays.arrays(np.float32, st.integers(1, 200), elements=st.sampled_from([-0.0, 0.0, 1e-45, 1.0, 1.5])),
)
ids = st.integers(0, 250)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 1.0, 1e-300, 1e30]),
    top_k=st.sampled_from([0, 0, 1, 5, 100]),
    top_p=st.sampled_from([1.0, 1.0, 0.9, 0.999999]),
    min_p=st.sampled_from([0.0, 0.0, 0.05, 0.5]),
    seed=st.integers(0, 2**64 - 1),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    repeat_penalty=st.one_of(st.just(1.0), st.floats(0.01, 100)),
    repeat_last_n=st.sampled_from([-1, 0, 7]),
    logit_bias=st.dictionaries(ids, st.floats(-100, 100), max_size=9).map(lambda d: tuple(d.items())),
)


def choose(
    logits: NDArray[np.float32], sampling: Sampling, position: int, adjustment: Adjustment | None
) -> int:
    s = sampling
    lists = None if adjustment is None else packed(s, adjustment)
    where = (s.seed, s.choice, position)
    return _kernels.choose(logits, s.temperature, s.top_k, s.top_p, s.min_p, *where, adjustment=lists)


@settings(max_examples=100, deadline=None)
@given(
    logits=rows,
    sampling=samplings,
    text=st.lists(ids, max_size=40),
    prompt=st.integers(0, 40),
    banned=st.lists(ids, max_size=40),
)
def test_the_twin_adjusts_and_chooses_as_the_reference(
    logits: NDArray[np.float32], sampling: Sampling, text: list[int], prompt: int, banned: list[int]
) -> None:
    lists = History(sampling, min(prompt, len(text))).after(text)
    lists = replace(lists, banned=np.array(banned, np.int32))
    expected = adjusted(logits, sampling, lists)
    assert _kernels.adjust(logits, packed(sampling, lists)).tobytes() == expected.tobytes()
    if (expected == -np.inf).all():
        for one in (choose, reference.choose):
            with pytest.raises(NumericsError, match="no token has a logit"):
                one(logits, sampling, 3, lists)
    else:
        assert choose(logits, sampling, 3, lists) == reference.choose(logits, sampling, 3, lists)


def vocabulary_row() -> NDArray[np.float32]:
    """Return a row as wide as a vocabulary, with a few likely tokens."""
    random = np.random.default_rng(3)
    row = random.normal(0, 2.5, WIDTH).astype(np.float32)
    row[random.integers(0, WIDTH, 40)] += np.linspace(8, 20, 40, dtype=np.float32)
    return row


def busy_history(sampling: Sampling) -> tuple[History, list[int]]:
    """Return a history of 2,000 ids of the vocabulary, the likeliest among them, and its text."""
    random = np.random.default_rng(4)
    likely = np.argsort(-vocabulary_row())[:300]
    text = [*random.integers(0, WIDTH, 1700).tolist(), *likely.tolist()]
    return History(sampling, 1000, ends=range(100), min_tokens=5000), text


BUSY: dict[str, Any] = {
    "presence_penalty": 0.5,
    "frequency_penalty": 0.3,
    "repeat_penalty": 1.2,
    "logit_bias": tuple((token, 1.0) for token in range(0, 3000, 10)),
}
SHAPES = [
    Sampling(**BUSY),
    Sampling(1.0, **BUSY),
    Sampling(0.8, top_p=0.95, **BUSY),
    Sampling(1.0, 40, **BUSY),
    Sampling(1.0, min_p=0.05, **BUSY),
]


@pytest.mark.parametrize("sampling", SHAPES, ids=["greedy", "all", "top_p", "top_k", "min_p"])
def test_in_a_whole_vocabulary_too(sampling: Sampling) -> None:
    """With lists as long as a long text makes them."""
    logits = vocabulary_row()
    history, text = busy_history(sampling)
    for position in range(2):
        lists = history.after(text, [1, 2, position])
        assert choose(logits, sampling, position, lists) == reference.choose(
            logits, sampling, position, lists
        )


@settings(max_examples=60, deadline=None)
@given(logits=rows, data=st.data())
def test_log_probabilities_have_the_bits_of_the_reference(
    logits: NDArray[np.float32], data: st.DataObject
) -> None:
    token = data.draw(st.integers(0, len(logits) - 1))
    top = data.draw(st.integers(0, 20))
    expected = logprobs(logits, token, top)
    logprob, likeliest = _kernels.logprobs(logits, token, top)
    assert (logprob, likeliest) == (expected.logprob, list(expected.top))
    assert [i for i, _ in likeliest] == sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top]


def test_log_probabilities_of_a_whole_vocabulary_are_the_log_softmax() -> None:
    logits = vocabulary_row()
    wide = logits.astype(np.float64) - float(logits.max())
    exact = wide - math.log(math.fsum(np.exp(wide)))
    logprob, likeliest = _kernels.logprobs(logits, 77, 20)
    assert logprob == pytest.approx(exact[77], abs=1e-12)
    assert [i for i, _ in likeliest] == np.argsort(-logits, kind="stable")[:20].tolist()
    assert [p for _, p in likeliest] == pytest.approx(exact[[i for i, _ in likeliest]].tolist(), abs=1e-12)
    assert (logprob, likeliest) == (logprobs(logits, 77, 20).logprob, list(logprobs(logits, 77, 20).top))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_an_error(bad: float) -> None:
    logits = np.zeros(100, np.float32)
    logits[70] = bad
    lists = Adjustment(banned=np.array([70], np.int32))
    for call in (
        lambda: choose(logits, Sampling(), 0, lists),
        lambda: choose(logits, Sampling(1.0), 0, lists),
        lambda: _kernels.logprobs(logits, 0, 3),
    ):
        with pytest.raises(NumericsError, match="token 70 is"):
            call()


def test_lists_that_do_not_belong_together_and_ids_that_are_none_are_refused() -> None:
    one, none = np.zeros(1, np.int32), np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="equally long"):
        _kernels.Adjustment(one, none, one, none, np.zeros(0), none, 0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="equally long"):
        _kernels.Adjustment(none, none, none, one, np.zeros(0), none, 0.0, 0.0, 1.0)
    with pytest.raises(IndexError):
        _kernels.logprobs(np.zeros(3, np.float32), 3, 0)
    with pytest.raises(ValueError, match="0 or more"):
        _kernels.logprobs(np.zeros(3, np.float32), 0, -1)


def test_negative_ids_are_passed_over() -> None:
    lists = Adjustment(banned=np.array([-1, -(2**31)], np.int32))
    assert _kernels.adjust(ROW, packed(Sampling(), lists)).tolist() == ROW.tolist()


ROW = np.array([1.5, 0.25, 2.0, -1.0, 2.0, 0.5, -1.5, 1.0], np.float32)
PROMPT, SAID = [3, 0, 2], [4, 4, 2, 7]
TRUNCATIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7},
    {"top_k": 3},
    {"top_p": 0.8},
    {"min_p": 0.2},
    {"temperature": 1.4, "top_k": 6, "top_p": 0.9, "min_p": 0.1},
]
PENALTIES: list[dict[str, Any]] = [
    {},
    {"presence_penalty": 0.9, "frequency_penalty": 0.4},
    {"repeat_penalty": 1.6, "repeat_last_n": 4},
    {"presence_penalty": -0.5, "repeat_penalty": 0.8, "logit_bias": ((1, 1.0), (2, -1.5))},
]


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
@pytest.mark.parametrize("truncation", TRUNCATIONS, ids=str)
@pytest.mark.parametrize("banned", [[], [4, 0]], ids=["", "with bans"])
def test_over_20000_seeds_choices_follow_the_exact_distribution(
    truncation: dict[str, Any], penalties: dict[str, Any], banned: list[int]
) -> None:
    """The exact one: rules counted anew, softmax and truncations in the plainest way."""
    sampling = Sampling(**{"temperature": 1.0, **truncation}, **penalties)
    row = penalized(ROW, sampling, PROMPT, SAID)
    left = [token for token in range(len(row)) if token not in banned]
    exact = {left[i]: share for i, share in truncated(row[left], sampling).items()}
    lists = replace(History(sampling, len(PROMPT)).after([*PROMPT, *SAID]), banned=np.array(banned, np.int32))
    s, fixed = sampling, packed(sampling, lists)
    counts = Counter(
        _kernels.choose(ROW, s.temperature, s.top_k, s.top_p, s.min_p, seed, 0, 7, adjustment=fixed)
        for seed in range(20_000)
    )
    assert_distributed(counts, exact)
