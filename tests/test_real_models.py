"""Real models end to end: the same tokens and bits with drafting, and a target that agrees with itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.base import Drafter
from pilotfish.drafters.model import ModelDrafter
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.base import Rows
from pilotfish.engines.native import NativeEngine
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.text.tokenizer import Tokenizer

pytestmark = pytest.mark.models

PROMPT = (
    "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    return"
)


@pytest.fixture(scope="module")
def small(smollm2: Path) -> Iterator[NativeEngine]:
    engine = NativeEngine.load(smollm2, context=1024)
    yield engine
    engine.dispose()


def answer(
    engine: NativeEngine,
    prompt: list[int],
    sampling: Sampling,
    tokens: int,
    drafter: Drafter | None = None,
    length: int = 0,
) -> tuple[Sequence, list[int]]:
    """Return the finished sequence and a hash of every row that a token was chosen from."""
    digests: list[int] = []

    def on_row(_sequence: Sequence, _position: int, rows: Rows, row: int) -> None:
        digests.append(rows.digest(row))

    sequence = Sequence(list(prompt), sampling, tokens)
    for _token in Decoder(engine, drafter, FixedLength(length), on_row=on_row).run(sequence):
        pass
    return sequence, digests


@pytest.mark.timeout(400)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_target_that_drafts_for_itself_is_always_right(small: NativeEngine, temperature: float) -> None:
    """No decay over 500 tokens: caches and shared noise stay in step."""
    prompt = Tokenizer.from_metadata(small.metadata).encode(PROMPT)
    drafter = ModelDrafter(small, "itself")
    sequence, _ = answer(small, prompt, Sampling(temperature=temperature, seed=3), 501, drafter, 4)
    assert sequence.stats.tokens == 501
    assert sequence.stats.drafted == 400
    assert sequence.stats.accepted == 400
    assert small.pages_in_use == 0


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_p=0.95, min_p=0.02, seed=11)])
def test_drafting_changes_no_token_and_no_bit(small: NativeEngine, sampling: Sampling) -> None:
    prompt = Tokenizer.from_metadata(small.metadata).encode(PROMPT)
    plain, rows = answer(small, prompt, sampling, 60)
    for length in (1, 3, 8, 16):
        drafted, drafted_rows = answer(small, prompt, sampling, 60, SuffixDrafter(), length)
        assert drafted.tokens == plain.tokens
        assert drafted_rows == rows
        assert drafted.stats.drafted > 0


@pytest.mark.timeout(400)
def test_the_default_pair_answers_as_its_target_alone(qwen15: Path, qwen05: Path) -> None:
    target, draft = (NativeEngine.load(path, context=256) for path in (qwen15, qwen05))
    prompt = Tokenizer.from_metadata(target.metadata).encode(PROMPT)
    for sampling in (Sampling(), Sampling(temperature=0.8, seed=5)):
        plain, rows = answer(target, prompt, sampling, 20)
        drafted, drafted_rows = answer(target, prompt, sampling, 20, ModelDrafter(draft, "draft"), 4)
        assert drafted.tokens == plain.tokens
        assert drafted_rows == rows
        assert drafted.stats.accepted > 0
