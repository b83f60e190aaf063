"""The algorithm: exact whatever the drafter, with caches and counters as promised after every step."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Generator, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding import (
    Run,
    answer,
    assert_caches_hold,
    assert_nothing_is_left,
    decoder_of,
    draft_engine,
    plain,
    replayed,
    scripted,
)
from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.engines.base import Rows
from pilotfish.engines.scripted import Rule, ScriptedEngine, answers, mistaken, ngrams
from pilotfish.errors import EngineError, NumericsError, PromptTooLong, UsageError
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from strategies import (
    MAKERS,
    PADDED,
    VOCAB,
    Fake,
    Pair,
    Raising,
    Recorder,
    Request,
    countable_drafter_names,
    draft_lengths,
    draft_model,
    drafter_names,
    failures,
    good_drafter_names,
    padded,
    requests,
    rules,
)

LANGUAGE = ngrams(VOCAB, 2, seed=3)
SAMPLED = Sampling(temperature=0.8, seed=7)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Hostile drafters fill the log; the test of the log itself turns it on again."""
    log = logging.getLogger("pilotfish.drafters.guard")
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(logging.NOTSET)


# The text


@given(rules, requests, drafter_names, draft_lengths, st.integers(13, 40))
def test_the_text_does_not_depend_on_the_drafter(
    rule: Rule, request: Request, name: str, length: int, context: int
) -> None:
    """Any drafter, hostile ones included, any length, greedy or sampled, near the context's end or not."""
    expected = plain(rule, request, context)
    assert answer(decoder_of(rule, MAKERS[name](rule), length, context), request) == expected


@given(rules, st.lists(requests, min_size=2, max_size=4), drafter_names, draft_lengths, st.data())
@settings(max_examples=60)
def test_sequences_stepped_together_equal_each_alone(
    rule: Rule, batch: list[Request], name: str, length: int, data: st.DataObject
) -> None:
    """Requests may join while others run."""
    run = Run(decoder_of(rule, MAKERS[name](rule), length))
    for request in batch:
        run.add(request)
        for _ in range(data.draw(st.integers(0, 2), label="steps before the next joins")):
            if run.running:
                run.step()
    run.finish()
    for request, sequence in zip(batch, run.sequences, strict=True):
        emitted = sequence.tokens[len(request.prompt) :]
        assert (emitted, sequence.finish_reason) == plain(rule, request)


@given(rules, requests, drafter_names, st.integers(1, 8), st.integers(0, 2))
def test_a_budget_below_or_just_above_the_draft_length_is_kept(
    rule: Rule, request: Request, name: str, length: int, below: int
) -> None:
    """max_tokens 1..k+2."""
    budget = max(1, length + 2 - below)
    small = Request(request.prompt, request.sampling, budget, request.ends, request.stop)
    told, reason = answer(decoder_of(rule, MAKERS[name](rule), length), small)
    assert (told, reason) == plain(rule, small)
    assert len(told) <= budget


def test_an_end_token_inside_an_accepted_run_ends_the_answer_there() -> None:
    rule = answers({(5,): [1, 2, 3, 0, 4, 4, 4]}, VOCAB)
    run = Run(decoder_of(rule, draft_model(rule), 6))
    sequence = run.add(Request((5,), ends=frozenset({0})))
    run.finish()
    assert sequence.tokens == [5, 1, 2, 3, 0]
    assert sequence.finish_reason == "stop"
    assert (sequence.stats.drafted, sequence.stats.accepted) == (3, 3)


def test_a_stop_inside_an_accepted_run_ends_the_answer_there() -> None:
    rule = answers({(5,): [1, 2, 3, 4, 4, 4, 4]}, VOCAB)
    run = Run(decoder_of(rule, draft_model(rule), 6))
    sequence = run.add(Request((5,), stop=(2, 3)))
    run.finish()
    assert sequence.tokens == [5, 1, 2, 3]
    assert (sequence.stats.drafted, sequence.stats.accepted) == (2, 2)


def test_the_stop_predicate_never_hears_of_an_end_token() -> None:
    rule = answers({(5,): [1, 2, 0]}, VOCAB)
    sequence = Request((5,), ends=frozenset({0}), stop=(9, 9)).sequence()
    list(decoder_of(rule, draft_model(rule)).run(sequence))
    assert isinstance(sequence.stop, Pair)
    assert sequence.stop.seen == [1, 2]


def test_each_token_says_who_drafted_it() -> None:
    rule = answers({(5,): [1, 2, 3, 4, 6]}, VOCAB)
    drafter = Fake(lambda tokens, limit: [tokens[-1] + 1] * min(1, limit), "next")
    tokens = list(decoder_of(rule, drafter).run(Request((5,), max_tokens=5).sequence()))
    assert [t.drafted_by for t in tokens] == [None, "next", None, "next", None]
    assert [t.finish_reason for t in tokens] == [None] * 4 + ["length"]


@given(rules, requests, drafter_names, st.integers(1, 8))
@settings(max_examples=50)
def test_every_token_is_chosen_from_the_row_that_plain_decoding_sees(
    rule: Rule, request: Request, name: str, length: int
) -> None:
    def rows_seen(decoder: Decoder) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []

        def look(_sequence: Sequence, position: int, rows: Rows, row: int) -> None:
            seen.append((position, rows.digest(row)))

        decoder.on_row = look
        answer(decoder, request)
        return seen

    expected = rows_seen(decoder_of(rule))
    assert rows_seen(decoder_of(rule, MAKERS[name](rule), length)) == expected
    assert [position for position, _ in expected] == [len(request.prompt) + i for i in range(len(expected))]


# Counters


@given(rules, st.lists(requests, min_size=1, max_size=3), countable_drafter_names, draft_lengths)
def test_counters_equal_a_replay_by_hand(rule: Rule, batch: list[Request], name: str, length: int) -> None:
    """The plain answer and the drafter's proposals say exactly what must have been counted."""
    recorder = Recorder(MAKERS[name](rule))
    run = Run(decoder_of(rule, recorder, length))
    for request in batch:
        run.add(request)
    run.finish()
    for request, sequence in zip(batch, run.sequences, strict=True):
        expected = replayed(sequence, len(request.prompt), recorder, length)
        got = sequence.stats
        assert (got.tokens, got.prompt_tokens, got.passes) == (
            expected.tokens,
            expected.prompt_tokens,
            expected.passes,
        )
        assert (got.drafted, got.accepted) == (expected.drafted, expected.accepted)
        assert (got.drafted_at, got.accepted_at) == (expected.drafted_at, expected.accepted_at)


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
def test_the_target_as_its_own_draft_model_is_always_right(sampling: Sampling) -> None:
    """All of 500 tokens, with no decay."""
    run = Run(decoder_of(LANGUAGE, draft_model(LANGUAGE), 7))
    stats = run.add(Request((1, 2, 3), sampling, 500)).stats
    run.finish()
    assert stats.tokens == 500
    assert stats.accepted == stats.drafted > 400
    assert stats.passes == 63  # 499 tokens after the first, 8 a pass


def test_a_fully_accepted_round_costs_the_draft_model_no_extra_pass() -> None:
    """The token its cache lacks is read in the pass that reads the pending one."""
    decoder = decoder_of(LANGUAGE, draft_model(LANGUAGE), 4)
    drafts = draft_engine(decoder)
    assert drafts is not None
    run = Run(decoder)
    run.add(Request((1, 2, 3), max_tokens=41))
    for round_ in range(1, 9):
        run.step()
        assert drafts.passes == 4 * round_
        assert drafts.tokens == 3 + 5 * round_ - 1  # all but the last drafted token and the bonus


def test_plain_decoding_asks_no_drafter() -> None:
    recorder = Recorder(Raising())
    answer(decoder_of(LANGUAGE, recorder, 0), Request((1,)))
    assert not recorder.proposed


@given(requests, st.integers(1, 3))
@settings(max_examples=20)
def test_the_parts_of_the_time_add_up_to_the_decode_time(request: Request, share: int) -> None:
    """Every call of the clock is a second later; a step that several sequences share counts in parts."""
    ticks = itertools.count()
    decoder = decoder_of(LANGUAGE, draft_model(LANGUAGE), 4)
    decoder.clock = lambda: float(next(ticks))
    run = Run(decoder)
    batch = [run.add(request) for _ in range(share)]
    run.finish()
    for sequence in batch:
        stats = sequence.stats
        assert stats.prompt_s == 5.0
        assert stats.decode_s == pytest.approx(stats.passes * 5 / share)
        assert stats.parts_s == pytest.approx(
            dict.fromkeys(["draft", "pass", "sample", "control", "other"], stats.passes / share)
        )
        assert sum(stats.parts_s.values()) == pytest.approx(stats.decode_s)


# Failures


@given(
    rules,
    st.lists(requests, min_size=1, max_size=3),
    good_drafter_names,
    draft_lengths,
    st.tuples(st.integers(0, 6), failures),
)
@settings(max_examples=60)
def test_after_a_failed_pass_the_caches_hold_and_the_answer_goes_on(
    rule: Rule, batch: list[Request], name: str, length: int, failure: tuple[int, BaseException]
) -> None:
    fails_at, error = failure
    run = Run(decoder_of(rule, MAKERS[name](rule), length))
    for request in batch:
        run.add(request)
    engine = scripted(run.decoder)
    engine.failures[engine.passes + fails_at] = error
    while run.running:
        try:
            run.step()
        except (EngineError, KeyboardInterrupt) as raised:
            assert raised is error  # noqa: PT017 - either kind, and once
            assert_caches_hold(run.decoder, run.sequences)
    run.finish()
    for request, sequence in zip(batch, run.sequences, strict=True):
        assert sequence.tokens[len(request.prompt) :] == plain(rule, request)[0]


@given(
    rules,
    st.lists(requests, min_size=1, max_size=3),
    st.sampled_from(["itself", "poor model", "other model", "auto"]),
    draft_lengths,
    st.tuples(st.sets(st.integers(0, 12), max_size=4), failures),
)
@settings(max_examples=60)
def test_a_failing_draft_model_costs_speed_only(
    rule: Rule, batch: list[Request], name: str, length: int, failure: tuple[set[int], BaseException]
) -> None:
    """An error is the guard's business; Ctrl-C comes through, and the caches hold all the same."""
    fails_at, error = failure
    run = Run(decoder_of(rule, MAKERS[name](rule), length))
    drafts = draft_engine(run.decoder)
    assert drafts is not None
    drafts.failures.update(dict.fromkeys(fails_at, error))
    for request in batch:
        run.add(request)
    while run.running:
        try:
            run.step()
        except KeyboardInterrupt:
            assert isinstance(error, KeyboardInterrupt)
            assert_caches_hold(run.decoder, run.sequences)
    run.finish()
    for request, sequence in zip(batch, run.sequences, strict=True):
        assert sequence.tokens[len(request.prompt) :] == plain(rule, request)[0]


@given(rules, requests, good_drafter_names, draft_lengths, st.integers(0, 12))
def test_logits_that_are_not_a_number_are_an_error_at_the_same_token(
    rule: Rule, request: Request, name: str, length: int, after: int
) -> None:
    """Not behind the end of the answer, though, where a draft may have been evaluated."""
    told, _ = plain(rule, request)
    decoder = decoder_of(rule, MAKERS[name](rule), length)
    scripted(decoder).nan_at.add(len(request.prompt) + after)
    run = Run(decoder)
    if after >= len(told):
        run.add(request)
        run.finish()
        assert run.sequences[0].tokens[len(request.prompt) :] == told
        return
    with pytest.raises(NumericsError):
        _answered(run, request)
    sequence = run.sequences[0]
    emitted = sequence.tokens[len(request.prompt) :]
    assert emitted == told[: len(emitted)]
    if after > 0:
        assert_caches_hold(decoder, [sequence])
    decoder.close(sequence)
    assert_nothing_is_left(decoder)


def _answered(run: Run, request: Request) -> None:
    run.add(request)
    run.finish()


def test_a_draft_model_that_gives_no_numbers_costs_speed_only() -> None:
    decoder = decoder_of(LANGUAGE, draft_model(LANGUAGE), 4)
    drafts = draft_engine(decoder)
    assert drafts is not None
    drafts.nan_at.update(range(6, 20))
    request = Request((1, 2, 3), SAMPLED, 30)
    assert answer(decoder, request) == plain(LANGUAGE, request)


@given(rules, requests, good_drafter_names, draft_lengths, st.integers(1, 12))
def test_an_answer_abandoned_midway_frees_both_caches(
    rule: Rule, request: Request, name: str, length: int, taken: int
) -> None:
    decoder = decoder_of(rule, MAKERS[name](rule), length)
    stream = decoder.run(request.sequence())
    some = [token.id for token in itertools.islice(stream, taken)]
    assert isinstance(stream, Generator)
    stream.close()
    assert_nothing_is_left(decoder)
    told, reason = plain(rule, request)
    assert some == told[:taken]
    assert answer(decoder, request) == (told, reason)


def test_a_failure_while_the_prompt_is_read_frees_the_sequence() -> None:
    decoder = decoder_of(LANGUAGE)
    scripted(decoder).failures[1] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        list(decoder.run(Request((1,) * 300).sequence()))
    assert scripted(decoder).passes == 1
    assert_nothing_is_left(decoder)


def test_a_drafter_that_raises_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="pilotfish.drafters.guard"):
        answer(decoder_of(LANGUAGE, Raising()), Request((1,), max_tokens=3))
    assert "drafter raising failed to propose" in caplog.text
    assert "RuntimeError: no guess" in caplog.text


def test_closing_twice_does_nothing() -> None:
    decoder = decoder_of(LANGUAGE)
    sequence = Request((1,)).sequence()
    decoder.prefill(sequence)
    decoder.close(sequence)
    decoder.close(sequence)
    assert_nothing_is_left(decoder)


# Prompt, context, vocabulary


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (Request(()), UsageError, "the prompt is empty"),
        (Request((1,), max_tokens=0), UsageError, "max_tokens is 0"),
        (Request((1,) * 20), PromptTooLong, "the prompt has 20 tokens and the context holds 20"),
    ],
)
def test_a_request_that_can_not_be_answered_is_refused(
    request_: Request, error: type[Exception], words: str
) -> None:
    decoder = decoder_of(LANGUAGE, context=20)
    with pytest.raises(error, match=words):
        list(decoder.run(request_.sequence()))
    assert scripted(decoder).passes == 0
    assert_nothing_is_left(decoder)


@pytest.mark.parametrize("length", [1, 127, 128, 129, 300])
def test_a_prompt_is_read_in_slices_and_one_row_is_wanted(length: int) -> None:
    decoder = decoder_of(LANGUAGE)
    sequence = Request((1,) * length, max_tokens=1).sequence()
    list(decoder.run(sequence))
    engine = scripted(decoder)
    assert (engine.passes, engine.rows, engine.tokens) == (-(-length // 128), 1, length)
    assert sequence.stats.prompt_tokens == length


def test_near_the_end_of_the_context_drafts_shrink_and_the_answer_ends_by_length() -> None:
    recorder = Recorder(draft_model(LANGUAGE))
    run = Run(decoder_of(LANGUAGE, recorder, 4, context=20))
    sequence = run.add(Request((1, 2, 3), max_tokens=1000))
    run.finish()
    assert len(sequence.tokens) == 20
    assert sequence.finish_reason == "length"
    assert [len(d) for d in recorder.proposed.values()] == [4, 4, 4]
    assert sequence.stats.passes == 4  # 15 tokens by drafts of 4, the last one plainly


def test_a_draft_is_never_longer_than_the_rest_of_the_budget() -> None:
    recorder = Recorder(draft_model(LANGUAGE))
    answer(decoder_of(LANGUAGE, recorder, 8), Request((1,), max_tokens=7))
    assert [len(d) for d in recorder.proposed.values()] == [5]


def test_a_draft_is_cut_before_the_first_padding_id() -> None:
    """Though the target itself would have said it."""
    rule = answers({(5,): [1, 2, VOCAB, 3, 0]}, VOCAB + 1)
    engine = ScriptedEngine(padded(rule), PADDED)
    drafter = draft_model(rule, vocab_size=VOCAB + 1)
    sequence = Request((5,), max_tokens=5).sequence()
    tokens = list(Decoder(engine, drafter, FixedLength(4), token_count=VOCAB).run(sequence))
    assert [t.id for t in tokens] == [1, 2, VOCAB, 3, 0]
    assert [t.drafted_by for t in tokens] == [None, "model", None, "model", None]


def test_a_wrong_guess_is_replaced_by_the_targets_own_token() -> None:
    rule = answers({(5,): [1, 2, 3, 4]}, VOCAB)
    drafter = Fake(lambda tokens, limit: [tokens[-1] + 1, 9, 9][:limit])
    run = Run(decoder_of(rule, drafter, 3))
    sequence = run.add(Request((5,), max_tokens=4))
    run.finish()
    assert sequence.tokens == [5, 1, 2, 3, 4]
    assert sequence.stats.drafted_at == [1, 1]
    assert sequence.stats.accepted_at == [1, 0]


def test_a_poor_draft_model_is_right_now_and_then() -> None:
    """The other tests would pass with a draft model that is never asked."""
    run = Run(decoder_of(LANGUAGE, draft_model(mistaken(LANGUAGE, 0.3)), 4))
    stats = run.add(Request((1, 2, 3), SAMPLED, 200)).stats
    run.finish()
    assert 0.3 < stats.acceptance < 0.9
    assert 1.5 < stats.tokens_per_pass < 4.5
