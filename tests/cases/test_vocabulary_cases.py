"""Kinds of reports: target and draft model pad the same vocabulary to different sizes."""

from __future__ import annotations

import pytest

from decoding import Run, decoder_of, plain
from pilotfish.engines.scripted import Rule, ngrams, sure_of
from pilotfish.sampling import Sampling
from strategies import PADDED, VOCAB, Request, draft_model, padded

LANGUAGE = ngrams(VOCAB, 2, seed=3)
SAMPLED = Sampling(temperature=0.8, seed=3)


@pytest.mark.parametrize("size", [VOCAB, PADDED, PADDED + 20])
def test_the_size_of_the_padding_changes_nothing(size: int) -> None:
    """Neither the text nor how often the draft is right: padded ids get noise of their own."""
    drafter = draft_model(padded(LANGUAGE, size), vocab_size=size)
    run = Run(decoder_of(LANGUAGE, drafter, 4))
    request = Request((1, 2), SAMPLED, 60)
    sequence = run.add(request)
    run.finish()
    assert sequence.tokens[2:] == plain(LANGUAGE, request)[0]
    assert sequence.stats.acceptance == 1.0


def test_a_padding_id_is_never_sent_to_the_target() -> None:
    """A draft model that says nothing else gets plain decoding."""

    def padding(_tokens: tuple[int, ...]) -> object:
        return sure_of(VOCAB + 1, VOCAB + 20)

    rule: Rule = padding  # type: ignore[assignment]
    run = Run(decoder_of(LANGUAGE, draft_model(rule, vocab_size=VOCAB + 20), 4))
    request = Request((1, 2), max_tokens=20)
    sequence = run.add(request)
    run.finish()
    assert sequence.tokens[2:] == plain(LANGUAGE, request)[0]
    assert sequence.stats.drafted == 0


def test_a_token_that_the_draft_model_lacks_does_not_break_it() -> None:
    small = draft_model(ngrams(4, 1), vocab_size=4)
    run = Run(decoder_of(LANGUAGE, small, 4))
    request = Request((1, 2, 3), max_tokens=40)
    sequence = run.add(request)
    run.finish()
    assert max(sequence.tokens) >= 4
    assert sequence.tokens[3:] == plain(LANGUAGE, request)[0]
