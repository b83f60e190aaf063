"""Under load, on a made-up machine: drafts that control decides on are not slower than none."""

from __future__ import annotations

import itertools

import pytest

from pilotfish.control import ByGain, Control, FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.base import Drafter
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.serving.scheduler import Scheduler
from pilotfish.serving.ticket import Ticket
from simulation import AVX2, VNNI, VOCAB, Clock, Found, Text, TimedEngine, cost


def tokens_per_s(
    table: dict[int, float], right: float | None, clients: int, prompt: int, requests: int = 14
) -> float:
    """Let clients ask again and again; what is looked up is right so often, None is no drafts."""
    known: dict[int, Text] = {}
    clock, numbers = Clock(), itertools.count()
    engine = TimedEngine(lambda tokens: known[tokens[0]].target_rule(tokens), clock, cost(table))
    drafter: Drafter | None = None
    control: Control = FixedLength(0)
    if right is not None:
        control = ByGain()
        drafter = AutoDrafter(Found(known), None, control)
    scheduler = Scheduler(Decoder(engine, drafter, control, clock=clock))

    def ask() -> Ticket:
        number = next(numbers)
        text = Text(found=lambda _position: right or 0.0, id=number % VOCAB, seed=number, size=prompt)
        known[text.id] = text
        return scheduler.submit(Sequence(text.prompt(), Sampling(), 50))

    tickets = [ask() for _ in range(clients)]
    live = list(tickets)
    while sum(ticket.done for ticket in tickets) < requests:
        scheduler.step()
        live = [ask() if ticket.done else ticket for ticket in live]
        tickets += [ticket for ticket in live if ticket not in tickets]
    return sum(ticket.choices[0].stats.tokens for ticket in tickets) / clock()


@pytest.mark.parametrize("table", [AVX2, VNNI])
@pytest.mark.parametrize(("clients", "prompt"), [(4, 24), (8, 24), (8, 300)])
def test_under_load_drafts_are_not_slower_than_none(
    table: dict[int, float], clients: int, prompt: int
) -> None:
    """Also where some prompt is read in most passes, from which control learns nothing."""
    plain = tokens_per_s(table, None, clients, prompt)
    assert tokens_per_s(table, 0.1, clients, prompt) >= 0.98 * plain
    assert tokens_per_s(table, 0.9, clients, prompt) >= 0.98 * plain


def test_with_few_clients_good_drafts_pay() -> None:
    plain = tokens_per_s(VNNI, None, 4, 24)
    assert tokens_per_s(VNNI, 0.9, 4, 24) >= 1.2 * plain
