"""On a real model: an answer has the same tokens and bits alone and under load, with drafts."""

# ruff: noqa: D102 - short, and read beside the tests

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish.control import ByGain, Control, FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.base import Drafter
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.base import Rows
from pilotfish.engines.native import NativeEngine
from pilotfish.errors import OutOfMemory
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.serving.prefixes import PrefixCache
from pilotfish.serving.scheduler import Scheduler
from pilotfish.text.tokenizer import Tokenizer

pytestmark = pytest.mark.models

CODE = (
    "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    return "
)
ASKED = [
    (CODE * 4 + "area(", Sampling()),
    ("Once upon a time", Sampling(temperature=0.9, top_p=0.95, seed=3)),
    (CODE * 4 + "width", Sampling(temperature=0.7, repeat_penalty=1.1, seed=8)),
    (CODE * 2, Sampling()),
    (CODE * 4 + "area(", Sampling()),
]


class Real:
    """A model, what is asked of it, and the tokens and rows that each request gets alone."""

    def __init__(self, engine: NativeEngine) -> None:
        self.engine = engine
        self.tokenizer = Tokenizer.from_metadata(engine.metadata)
        self.seen: dict[int, list[int]] = {}
        self.alone = self.asked()
        for s in self.alone:
            list(Decoder(engine, None, FixedLength(0), on_row=self.on_row).run(s))

    def asked(self) -> list[Sequence]:
        return [Sequence(self.tokenizer.encode(text), sampling, 20) for text, sampling in ASKED]

    def on_row(self, sequence: Sequence, _position: int, rows: Rows, row: int) -> None:
        self.seen.setdefault(sequence.key, []).append(rows.digest(row))


@pytest.fixture(scope="module")
def real(smollm2: Path) -> Iterator[Real]:
    engine = NativeEngine.load(smollm2, context=1024)
    yield Real(engine)
    engine.dispose()


def automatic() -> tuple[Drafter, Control]:
    control = ByGain()
    return AutoDrafter(SuffixDrafter(), None, control), control


@pytest.mark.parametrize("drafting", ["fixed", "auto"])
def test_an_answer_has_the_same_tokens_and_bits_alone_and_under_load(real: Real, drafting: str) -> None:
    """Requests come one after another, share beginnings, and one client leaves."""
    drafter, control = automatic() if drafting == "auto" else (SuffixDrafter(), FixedLength(5))
    decoder = Decoder(real.engine, drafter, control, on_row=real.on_row)
    scheduler = Scheduler(decoder, PrefixCache(real.engine, 640))
    leaving = scheduler.submit(Sequence(real.tokenizer.encode(CODE * 3), Sampling(), 100))
    tickets = []
    for s in real.asked():
        tickets.append(scheduler.submit(s))
        for _ in range(4):
            scheduler.step()
    leaving.cancel()
    while scheduler.step():
        pass
    for ticket, expected in zip(tickets, real.alone, strict=True):
        assert ticket.error is None
        assert ticket.choices[0].tokens == expected.tokens
        assert real.seen[ticket.choices[0].key] == real.seen[expected.key]
    assert tickets[-1].reused >= 64
    if drafting == "fixed":
        assert sum(ticket.choices[0].stats.accepted for ticket in tickets) > 0
    scheduler.close()
    assert real.engine.pages_in_use == 0


@pytest.mark.parametrize("most_pages", [5, 7])
def test_an_answer_has_the_same_tokens_and_bits_when_the_kv_cache_runs_out_of_pages(
    real: Real, most_pages: int
) -> None:
    """Requests lose their pages and read their text again; there are never more pages than may be."""
    decoder = Decoder(real.engine, SuffixDrafter(), FixedLength(5), on_row=real.on_row)
    scheduler = Scheduler(decoder, PrefixCache(real.engine, 640))
    real.engine.most_pages = most_pages
    tickets = [scheduler.submit(s) for s in real.asked()]
    too_long = scheduler.submit(Sequence(real.tokenizer.encode(CODE * 20), Sampling(), 20))
    while scheduler.step():
        figures = scheduler.figures()
        assert figures.pages is not None
        assert figures.pages <= most_pages == figures.most_pages
    assert scheduler.preemptions > 0
    assert isinstance(too_long.error, OutOfMemory)
    for ticket, expected in zip(tickets, real.alone, strict=True):
        assert ticket.error is None
        assert ticket.choices[0].tokens == expected.tokens
        assert real.seen[ticket.choices[0].key] == real.seen[expected.key]
    scheduler.close()
    real.engine.most_pages = None
    assert real.engine.pages_in_use == 0


def test_no_page_is_held_when_idle_but_those_of_the_prefix_cache(real: Real) -> None:
    """A burst of the same beginning, of which one client leaves while it reads, and one in its answer."""
    decoder = Decoder(real.engine, SuffixDrafter(), FixedLength(5), on_row=real.on_row)
    prefixes = PrefixCache(real.engine, 640)
    scheduler = Scheduler(decoder, prefixes)
    texts = [CODE * 8 + end for end in ("area(", "volume(", "width", "height", "depth")]
    asked = [Sequence(real.tokenizer.encode(text), Sampling(), 20) for text in texts]
    tickets = [scheduler.submit(s) for s in asked]
    scheduler.step()
    tickets[0].cancel()
    while not tickets[2].first_s:
        scheduler.step()
    tickets[2].cancel()
    while scheduler.step():
        pass
    assert real.engine.pages_in_use * 64 == prefixes.tokens > 0
    assert [ticket.reused >= 64 for ticket in tickets] == [False, True, True, True, True]
    for s in (asked[1], asked[3], asked[4]):
        alone = Sequence(s.tokens[: s.stats.prompt_tokens], Sampling(), 20)
        list(Decoder(real.engine, None, FixedLength(0), on_row=real.on_row).run(alone))
        assert (alone.tokens, real.seen[alone.key]) == (s.tokens, real.seen[s.key])
    prefixes.clear()
    assert real.engine.pages_in_use == 0
    scheduler.close()
