"""What is reserved before anyone asks: no pass under load takes memory beyond it."""

# ruff: noqa: D102 - short, and read beside the tests

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

import pytest

from oracle.tiny import Tiny, write_tiny
from pilotfish.control import LONGEST, FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.base import Draft
from pilotfish.drafters.model import READY, ModelDrafter
from pilotfish.engines.base import Chunk, Reserve
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.native.kv import PAGE
from pilotfish.prompt import SLICE
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.serving.reserves import reserves
from pilotfish.serving.scheduler import MOST_DRAFTED, Scheduler

if TYPE_CHECKING:
    import collections.abc
    from pathlib import Path

    from pilotfish.drafters.base import View
    from pilotfish.engines.native.rows import NativeRows

TINY = Tiny(kind="Q8_0", embedding_kind="Q8_0", layers=1, width=64, mlp_width=64, heads=2, context=2048)


class Watched:
    """An engine whose largest passes are noted."""

    def __init__(self, path: Path, reserve: Reserve, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = NativeEngine.load(path, threads=2)
        self.engine.reserve(reserve)
        self.taken = self.engine.work_bytes, self.engine.reserved_tokens
        self.rows = self.wanted = 0
        forward = self.engine.forward

        def watched(chunks: collections.abc.Sequence[Chunk]) -> NativeRows:
            self.rows = max(self.rows, sum(len(chunk.tokens) for chunk in chunks))
            self.wanted = max(self.wanted, sum(chunk.wanted for chunk in chunks))
            return forward(chunks)

        monkeypatch.setattr(self.engine, "forward", watched)

    def must_have_taken_no_more(self) -> None:
        assert (self.engine.work_bytes, self.engine.reserved_tokens) == self.taken


class Babbler:
    """Proposes as much as it may."""

    name = "babbler"

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        return [Draft((7,) * n, (0.5,) * n, (self.name,) * n) for _, n in zip(sequences, limits, strict=True)]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn nothing."""

    def forget(self, key: int) -> None:
        """Keep nothing."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("reserves") / "m.gguf", TINY)


@pytest.mark.parametrize("running", [1, 5, 16])
def test_the_largest_passes_take_no_more_than_is_reserved(
    path: Path, running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All places are taken, all drafts as long as may be, prompts are read beside them, and scored."""
    target, _ = reserves(running)
    watched = Watched(path, target, monkeypatch)
    decoder = Decoder(watched.engine, Babbler(), FixedLength(LONGEST))
    scheduler = Scheduler(decoder, most_running=running)
    lengths = [60, 3, 300, 90, 140, 70]
    for i, (length, scored) in enumerate(islice(zip(cycle(lengths), cycle([0, 0, 0, 1])), 3 * running)):
        prompt = [1 + (i * 31 + j * 7) % 90 for j in range(length)]
        logprobs = 0 if scored else None
        scheduler.submit(
            Sequence(prompt, Sampling(), max_tokens=80, logprobs=logprobs, scores_prompt=bool(scored))
        )
    while scheduler.step():
        pass
    watched.must_have_taken_no_more()
    drafted = min(MOST_DRAFTED, LONGEST * running)
    assert watched.rows > (SLICE + drafted if running > 1 else drafted)
    assert target.wanted - running < watched.wanted <= target.wanted
    assert watched.rows <= target.rows


def test_scored_rows_leave_the_fewer_to_drafts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt with log-probabilities has a row of logits for each token, and so has a draft."""
    target, _ = reserves(16)
    watched = Watched(path, target, monkeypatch)
    scheduler = Scheduler(Decoder(watched.engine, Babbler(), FixedLength(LONGEST)))
    for i in range(4):
        scheduler.submit(Sequence([1, 2, 3 + i], Sampling(), max_tokens=120))
    scheduler.step()
    for i in range(4):
        scheduler.submit(Sequence([i + 1] * 200, Sampling(), 4, logprobs=0, scores_prompt=True))
    while scheduler.step():
        pass
    assert MOST_DRAFTED <= watched.wanted <= MOST_DRAFTED + 8
    watched.must_have_taken_no_more()


def test_the_draft_model_takes_no_more_than_is_reserved(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen texts, each a little behind, one more of which a slice is read, and guesses to look at."""
    running = 16
    _, draft = reserves(running)
    watched = Watched(path, draft, monkeypatch)
    drafter = ModelDrafter(watched.engine, "draft")
    texts = [Sequence([1 + i, 2, 3], Sampling(), max_tokens=99) for i in range(running)]
    limits = [MOST_DRAFTED // running] * running
    hints = [[7] * (limit - 1) for limit in limits]
    for _ in range(3):
        drafter.propose(texts, limits, hints=hints)
        for text in texts:
            text.tokens += [5] * READY
            drafter.observe(text, Draft((), (), ()), 0)
    texts[0].tokens += [9] * (SLICE - READY)
    drafter.propose(texts, limits, hints=hints)
    watched.must_have_taken_no_more()
    assert draft.rows >= watched.rows > SLICE + MOST_DRAFTED
    assert draft.wanted >= watched.wanted >= MOST_DRAFTED


def test_a_server_of_few_reserves_less_and_never_more_than_its_bound_on_the_cache() -> None:
    one, many = reserves(1)[0], reserves(16)[0]
    assert one.rows < many.rows
    assert one.wanted == LONGEST + 1
    assert one.tokens * 16 == many.tokens
    assert reserves(16, kv_tokens=1000)[0].tokens == 1000


def test_what_is_reserved_beyond_the_bound_on_pages_is_not_taken(path: Path) -> None:
    engine = NativeEngine.load(path)
    engine.most_pages = 3
    engine.reserve(Reserve(rows=4, wanted=1, tokens=10 * PAGE))
    assert engine.reserved_tokens == 3 * PAGE
