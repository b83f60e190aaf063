"""Kinds of reports: the answer differs when drafts are used."""

from __future__ import annotations

import pytest

from decoding import Run, decoder_of, plain
from pilotfish.engines.scripted import ngrams
from pilotfish.sampling import Sampling
from strategies import MAKERS, VOCAB, Request, draft_model

LANGUAGE = ngrams(VOCAB, 2, seed=3)
PROMPTS = [(1,), (1, 2, 3), tuple(i % 7 for i in range(130))]
REQUESTS = [
    Request(prompt, sampling, 24)
    for prompt in PROMPTS
    for sampling in (Sampling(), Sampling(temperature=0.8, seed=2))
]


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_ids_equal_plain_ids_for_every_draft_length(name: str) -> None:
    """Lengths 1..16, short and long prompts, each alone and beside the others."""
    expected = [plain(LANGUAGE, request)[0] for request in REQUESTS]
    for length in range(1, 17):
        run = Run(decoder_of(LANGUAGE, MAKERS[name](LANGUAGE), length))
        got = [run.add(request) for request in REQUESTS]
        run.finish()
        assert [s.tokens[len(r.prompt) :] for s, r in zip(got, REQUESTS, strict=True)] == expected
    run = Run(decoder_of(LANGUAGE, MAKERS[name](LANGUAGE), 5))
    alone = run.add(REQUESTS[1])
    run.finish()
    assert alone.tokens[1:] == expected[1]


def test_the_target_drafting_for_itself_does_not_decay() -> None:
    """Not a rejection in 500 tokens, sampled, with other requests beside it that it disagrees with."""
    decoder = decoder_of(LANGUAGE, draft_model(LANGUAGE), 5)
    run = Run(decoder)
    stats = run.add(Request((1, 2), Sampling(temperature=1.2, seed=9), 500)).stats
    for seed in range(3):
        run.add(Request((3, seed), Sampling(temperature=0.7, seed=seed), 50))
    run.finish()
    assert stats.drafted == stats.accepted
    assert stats.accepted_at == stats.drafted_at
