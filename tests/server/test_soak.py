"""Many clients at once over loopback: every answer is what the same request is answered alone.

`make soak` does it for minutes, on a server of its own.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from decoding import draft_engine, scripted
from pilotfish.bench.http_stream import Address as Where
from pilotfish.bench.load import Report, Target, alone, draw, load
from pilotfish.bench.servers import idle
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.scripted import mistaken, ngrams
from pilotfish.llm import load as load_model
from pilotfish.sequence import Sequence
from pilotfish.server.app import make_app
from pilotfish.server.listening import Address, Listening
from pilotfish.server.service import Reply, Service
from pilotfish.server.settings import Settings
from pilotfish.serving.ticket import Ticket
from tiny import VOCAB_SIZE, tiny_draft, tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pilotfish.bench.load import Ask

BEGINNING = "You are terse. " * 20
TEXTS = ["Why is the sea salt?", BEGINNING + "One.", BEGINNING + "Two, three.", "a" * 300, "né 🐟"]


def soaked(service: Service, asks: list[Ask], rounds: int, after: Callable[[], None]) -> list[Report]:
    """Answer each request alone, then all of them to 8 clients, round by round."""

    async def talk(target: Target) -> list[Report]:
        answers = await alone(target, asks)
        reports = []
        for _ in range(rounds):
            reports.append(await load(target, asks, answers, clients=8, goes_on=(2 * len(asks)).__gt__))
            await idle(target.address)
            after()
        return reports

    address = Address("127.0.0.1", 0)
    with Listening(make_app(service, Settings()), address):
        return asyncio.run(talk(Target(Where("127.0.0.1", address.port), service.target.name)))


def requests_held() -> int:
    """Return how many objects there are of what a request is made of: what grows with them is a leak."""
    gc.collect()
    return sum(isinstance(one, Reply | Ticket | Sequence) for one in gc.get_objects())


def must_have_drafted(service: Service) -> None:
    """Without drafts the comparison would say little."""
    told = service.metrics.registry.get_sample_value
    labels = {"model_name": service.target.name, "engine": "0"}
    drafted = told("pilotfish:spec_decode_num_draft_tokens_total", labels)
    accepted = told("pilotfish:spec_decode_num_accepted_tokens_total", labels)
    assert drafted is not None
    assert accepted is not None
    assert drafted > 0
    assert accepted > 0


def must_hold(reports: list[Report], asks: list[Ask]) -> None:
    for report in reports:
        assert report.errors == []
        assert report.different == []
        assert report.left + report.completed == 2 * len(asks)
        assert report.left > 0


def test_eight_clients_get_what_each_gets_alone_and_leave_nothing_behind() -> None:
    """Mixed prompts, limits, temperatures and endpoints; every tenth hangs up at some event."""
    asks = draw(TEXTS, 40, seed=3, most_tokens=40)
    drafting = Drafting(Wish(model="tiny-draft"), tiny_draft(mistaken(ngrams(VOCAB_SIZE), 0.3)))
    before, held = requests_held(), list[int]()
    with Service(tiny_model(), drafting, Settings(prefix_tokens=1024), draft_length=3) as service:
        must_hold(soaked(service, asks, 2, lambda: held.append(requests_held())), asks)
        prefixes, engine = service.scheduler.prefixes, scripted(service.scheduler.decoder)
        drafts = draft_engine(service.scheduler.decoder)
        assert prefixes is not None
        assert drafts is not None
        must_have_drafted(service)
        assert 0 < prefixes.tokens <= 1024
        assert engine.sequences
        prefixes.clear()
        assert not engine.sequences
        assert not drafts.sequences
    assert held == [before, before]


@pytest.mark.models
def test_eight_clients_of_a_real_model_get_what_each_gets_alone(smollm2: Path) -> None:
    """On pages that are shared and copied; none is held at the end."""
    asks = draw(["1 2 3 4 5 " * 7, "1 2 3 4 5 " * 7 + "la la la"], 6, seed=5, most_tokens=12)
    settings = Settings(prefix_tokens=512)
    with (
        load_model(str(smollm2), draft="suffix") as llm,
        Service(llm.target, llm.drafting, settings, draft_length=4) as service,
    ):
        must_hold(soaked(service, asks, 1, lambda: None), asks)
        must_have_drafted(service)
        prefixes, engine = service.scheduler.prefixes, llm.target.engine
        assert prefixes is not None
        assert isinstance(engine, NativeEngine)
        assert engine.pages_in_use == prefixes.tokens // 64 > 0
        prefixes.clear()
        assert engine.pages_in_use == 0
