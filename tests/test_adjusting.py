"""Penalties, biases and bans on one row, and the history that says which ids they meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pilotfish.adjusting import Adjustment, adjusted
from pilotfish.bans import BannedSequences
from pilotfish.errors import NumericsError, UsageError
from pilotfish.history import History
from pilotfish.sampling import Sampling, choose
from sampling_rules import penalized

if TYPE_CHECKING:
    from numpy.typing import NDArray

VOCAB = 9
ROW = np.array([4, -4, 2, -2, 1, 0, -1, 3, -3], np.float32)

ids = st.integers(0, VOCAB - 1)
penalties = st.builds(
    Sampling,
    presence_penalty=st.sampled_from([0.0, 0.5, -2.0, 0.1]),
    frequency_penalty=st.sampled_from([0.0, 0.3, 2.0, -0.7]),
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.5, 100.0]),
    repeat_last_n=st.sampled_from([-1, 0, 1, 2, 5, 2**31 - 1]),
    logit_bias=st.dictionaries(ids, st.floats(-100, 100), max_size=3).map(lambda d: tuple(d.items())),
)
rows = st.lists(st.floats(-20, 20, width=32), min_size=VOCAB, max_size=VOCAB)


def row_after(sampling: Sampling, prompt: list[int], answer: list[int]) -> NDArray[np.float32]:
    """Return what becomes of ROW behind a prompt and an answer."""
    return adjusted(ROW, sampling, History(sampling, len(prompt)).after([*prompt, *answer]))


def test_presence_is_subtracted_once_and_frequency_for_each_time_in_the_answer_only() -> None:
    changed = row_after(Sampling(presence_penalty=1.0, frequency_penalty=0.5), [0, 1, 1], [2, 2, 3])
    assert (changed - ROW).tolist() == [0, 0, -2, -1.5, 0, 0, 0, 0, 0]


def test_repeat_divides_positive_logits_and_multiplies_others_of_prompt_and_answer() -> None:
    changed = row_after(Sampling(repeat_penalty=2.0), [0, 1, 1], [2, 2, 5])
    assert changed.tolist() == [2, -8, 1, -2, 1, 0, -1, 3, -3]


@pytest.mark.parametrize(
    ("window", "met"),
    [(-1, {0, 1, 2, 4}), (0, set()), (1, {4}), (3, {2, 4}), (4, {1, 2, 4}), (99, {0, 1, 2, 4})],
)
def test_the_window_of_repeat_is_the_last_tokens_of_prompt_and_answer(window: int, met: set[int]) -> None:
    changed = row_after(Sampling(repeat_penalty=2.0, repeat_last_n=window), [0, 1], [2, 2, 4])
    assert set(np.flatnonzero(changed != ROW).tolist()) == met


def test_repeat_comes_before_the_other_penalties_and_biases_come_last() -> None:
    sampling = Sampling(presence_penalty=1.0, repeat_penalty=2.0, logit_bias=((0, 10.0), (5, -3.0)))
    changed = row_after(sampling, [], [0, 1])
    assert changed[:2].tolist() == [4 / 2 - 1 + 10, -4 * 2 - 1]
    assert changed[5] == -3


def test_what_overflows_becomes_the_largest_number_and_bans_become_minus_infinity() -> None:
    most = float(np.finfo(np.float32).max)
    logits = np.array([most, -most, 0, 1], np.float32)
    sampling = Sampling(repeat_penalty=0.01, presence_penalty=2.0, logit_bias=((0, 100.0), (1, -100.0)))
    lists = History(sampling, 0, bans=[BannedSequences([[2], [2], [3]])]).after([0, 1])
    assert adjusted(logits, sampling, lists).tolist() == [
        most,
        float(np.float32(-most * 0.01)),
        -np.inf,
        -np.inf,
    ]


@given(penalties, rows, st.lists(ids, max_size=12), st.lists(ids, max_size=12))
@example(Sampling(repeat_penalty=2.0, repeat_last_n=2), [1.0] * VOCAB, [0, 1, 2], [])
def test_a_row_is_changed_as_the_plain_rules_say(
    sampling: Sampling, logits: list[float], prompt: list[int], answer: list[int]
) -> None:
    row = np.array(logits, np.float32)
    lists = History(sampling, len(prompt)).after([*prompt, *answer])
    assert adjusted(row, sampling, lists).tolist() == penalized(row, sampling, prompt, answer).tolist()


@given(
    sampling=penalties,
    prompt=st.lists(ids, max_size=6),
    steps=st.lists(
        st.tuples(st.lists(ids, max_size=3), st.lists(st.lists(ids, max_size=5), max_size=4)), max_size=6
    ),
    words=st.lists(st.lists(ids, min_size=1, max_size=3), max_size=3),
    min_tokens=st.integers(0, 6),
)
def test_guesses_leave_no_trace_in_a_history(
    sampling: Sampling,
    prompt: list[int],
    steps: list[tuple[list[int], list[list[int]]]],
    words: list[list[int]],
    min_tokens: int,
) -> None:
    """However it was asked before, it answers as one that is asked for the first time."""

    def fresh() -> History:
        bans = [BannedSequences(words)] if words else []
        return History(sampling, len(prompt), ends=[7, 8], min_tokens=min_tokens, bans=bans)

    asked, tokens = fresh(), list(prompt)
    for more, guesses in steps:
        tokens += more
        for guess in [[], *guesses]:
            got = adjusted(ROW, sampling, asked.after(tokens, guess))
            assert got.tolist() == adjusted(ROW, sampling, fresh().after([*tokens, *guess])).tolist()
            answer = [*tokens[len(prompt) :], *guess]
            expected = penalized(ROW, sampling, prompt, answer)
            for word in words:
                if [*answer, word[-1]][-len(word) :] == word:
                    expected[word[-1]] = -np.inf
            if len(answer) < min_tokens:
                expected[[7, 8]] = -np.inf
            assert got.tolist() == expected.tolist()


def test_many_distinct_ids_are_counted_too() -> None:
    sampling = Sampling(frequency_penalty=1.0)
    tokens = [*range(300), *range(300, 0, -1)]
    row = np.zeros(301, np.float32)
    assert adjusted(row, sampling, History(sampling, 0).after(tokens)).tolist() == [-1, *[-2] * 299, -1]


def test_ids_beyond_a_row_are_passed_over() -> None:
    """A draft model may have fewer ids than the target."""
    sampling = Sampling(repeat_penalty=2.0, logit_bias=((20, 5.0),))
    lists = History(sampling, 0, bans=[BannedSequences([[30]])]).after([40, 0])
    assert adjusted(ROW, sampling, lists).tolist() == [2, *ROW[1:]]


def test_a_sequence_of_ids_is_banned_at_its_last_id_within_the_answer_only() -> None:
    ban = BannedSequences([[1, 2, 3], [5], [2, 2]])
    assert set(ban.banned().tolist()) == {5}
    for token, banned in [(1, {5}), (2, {5, 3, 2}), (2, {5, 2}), (1, {5}), (2, {5, 3, 2})]:
        ban.push(token)
        assert set(ban.banned().tolist()) == banned
    ban.pop()
    assert set(ban.banned().tolist()) == {5}


def test_no_token_left_is_an_error() -> None:
    everything = Adjustment(banned=np.arange(VOCAB, dtype=np.int32))
    for temperature in (0.0, 1.0):
        with pytest.raises(NumericsError, match="no token has a logit"):
            choose(ROW, Sampling(temperature), 0, everything)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_an_error_before_anything_is_adjusted(bad: float) -> None:
    row = ROW.copy()
    row[3] = bad
    with pytest.raises(NumericsError, match="token 3 is"):
        choose(row, Sampling(), 0, Adjustment(banned=np.array([3], np.int32)))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"presence_penalty": 2.1}, "presence_penalty 2.1"),
        ({"presence_penalty": float("nan")}, "presence_penalty nan"),
        ({"frequency_penalty": -3}, "frequency_penalty -3"),
        ({"frequency_penalty": "much"}, "frequency_penalty 'much'"),
        ({"repeat_penalty": 0.0}, "repeat_penalty 0.0"),
        ({"repeat_penalty": -1.0}, "repeat_penalty -1.0"),
        ({"repeat_penalty": float("inf")}, "repeat_penalty inf"),
        ({"repeat_last_n": -2}, "repeat_last_n -2"),
        ({"repeat_last_n": 1.5}, "repeat_last_n 1.5"),
        ({"logit_bias": ((-1, 1.0),)}, "logit_bias has the id -1"),
        ({"logit_bias": (("7", 1.0),)}, "logit_bias has the id '7'"),
        ({"logit_bias": ((3, 101.0),)}, "logit_bias 101.0 of token 3"),
        ({"logit_bias": ((3, float("nan")),)}, "logit_bias nan of token 3"),
        ({"logit_bias": ((3, None),)}, "logit_bias None of token 3"),
        ({"logit_bias": ((3, 1.0), (3, 2.0))}, "logit_bias names an id twice"),
    ],
)
def test_adjustments_out_of_range_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named.replace(".", r"\.")):
        Sampling(**settings)  # type: ignore[arg-type]
