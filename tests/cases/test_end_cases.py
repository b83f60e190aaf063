"""Kinds of reports: the answer goes on after its end, ends too early, or its numbers do not fit it."""

from __future__ import annotations

import pytest

from decoding import Run, answer, decoder_of, plain
from pilotfish.engines.scripted import answers, ngrams
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import MAKERS, VOCAB, Fake, Request, draft_model

SCRIPT = answers({(5,): [1, 2, 3, 4, 6, 7, 0]}, VOCAB)


def told(request: Request, name: str = "itself", length: int = 4) -> tuple[Sequence, list[int]]:
    run = Run(decoder_of(SCRIPT, MAKERS[name](SCRIPT), length))
    sequence = run.add(request)
    run.finish()
    return sequence, sequence.tokens[len(request.prompt) :]


@pytest.mark.parametrize("end", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("length", [1, 2, 4, 16])
def test_any_token_declared_as_end_of_text_ends_the_answer_where_it_comes(end: int, length: int) -> None:
    sequence, text = told(Request((5,), ends=frozenset({end})), length=length)
    full = [1, 2, 3, 4, 6, 7]
    assert text == full[: full.index(end) + 1]
    assert sequence.finish_reason == "stop"
    assert sequence.stats.tokens == len(text)
    assert sequence.stats.accepted == sequence.stats.drafted


@pytest.mark.parametrize("length", [1, 3, 8])
def test_every_budget_up_to_beyond_the_draft_length_is_exact(length: int) -> None:
    for budget in range(1, length + 3):
        request = Request((1, 2), max_tokens=budget)
        for name in ("itself", "suffix", "always wrong"):
            rule = ngrams(VOCAB, 2, seed=3)
            got, reason = answer(decoder_of(rule, MAKERS[name](rule), length), request)
            assert len(got) == budget
            assert reason == "length"
            assert got == plain(rule, request)[0]


@pytest.mark.parametrize("ends", [frozenset[int](), frozenset({0}), frozenset({0, 9})])
def test_a_draft_full_of_end_tokens_ends_nothing(ends: frozenset[int]) -> None:
    sequence, text = told(Request((5,), max_tokens=9, ends=ends), "always end")
    assert text == ([1, 2, 3, 4, 6, 7, 0] if ends else [1, 2, 3, 4, 6, 7, 0, 0, 0])
    assert sequence.stats.accepted == (1 if ends else 2)


def test_end_of_text_inside_the_prompt_ends_nothing() -> None:
    rule = answers({(0, 5, 0): [1, 2, 3]}, VOCAB)
    request = Request((0, 5, 0), max_tokens=10, ends=frozenset({0}))
    for name in MAKERS:
        assert answer(decoder_of(rule, MAKERS[name](rule), 4), request) == ([1, 2, 3, 0], "stop")


def test_a_model_with_no_end_of_text_goes_on_to_its_budget() -> None:
    sequence, text = told(Request((5,), max_tokens=12))
    assert text == [1, 2, 3, 4, 6, 7, 0, 0, 0, 0, 0, 0]
    assert sequence.finish_reason == "length"


def test_the_first_of_several_ends_counts() -> None:
    _, text = told(Request((5,), ends=frozenset({7, 4, 6})))
    assert text == [1, 2, 3, 4]


@pytest.mark.parametrize("stop", [(1, 2), (2, 3), (4, 6), (6, 7)])
@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_a_stop_over_two_tokens_is_found_wherever_drafts_begin_and_end(
    stop: tuple[int, int], length: int
) -> None:
    sequence, text = told(Request((5,), stop=stop), length=length)
    full = [1, 2, 3, 4, 6, 7]
    assert text == full[: full.index(stop[1]) + 1]
    assert sequence.finish_reason == "stop"


def test_stop_and_budget_at_the_same_token_is_a_stop() -> None:
    for name in ("itself", "suffix"):
        sequence, text = told(Request((5,), max_tokens=3, stop=(2, 3)), name)
        assert text == [1, 2, 3]
        assert sequence.finish_reason == "stop"


def test_what_lies_behind_an_end_in_the_draft_is_not_counted() -> None:
    drafter = Fake(lambda _tokens, limit: [2, 3, 0, 9, 9, 9, 9][:limit])
    run = Run(decoder_of(answers({(5,): [1, 2, 3]}, VOCAB), drafter, 7))
    sequence = run.add(Request((5,), ends=frozenset({0})))
    run.finish()
    assert sequence.tokens == [5, 1, 2, 3, 0]
    assert sequence.stats.drafted_at == sequence.stats.accepted_at == [1, 1, 1]


def test_a_first_token_that_ends_the_answer_costs_no_pass() -> None:
    rule = answers({}, VOCAB)
    run = Run(decoder_of(rule, draft_model(rule), 4))
    sequence = run.add(Request((5,), Sampling(), ends=frozenset({0})))
    assert sequence.finish_reason == "stop"
    run.finish()
    assert (sequence.stats.tokens, sequence.stats.passes, sequence.stats.drafted) == (1, 0, 0)
