"""Kinds of reports: sampling with drafts is not sampling from the target."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from decoding import answer, decoder_of, plain
from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.engines.scripted import Rule, ScriptedEngine, mistaken, ngrams, sure_of, uniform
from pilotfish.errors import NumericsError
from pilotfish.sampling import Sampling, kept
from pilotfish.sequence import Sequence
from strategies import MAKERS, VOCAB, Request, draft_model

LANGUAGE = ngrams(VOCAB, 2, seed=3)


def test_one_seed_is_one_text_and_another_seed_another() -> None:
    texts = [tuple(plain(LANGUAGE, Request((1,), Sampling(0.8, seed=seed), 30))[0]) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_choices_of_one_seed_differ() -> None:
    texts = {tuple(plain(LANGUAGE, Request((1,), Sampling(0.8, seed=1, choice=c), 30))[0]) for c in range(4)}
    assert len(texts) == 4


def test_a_poor_draft_model_loses_no_words() -> None:
    """Drafts from half of the vocabulary; the answer uses all of it."""
    half = ngrams(VOCAB // 2, 1, seed=8)
    drafter = draft_model(half, vocab_size=VOCAB // 2)
    request = Request((1,), Sampling(1.0, seed=4), 200)
    told, _ = answer(decoder_of(uniform(VOCAB), drafter, 4), request)
    assert told == plain(uniform(VOCAB), request)[0]
    assert set(told) == set(range(VOCAB))


@pytest.mark.parametrize(
    "shape",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 3},
        {"temperature": 1.3, "top_p": 0.8},
        {"temperature": 1.0, "min_p": 0.3},
    ],
    ids=str,
)
def test_over_many_seeds_the_distribution_is_the_targets(shape: dict[str, float]) -> None:
    """All answers of 3 tokens over 4, enumerated, against 400 speculative ones."""
    count = 400

    def target(tokens: tuple[int, ...]) -> np.ndarray:
        return np.asarray(ngrams(4, 1, seed=1)(tokens)) / 4

    expected = _enumerated(target, Sampling(**shape), 3)  # type: ignore[arg-type]
    engine = ScriptedEngine(target, 4)
    drafter = draft_model(mistaken(target, 0.5), vocab_size=4)
    decoder = Decoder(engine, drafter, FixedLength(2))
    drafted = accepted = 0
    got: Counter[tuple[int, ...]] = Counter()
    for seed in range(count):
        sequence = Sequence([0], Sampling(**shape, seed=seed), 3)  # type: ignore[arg-type]
        got[tuple(token.id for token in decoder.run(sequence))] += 1
        drafted, accepted = drafted + sequence.stats.drafted, accepted + sequence.stats.accepted
    assert 0 < accepted < drafted
    assert got.keys() <= {text for text, share in expected.items() if share > 0}
    # The sum over all texts of (got - expected)^2 / expected has their number less 1 as its mean.
    chi2 = sum((got[t] - count * p) ** 2 / (count * p) for t, p in expected.items() if p > 0)
    freedom = sum(p > 0 for p in expected.values()) - 1
    assert chi2 < freedom + 5 * np.sqrt(2 * freedom) + 10


def _enumerated(rule: Rule, sampling: Sampling, length: int) -> dict[tuple[int, ...], float]:
    """Return the probability of each answer to the prompt [0]."""
    shares: dict[tuple[int, ...], float] = {}
    for text in itertools.product(range(4), repeat=length):
        share = 1.0
        for i, token in enumerate(text):
            logits = np.asarray(rule((0, *text[:i])), np.float32)
            ids = list(kept(logits, sampling))
            weights = np.exp(logits[ids].astype(np.float64) / sampling.temperature)
            share *= float(weights[ids.index(token)] / weights.sum()) if token in ids else 0.0
        shares[text] = share
    return shares


@pytest.mark.parametrize("name", sorted(MAKERS))
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1e-6, seed=1),
        Sampling(100.0, seed=1),
        Sampling(1.0, top_p=1e-9, seed=1),
        Sampling(1.0, top_k=1, seed=1),
    ],
    ids=["temperature 1e-6", "temperature 100", "top_p 1e-9", "top_k 1"],
)
def test_extreme_parameters_behave(name: str, sampling: Sampling) -> None:
    request = Request((1, 2), sampling, 30)
    told, _ = answer(decoder_of(LANGUAGE, MAKERS[name](LANGUAGE), 4), request)
    assert told == plain(LANGUAGE, request)[0]
    if sampling.temperature < 50:
        assert told == plain(LANGUAGE, Request((1, 2), Sampling(), 30))[0]
    else:
        assert len(set(told)) > 6


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_not_finite_are_an_error_and_no_token(bad: float, temperature: float) -> None:
    def rule(tokens: tuple[int, ...]) -> np.ndarray:
        row = sure_of(1, VOCAB)
        row[3] = bad if len(tokens) == 5 else 0
        return row

    stream = decoder_of(rule, MAKERS["suffix"](rule), 4).run(
        Request((1,), Sampling(temperature, seed=1)).sequence()
    )
    told: list[int] = []
    with pytest.raises(NumericsError):
        told.extend(token.id for token in stream)
    assert len(told) <= 4
