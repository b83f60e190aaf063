"""Kinds of reports: after an abort, a full round or a full context the caches hold the wrong tokens."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import pytest

from decoding import Run, answer, assert_caches_hold, decoder_of, draft_engine, plain, scripted
from pilotfish.decode import Decoder
from pilotfish.engines.base import Chunk
from pilotfish.engines.scripted import ScriptedEngine, ngrams
from pilotfish.errors import NumericsError, PromptTooLong
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import MAKERS, VOCAB, Fake, Request, draft_model

LANGUAGE = ngrams(VOCAB, 2, seed=3)
REQUEST = Request((1, 2, 3), Sampling(temperature=0.8, seed=5), 40)


@pytest.mark.parametrize(
    ("name", "in_the_draft_model"),
    [("suffix", False), *itertools.product(["itself", "poor model", "auto"], [False, True])],
)
def test_an_answer_interrupted_midway_goes_on_as_if_nothing_had_been(
    name: str, in_the_draft_model: bool
) -> None:
    run = Run(decoder_of(LANGUAGE, MAKERS[name](LANGUAGE), 4))
    sequence = run.add(REQUEST)
    run.step()
    engine = draft_engine(run.decoder) if in_the_draft_model else scripted(run.decoder)
    assert engine is not None
    engine.failures[engine.passes] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    assert_caches_hold(run.decoder, [sequence])
    run.finish()
    assert sequence.tokens[3:] == plain(LANGUAGE, REQUEST)[0]


def test_an_abandoned_answer_leaves_the_next_one_alone() -> None:
    decoder = decoder_of(LANGUAGE, draft_model(LANGUAGE), 4)
    stream = decoder.run(REQUEST.sequence())
    next(stream)
    next(stream)
    assert isinstance(stream, Generator)
    stream.close()
    assert answer(decoder, REQUEST) == plain(LANGUAGE, REQUEST)


def test_rounds_that_accept_everything_stay_right_for_long() -> None:
    """Each leaves the draft model one token behind."""
    run = Run(decoder_of(LANGUAGE, draft_model(LANGUAGE), 3))
    sequence = run.add(Request((1, 2, 3), max_tokens=200))
    run.finish()
    assert sequence.stats.accepted == sequence.stats.drafted > 100


def test_an_empty_draft_is_no_draft() -> None:
    """Drafts of 0 and 3 tokens in turn."""
    drafter = Fake(lambda tokens, limit: [tokens[-1]] * (3 if len(tokens) % 2 else 0 * limit))
    run = Run(decoder_of(LANGUAGE, drafter, 3))
    sequence = run.add(REQUEST)
    run.finish()
    assert sequence.tokens[3:] == plain(LANGUAGE, REQUEST)[0]


@pytest.mark.parametrize("name", sorted(MAKERS))
@pytest.mark.parametrize("room", [1, 2, 3, 5, 6, 9])
def test_a_context_nearly_full_is_used_to_its_last_token(name: str, room: int) -> None:
    """Drafts shrink to the room left, then plain decoding, then finish_reason length."""
    decoder = decoder_of(LANGUAGE, MAKERS[name](LANGUAGE), 4, context=10 + room)
    run = Run(decoder)
    sequence = run.add(Request(tuple(i % 5 for i in range(10)), max_tokens=1000))
    run.finish()
    assert len(sequence.tokens) == 10 + room
    assert sequence.finish_reason == "length"


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    with pytest.raises(PromptTooLong, match="10 tokens and the context holds 10"):
        answer(decoder_of(LANGUAGE, context=10), Request((1,) * 10))


def test_a_draft_model_with_a_smaller_context_falls_silent_and_the_answer_goes_on() -> None:
    run = Run(decoder_of(LANGUAGE, draft_model(LANGUAGE, context=16), 4))
    sequence = run.add(REQUEST)
    run.finish()
    assert sequence.tokens[3:] == plain(LANGUAGE, REQUEST)[0]
    assert 0 < sequence.stats.drafted < 20


def test_one_sequence_that_fails_does_not_spoil_its_neighbours() -> None:
    """Its logits are not a number; without it the others go on."""
    run = Run(decoder_of(LANGUAGE, draft_model(LANGUAGE), 4))
    short, long = run.add(Request((1,), max_tokens=20)), run.add(Request((1,) * 50, max_tokens=20))
    scripted(run.decoder).nan_at.add(55)
    with pytest.raises(NumericsError, match="position 55"):
        run.finish()
    assert_caches_hold(run.decoder, [short, long])
    run.decoder.close(long)
    run.sequences.remove(long)
    run.finish()
    assert short.tokens[1:] == plain(LANGUAGE, Request((1,), max_tokens=20))[0]


@pytest.mark.parametrize("warm", [1, 5, 11, 12, 40])
def test_a_follow_up_on_a_warm_prefix_equals_a_cold_start(warm: int) -> None:
    """The beginning of the prompt, or more than it, may be in the engine already."""
    engine = ScriptedEngine(ngrams(24, order=3, seed=2), vocab_size=24)
    prompt = [i % 24 for i in range(12)]
    cold = Sequence(list(prompt), Sampling(), 20)
    expected = [token.id for token in Decoder(engine).run(cold)]
    held = engine.open()
    engine.forward([Chunk(held, cold.tokens[:warm] if warm <= 12 else [*prompt, *[7] * (warm - 12)], 0)])
    read = engine.tokens
    sequence = Sequence(list(prompt), Sampling(), 20, handle=engine.fork(held))
    assert [token.id for token in Decoder(engine).run(sequence)] == expected
    assert engine.tokens - read == max(12 - warm, 1) + 19
    assert engine.length(held) == warm
