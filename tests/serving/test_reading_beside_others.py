"""In a server nobody waits long for the draft model to read someone else's text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from decoding import draft_engine, plain, scripted
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.base import Drafter
from pilotfish.drafters.either import Either
from pilotfish.drafters.model import READ_SLICE, READY
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import ngrams
from serving.loads import Load, service
from strategies import VOCAB, Request, draft_model, measured

LANGUAGE = ngrams(VOCAB, 2, seed=3)
LENGTH = 4


def long(first: int, size: int = 1500) -> Request:
    return Request((first, *(i % 7 for i in range(1, size))), max_tokens=60)


def evaluated(load: Load) -> int:
    """Make a pass; return how many tokens the draft model evaluated meanwhile."""
    engine = draft_engine(load.decoder)
    assert engine is not None
    before = engine.tokens
    load.step()
    return engine.tokens - before


def either() -> Drafter:
    return Either(SuffixDrafter(min_match=99), draft_model(LANGUAGE))


@pytest.mark.parametrize("texts", [2, 5])
def test_between_two_passes_the_draft_model_reads_one_slice_at_most(texts: int) -> None:
    """And in the end it drafts for each text, and the answers are those without drafts."""
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), LENGTH))
    tickets = [load.submit(long(n, 500)) for n in range(texts)]
    while not all(ticket.done for ticket in tickets):
        assert evaluated(load) <= READ_SLICE + texts * (READY + LENGTH)
    for n, ticket in enumerate(tickets):
        assert ticket.choices[0].stats.accepted > 0
        assert load.told(ticket) == plain(LANGUAGE, long(n, 500))[0]
    load.finish()


def test_one_client_alone_waits_for_all_of_it_once() -> None:
    """Nobody else is there, and the first draft comes soonest so."""
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), LENGTH))
    ticket = load.submit(long(1))
    reads = []
    while not ticket.done:
        reads.append(evaluated(load))
    assert [count for count in reads if count > READ_SLICE] == [1500 + LENGTH]


def test_who_arrives_while_a_text_is_read_waits_for_one_slice() -> None:
    """The other's prompt is read too while the draft model reads: it is not held up by more than that."""
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), LENGTH))
    first, second = load.submit(long(1)), None
    engine = draft_engine(load.decoder)
    assert engine is not None
    forward = engine.forward

    def arriving(chunks: object) -> object:
        nonlocal second
        if engine.passes == 3 and second is None:
            second = load.submit(long(2))
        return forward(chunks)  # type: ignore[arg-type]

    engine.forward = arriving  # type: ignore[method-assign, assignment]
    reads = []
    while not first.done:
        reads.append(evaluated(load))
    assert [count for count in reads if count > READ_SLICE + 2 * (READY + LENGTH)] == [4 * READ_SLICE]
    assert second is not None
    assert first.choices[0].stats.accepted > 0
    load.finish()


@pytest.mark.parametrize(
    "made",
    [either, lambda: AutoDrafter(None, draft_model(LANGUAGE), measured())],
    ids=["either", "auto"],
)
def test_whichever_drafter_asks_the_model_the_slice_is_shared(made: Callable[[], Drafter]) -> None:
    load = Load(service(LANGUAGE, made(), LENGTH))
    tickets = [load.submit(long(n, 300)) for n in range(3)]
    while not all(ticket.done for ticket in tickets):
        assert evaluated(load) <= READ_SLICE + 3 * (READY + LENGTH)
    load.finish()


def test_a_reader_that_leaves_gives_its_turn_to_the_next() -> None:
    """Nothing of its text is left in the draft model."""
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), LENGTH))
    tickets = [load.submit(long(n)) for n in range(2)]
    while not draft_engine(load.decoder).tokens:  # type: ignore[union-attr]
        load.step()
    tickets[0].cancel()
    while not tickets[1].done:
        load.step()
    assert tickets[1].choices[0].stats.accepted > 0
    load.finish()
    assert scripted(load.decoder).passes > 0
