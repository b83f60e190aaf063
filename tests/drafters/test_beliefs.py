"""What is believed of guesses: kept as JSON, and taken back only as a whole."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pilotfish.drafters.beliefs import Beliefs, Usual
from pilotfish.drafters.model import WHOLE
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import draft_of


def taught(seed: int = 0, guesses: int = 60) -> Beliefs:
    """Return beliefs that have seen texts on which guesses were right at random."""
    rng, beliefs = random.Random(seed), Beliefs()  # noqa: S311 - no secret
    for _ in range(guesses):
        s = Sequence([1, 2, 3], Sampling(), 100)
        text = beliefs.text(s)
        for level in (None, rng.randrange(WHOLE + 1)):
            record = text.lookup if level is None else text.model
            draft = draft_of([rng.randrange(2) for _ in range(3)], confidence=rng.random())
            beliefs.claim(s, draft, [record] * 3, certainty=rng.random(), level=level)
        s.tokens += [rng.randrange(2) for _ in range(3)]
        beliefs.learn(s)
        del beliefs.texts[s.key]
    return beliefs


def test_what_was_learned_comes_back_from_json() -> None:
    beliefs, again = taught(), Beliefs()
    again.restore(json.loads(json.dumps(beliefs.as_dict())))
    s = Sequence([1, 2], Sampling(), 100)
    for known in (beliefs, again):
        known.text(s)
    assert again.as_dict() == beliefs.as_dict() != Beliefs().as_dict()
    for level in range(WHOLE + 1):
        assert again.expected(s, 0.7, level) == pytest.approx(beliefs.expected(s, 0.7, level), abs=1e-3)


def test_knowing_less_of_a_text_is_expected_to_be_no_better_than_knowing_more() -> None:
    for seed in range(20):
        beliefs, s = taught(seed), Sequence([1, 2], Sampling(), 100)
        beliefs.text(s)
        for certainty in (None, 0.1, 0.5, 0.9):
            expected = [beliefs.usual_of(s, certainty, level) for level in range(WHOLE + 1)]
            for less, more in itertools.pairwise(expected):
                assert all(a <= b for a, b in zip(less, more, strict=True))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "43", "44", "x"]), inner)
    ),
    max_leaves=12,
)


@given(json_values, st.sampled_from(["calibrations", "usual", "all"]))
def test_anything_else_is_refused_as_a_whole(data: object, where: str) -> None:
    assume(data != [{}, {}, {}])  # nothing learned yet is no mistake
    beliefs, before = taught(), taught().as_dict()
    given_: object = data if where == "all" else {**taught(1).as_dict(), where: data}
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        beliefs.restore(given_)
    assert beliefs.as_dict() == before


def test_what_a_model_usually_achieves_follows_each_guess_though_the_same_was_asked_before() -> None:
    usual = Usual()
    before = usual.expected(0.0, 0.5)
    for _ in range(10):
        usual.learn(0, 0.5, right=True)
    assert usual.expected(0.0, 0.5)[0] > before[0]
    assert usual.expected(0.0, 0.5) == usual.expected(0.0, 0.5)
