"""Who gets what: the short are not held up by the long, nobody starves, and limits hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding import scripted
from pilotfish.engines.scripted import ngrams
from pilotfish.errors import QueueFull
from pilotfish.sampling import Sampling
from serving.loads import Load, service
from strategies import VOCAB, Request, draft_model

LANGUAGE = ngrams(VOCAB, 2, seed=3)
LONG = tuple(i % 7 for i in range(4000))
SHORT = tuple(range(10)) * 10


def long_text(number: int) -> tuple[int, ...]:
    """Return a text of 4,000 tokens that begins like no other."""
    return (number % VOCAB, number // VOCAB, *LONG)[:4000]


def passes_to_first_token(load: Load, request: Request) -> int:
    ticket, start = load.submit(request), load.scheduler.passes
    while not load.told(ticket):
        load.step()
    return load.scheduler.passes - start


@pytest.mark.parametrize("longs", [1, 4, 15])
def test_a_short_request_beside_long_prompts_has_its_first_token_within_3_passes(longs: int) -> None:
    """However many there are, and they go on in each pass too."""
    load = Load(service(LANGUAGE))
    for number in range(longs):
        load.submit(Request(long_text(number)))
    load.step()
    assert passes_to_first_token(load, Request(SHORT)) <= 3
    assert not any(ticket.choices[0].stats.tokens for ticket in load.tickets[:longs])


def test_a_short_request_beside_a_long_prompt_and_14_answers_has_its_first_token_within_3_passes() -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 4))
    for n in range(14):
        load.submit(Request((n % VOCAB, 1, 2), max_tokens=4000))
    load.step()
    load.submit(Request(LONG))
    load.step()
    assert load.scheduler.running == 15
    assert passes_to_first_token(load, Request(SHORT)) <= 3


def test_several_short_requests_at_once_beside_a_long_prompt_have_their_first_tokens_in_turn() -> None:
    load = Load(service(LANGUAGE))
    load.submit(Request(long_text(0)))
    load.step()
    shorts = [load.submit(Request((n, *SHORT), max_tokens=1)) for n in range(1, 6)]
    had = []
    while not all(ticket.done for ticket in shorts):
        load.step()
        had.append(sum(ticket.done for ticket in shorts))
    assert had == sorted(had)
    assert len(had) <= -(-5 * 101 // 96)  # three rows in four are theirs
    assert had[1] >= 1


def test_a_short_request_that_begins_like_a_long_prompt_is_not_slowed_by_waiting_for_it() -> None:
    """The one that it waits for reads with the haste of the short one."""
    load = Load(service(LANGUAGE))
    for number in range(8):
        load.submit(Request(long_text(number)))
    load.step()
    assert passes_to_first_token(load, Request(long_text(7)[:100])) <= 3


def test_an_answer_goes_on_in_every_pass_that_reads_the_prompt_of_another() -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), 4))
    answer = load.submit(Request((1, 2, 3), max_tokens=400))
    load.step()
    reader = load.submit(Request(LONG, max_tokens=2))
    while not load.told(reader):
        before = len(load.told(answer))
        load.step()
        assert len(load.told(answer)) == before + 5
    assert scripted(load.decoder).passes == 1 + -(-len(LONG) // 128)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(1, 4))
@settings(max_examples=20)
def test_requests_begin_in_the_order_they_came_and_none_waits_for_ever(sizes: list[int], most: int) -> None:
    """Passes are bounded by what all together have to read and to say."""
    load = Load(service(LANGUAGE, most_running=most))
    tickets = [load.submit(Request((1,) * size, max_tokens=5)) for size in sizes]
    load.finish(most=sum(-(-size * most // 128) + 5 for size in sizes) + 1)
    begun = [ticket.begun_s for ticket in tickets]
    assert None not in begun
    assert begun == sorted(begun, key=float)  # type: ignore[arg-type]


def test_no_more_sequences_run_than_may() -> None:
    load = Load(service(LANGUAGE, most_running=3))
    for count in (2, 2, 1, 3):
        load.submit(*(Request((1,), Sampling(choice=i), max_tokens=4) for i in range(count)))
    while load.step():
        assert load.scheduler.running <= 3


def test_more_requests_than_may_wait_are_refused() -> None:
    load = Load(service(LANGUAGE, most_running=1, most_waiting=2))
    for _ in range(2):
        load.submit(Request((1,), max_tokens=3))
    with pytest.raises(QueueFull, match="2 requests are waiting already"):
        load.scheduler.submit(Request((1,)).sequence())
    load.step()
    load.submit(Request((1,), max_tokens=3))
    load.finish()
