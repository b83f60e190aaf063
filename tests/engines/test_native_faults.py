"""Passes of the native engine that are broken off: each sequence holds what it held, and goes on."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from oracle.tiny import Tiny, write_tiny
from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.model import ModelDrafter
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.errors import Cancelled
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

if TYPE_CHECKING:
    from pathlib import Path

TINY = Tiny(kind="Q8_0", embedding_kind="Q8_0")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("faults") / "m.gguf", TINY)


@pytest.fixture
def engine(path: Path) -> NativeEngine:
    return NativeEngine.load(path, threads=1)


def test_a_cancel_before_a_pass_ends_that_pass_and_no_other(engine: NativeEngine) -> None:
    """However often it is called; nothing of the pass stays."""
    sequence = engine.open()
    chunk = Chunk(sequence, [1, 2, 3], 1)
    engine.cancel()
    engine.cancel()
    with pytest.raises(Cancelled):
        engine.forward([chunk])
    assert (engine.length(sequence), engine.pages_in_use) == (0, 0)
    digest = engine.forward([chunk]).digest(0)
    engine.truncate(sequence, 0)
    assert engine.forward([chunk]).digest(0) == digest


def test_a_cancel_that_is_taken_back_ends_no_pass(engine: NativeEngine) -> None:
    engine.cancel()
    assert engine.uncancel()
    assert not engine.uncancel()
    assert len(engine.forward([Chunk(engine.open(), [1], 1)])) == 1


def test_a_refused_pass_leaves_a_cancel_to_the_next(engine: NativeEngine) -> None:
    engine.cancel()
    sequence = engine.open()
    for chunks in ([], [Chunk(sequence, [10**6], 1)]):
        with pytest.raises(Exception, match=r"empty|not in"):
            engine.forward(chunks)
    with pytest.raises(Cancelled):
        engine.forward([Chunk(sequence, [1], 1)])


def asked(
    decoder: Decoder, prompts: list[list[int]], cancel: set[int], *, engine: NativeEngine
) -> list[list[int]]:
    """Answer prompts together; before the named steps the next pass of an engine is cancelled."""
    sequences = [Sequence(list(prompt), Sampling(0.8, seed=3), 25) for prompt in prompts]
    for sequence in sequences:
        decoder.prefill(sequence)
    step = broken = 0
    while running := [s for s in sequences if s.finish_reason is None]:
        if step in cancel:
            engine.cancel()
        step += 1
        try:
            decoder.step(running)
        except Cancelled:
            broken += 1
        for s in sequences:
            assert decoder.engine.length(s.handle) == len(s.tokens) - 1
    assert broken == (len(cancel) if engine is decoder.engine else 0)
    for sequence in sequences:
        decoder.close(sequence)
    return [sequence.tokens for sequence in sequences]


@pytest.mark.parametrize("which", ["target", "draft model"])
def test_an_answer_whose_passes_are_cancelled_goes_on_as_if_nothing_had_been(path: Path, which: str) -> None:
    """Two sequences in each pass; a cancelled pass of the draft model costs its drafts only."""
    target, draft = (NativeEngine.load(path, threads=1) for _ in range(2))
    prompts = [[5, 6, 7], [9] * 70]
    plain = asked(Decoder(target, None, FixedLength(0)), prompts, set(), engine=target)
    decoder = Decoder(target, ModelDrafter(draft, "draft"), FixedLength(2))
    cancelled = target if which == "target" else draft
    assert asked(decoder, prompts, {0, 1, 4}, engine=cancelled) == plain
    assert target.pages_in_use == draft.pages_in_use == 0


def test_a_cancelled_prefill_is_an_error_and_the_next_prompt_is_answered(path: Path) -> None:
    target, draft = (NativeEngine.load(path, threads=1) for _ in range(2))
    decoder = Decoder(target, ModelDrafter(draft, "draft"), FixedLength(3))

    def tokens() -> list[int]:
        return [token.id for token in decoder.run(Sequence([5] * 300, Sampling(), 10))]

    expected = tokens()
    target.cancel()
    with pytest.raises(Cancelled):
        tokens()
    assert target.pages_in_use == draft.pages_in_use == 0
    assert tokens() == expected


@pytest.mark.models
def test_ctrl_c_ends_a_long_pass_in_its_middle_and_the_engine_works_on(smollm2: Path) -> None:
    """The pass over 3,000 tokens at once would take seconds; of its ops the last ones do not run."""
    engine = NativeEngine.load(smollm2)
    sequence = engine.open()
    done = threading.Event()

    def interrupt() -> None:
        while not engine.pages_in_use:
            done.wait(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        engine.forward([Chunk(sequence, [7] * 3000, 1)])
    thread.join()
    assert (engine.length(sequence), engine.pages_in_use) == (0, 0)
    assert engine.parts_s().get("head", 0.0) == 0.0
    assert engine.forward([Chunk(sequence, [7], 1)]).argmax(0) >= 0
    assert engine.parts_s()["head"] > 0.0
