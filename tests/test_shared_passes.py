"""What sequences that share passes do to each other: nothing, also when one fails or still reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding import Run, assert_nothing_is_left, decoder_of, draft_engine, plain, scripted
from pilotfish.control import FixedLength
from pilotfish.engines.scripted import Rule, ngrams
from pilotfish.errors import EngineError, NumericsError
from pilotfish.prompt import Part, begin, most_to_read
from strategies import MAKERS, VOCAB, Recorder, Request, draft_model, good_drafter_names, requests, rules

LANGUAGE = ngrams(VOCAB, 2, seed=3)


@given(rules, st.lists(requests, min_size=2, max_size=4), good_drafter_names, st.integers(0, 8), st.data())
def test_an_error_of_one_sequence_costs_the_others_nothing(
    rule: Rule, batch: list[Request], name: str, length: int, data: st.DataObject
) -> None:
    """Its own tokens up to the error stand, whatever was drafted; the others get theirs in the same step."""
    raising = data.draw(st.integers(0, len(batch) - 1), label="whose stop raises")
    at = data.draw(st.integers(1, 12), label="at which token")
    heard: list[int] = []

    def stop(token: int) -> bool:
        heard.append(token)
        if len(heard) > at:
            raise RuntimeError("no stop")
        return False

    decoder = decoder_of(rule, MAKERS[name](rule), length)
    sequences = [request.sequence() for request in batch]
    sequences[raising].stop = stop
    for s in sequences:
        decoder.prefill(s)
    while running := [s for s in sequences if s.runs]:
        before = [len(s.tokens) for s in running]
        decoder.step(running)
        assert all(len(s.tokens) > b or s.error for s, b in zip(running, before, strict=True))
    for i, (request, s) in enumerate(zip(batch, sequences, strict=True)):
        told, reason = plain(rule, Request(**{**vars(request), "stop": None}) if i == raising else request)
        emitted = s.tokens[len(request.prompt) :]
        if s.error is None:
            assert (emitted, s.finish_reason) == (told, reason)
        else:
            assert i == raising
            assert emitted == [t for t in told if t not in s.ends][:at]
            assert str(s.error) == "no stop"
        decoder.close(s)
    assert_nothing_is_left(decoder)


@given(rules, requests, requests, good_drafter_names, st.integers(0, 8), st.lists(st.integers(1, 9)))
def test_a_prompt_read_beside_an_answer_changes_neither(
    rule: Rule, request: Request, other: Request, name: str, length: int, sizes: list[int]
) -> None:
    """Whatever the sizes of the parts it is read in."""
    decoder = decoder_of(rule, MAKERS[name](rule), length)
    first, second = request.sequence(), other.sequence()
    decoder.prefill(first)
    second.fit(decoder.engine.context)
    begin(decoder.engine, second)
    while second.runs and not second.stats.tokens:
        part = Part([second], min(sizes.pop() if sizes else 3, second.unread))
        *told, begun = decoder.step([first] if first.runs else [], [part])
        assert all(told)
        assert bool(begun) == bool(second.stats.tokens)
    while running := [s for s in (first, second) if s.runs]:
        decoder.step(running)
    for asked, s in ((request, first), (other, second)):
        assert (s.tokens[len(asked.prompt) :], s.finish_reason) == plain(rule, asked)
        decoder.close(s)
    assert_nothing_is_left(decoder)


@given(st.integers(0, 3), st.integers(1, 9))
@settings(max_examples=20)
def test_a_text_whose_cache_was_lost_is_read_again_and_goes_on(steps: int, size: int) -> None:
    request = Request((1, 2, 3), max_tokens=20)
    decoder = decoder_of(LANGUAGE, draft_model(LANGUAGE), 3)
    s = request.sequence()
    decoder.prefill(s)
    for _ in range(steps):
        decoder.step([s])
    decoder.close(s)
    begin(decoder.engine, s)
    before, before_tokens = s.stats.passes, s.stats.tokens
    while s.unread > 1:
        decoder.step((), [Part([s], min(size, s.unread))])
        assert s.stats.passes == before + (s.evaluated > 2 + before_tokens)
    while s.runs:
        decoder.step([s])
    assert s.tokens[3:] == plain(LANGUAGE, request)[0]
    assert s.stats.tokens == 20


def test_drafts_have_at_most_the_length_that_a_step_is_given() -> None:
    recorder = Recorder(draft_model(LANGUAGE))
    decoder = decoder_of(LANGUAGE, recorder, 8)
    s = Request((1, 2, 3)).sequence()
    decoder.prefill(s)
    for longest in (3, 0, 5):
        rows = scripted(decoder).rows
        decoder.step([s], longest=longest)
        assert scripted(decoder).rows == rows + 1 + longest
    assert [len(draft) for draft in recorder.proposed.values()] == [3, 5]


@given(
    rules,
    st.lists(requests, min_size=1, max_size=3),
    good_drafter_names,
    st.lists(st.none() | st.integers(0, 3), min_size=3, max_size=3),
)
def test_no_draft_is_longer_than_its_sequence_allows_and_answers_stay_the_same(
    rule: Rule, batch: list[Request], name: str, limits: list[int | None]
) -> None:
    """Each sequence has its own limit, or none."""
    recorder = Recorder(MAKERS[name](rule))
    decoder = decoder_of(rule, recorder, 6)
    run = Run(decoder)
    for request, limit in zip(batch, limits, strict=False):
        run.add(request).draft_limit = limit
    run.finish()
    for request, s in zip(batch, run.sequences, strict=True):
        assert (s.tokens[len(request.prompt) :], s.finish_reason) == plain(rule, request)
        longest = max(
            (len(draft) for (key, _), draft in recorder.proposed.items() if key == s.key), default=0
        )
        assert longest <= (6 if s.draft_limit is None else s.draft_limit)


@pytest.mark.parametrize(("limit", "reads"), [(0, False), (1, True)])
def test_a_draft_model_does_not_read_for_a_sequence_that_wants_no_drafts(limit: int, *, reads: bool) -> None:
    decoder = decoder_of(LANGUAGE, draft_model(LANGUAGE), 4)
    run = Run(decoder)
    run.add(Request((1, 2) * 20, max_tokens=9)).draft_limit = limit
    run.finish()
    engine = draft_engine(decoder)
    assert engine is not None
    assert bool(engine.tokens) == reads


def test_control_learns_nothing_from_a_pass_that_reads_a_prompt() -> None:
    timed: list[int] = []

    class Listening(FixedLength):
        def timed(self, step: object) -> None:
            del step
            timed.append(1)

    decoder = decoder_of(LANGUAGE)
    decoder.control = Listening(4)
    first, second = Request((1, 2)).sequence(), Request((3,) * 200).sequence()
    decoder.prefill(first)
    second.fit(decoder.engine.context)
    begin(decoder.engine, second)
    assert most_to_read(second) == 128
    decoder.step([first], [Part([second], 128)])
    assert not timed
    decoder.step([first])
    assert timed == [1]


def test_the_time_of_a_shared_pass_counts_in_equal_parts() -> None:
    ticks = iter(range(100))
    decoder = decoder_of(LANGUAGE)
    first, second = Request((1, 2)).sequence(), Request((3,) * 9).sequence()
    decoder.prefill(first)
    second.fit(decoder.engine.context)
    begin(decoder.engine, second)
    decoder.clock = lambda: float(next(ticks))
    decoder.step([first], [Part([second], 9)])
    assert (first.stats.decode_s, second.stats.prompt_s, second.stats.decode_s) == (2.5, 2.5, 0.0)


@given(rules, requests, st.integers(0, 3))
def test_a_pass_that_fails_beside_a_prompt_leaves_both_as_they_were(
    rule: Rule, request: Request, fails_at: int
) -> None:
    decoder = decoder_of(rule, draft_model(rule), 4)
    engine = scripted(decoder)
    first, second = request.sequence(), Request((1, 2, 3, 4, 5)).sequence()
    decoder.prefill(first)
    second.fit(engine.context)
    begin(engine, second)
    engine.failures[engine.passes + fails_at] = EngineError("out of order")
    failed = 0
    while second.evaluated < 4:
        running = [first] if first.runs else []
        try:
            decoder.step(running, [Part([second], 1)])
        except EngineError:
            failed += 1
            assert engine.length(second.handle) == second.evaluated
            assert engine.length(first.handle) == first.evaluated == len(first.tokens) - 1
    assert failed == 1


def test_logits_that_are_not_a_number_end_the_answer_that_they_belong_to() -> None:
    decoder = decoder_of(LANGUAGE, draft_model(LANGUAGE), 4)
    run = Run(decoder)
    short, long = Request((1, 2), max_tokens=12), Request((1, 2, 3, 4, 5, 6, 7, 8), max_tokens=12)
    run.add(short)
    run.add(long)
    scripted(decoder).nan_at.add(16)  # the short one never gets there
    with pytest.raises(NumericsError):
        run.finish()
    assert run.sequences[1].tokens[8:] == plain(LANGUAGE, long)[0][:8]
    while run.running:
        decoder.step(run.running)
    assert run.sequences[0].tokens[2:] == plain(LANGUAGE, short)[0]
