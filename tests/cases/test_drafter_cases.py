"""Kinds of reports: a drafter that fails, is never right, or matches the wrong thing."""

from __future__ import annotations

import logging

import pytest

from decoding import Run, decoder_of, plain
from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import ScriptedEngine, copying, mistaken, ngrams, uniform
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import HOSTILE, MAKERS, VOCAB, Raising, Request, draft_model

LANGUAGE = ngrams(VOCAB, 2, seed=3)


def test_an_exception_in_a_drafter_reaches_the_log_and_the_request_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = Request((1, 2), max_tokens=10)
    run = Run(decoder_of(LANGUAGE, Raising(), 4))
    with caplog.at_level(logging.ERROR):
        sequence = run.add(request)
        run.finish()
    assert sequence.tokens[2:] == plain(LANGUAGE, request)[0]
    assert "RuntimeError: no guess" in caplog.text


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_no_drafter_costs_more_passes_than_plain_decoding(name: str) -> None:
    run = Run(decoder_of(LANGUAGE, MAKERS[name](LANGUAGE), 8))
    sequence = run.add(Request((1, 2), Sampling(0.8, seed=1), 40))
    run.finish()
    assert sequence.stats.passes <= 39


def test_a_drafter_that_is_never_right_costs_no_more_passes() -> None:
    run = Run(decoder_of(LANGUAGE, MAKERS["always wrong"](LANGUAGE), 4))
    sequence = run.add(Request((1, 2), max_tokens=40))
    run.finish()
    assert (sequence.stats.passes, sequence.stats.accepted) == (39, 0)
    assert sequence.stats.tokens_per_pass == 1.0


def test_text_that_never_repeats_is_decoded_plainly_by_the_suffix_drafter() -> None:
    vocab_size = 4000
    engine = ScriptedEngine(uniform(vocab_size), vocab_size)
    sequence = Sequence([1], Sampling(1.0, seed=1), 40)
    list(Decoder(engine, SuffixDrafter(), FixedLength(8)).run(sequence))
    assert (sequence.stats.passes, sequence.stats.drafted) == (39, 0)


def test_the_same_token_over_and_over_is_drafted_at_full_length() -> None:
    run = Run(decoder_of(copying(VOCAB, 1), SuffixDrafter(), 8))
    sequence = run.add(Request((7,) * 30, max_tokens=91))
    run.finish()
    assert sequence.stats.accepted == sequence.stats.drafted == 80
    assert sequence.stats.passes == 10


def test_a_prompt_that_is_copied_is_drafted() -> None:
    """Editing and summarising: the answer repeats a part of the prompt."""
    rule = copying(VOCAB, 50)
    prompt = tuple((i * i + i // 7) % VOCAB for i in range(50))
    run = Run(decoder_of(rule, SuffixDrafter(), 8))
    sequence = run.add(Request(prompt, max_tokens=50))
    run.finish()
    assert sequence.stats.tokens_per_pass > 3


def test_accepted_is_never_more_than_drafted_and_tokens_are_what_was_emitted() -> None:
    for name in MAKERS:
        run = Run(decoder_of(LANGUAGE, MAKERS[name](LANGUAGE), 6))
        for seed in range(2):
            run.add(Request((1, 2), Sampling(0.8, seed=seed), 20))
        run.finish()  # asserts it after every step
        for sequence in run.sequences:
            assert sequence.stats.tokens == len(sequence.tokens) - 2 == 20


def test_requests_of_all_kinds_mix_without_leaking() -> None:
    """Greedy, sampled, long and short, with ends and stops, one draft model for all."""
    batch = [
        Request((1,), max_tokens=30),
        Request((1,), Sampling(0.8, seed=1), 30),
        Request((1,), Sampling(0.8, seed=1, choice=1), 30),
        Request((2,) * 200, Sampling(1.5, top_k=4, seed=2), 3),
        Request((1, 2, 3), Sampling(1.0, min_p=0.1, seed=2), 25, ends=frozenset({4})),
        Request((1, 2, 3), max_tokens=25, stop=(3, 1)),
    ]
    run = Run(decoder_of(LANGUAGE, draft_model(mistaken(LANGUAGE, 0.2)), 5))
    got = [run.add(request) for request in batch]
    run.finish()
    assert [s.tokens[len(r.prompt) :] for s, r in zip(got, batch, strict=True)] == [
        plain(LANGUAGE, request)[0] for request in batch
    ]
