"""Real models end to end: the same tokens and bits with drafting, and a target that agrees with itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.base import Drafter
from pilotfish.drafters.model import ModelDrafter
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.base import Rows
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.native.slim import Slim
from pilotfish.llm import LLM
from pilotfish.loading import load_models
from pilotfish.model import Model
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


OPTIONS: list[dict[str, Any]] = [
    {"repeat_penalty": 1.2, "repeat_last_n": 32},
    {"presence_penalty": 0.6, "frequency_penalty": 0.4, "temperature": 0.9, "top_p": 0.95},
    {"bad_words": ["width", " *", "\n\n"], "logit_bias": {30: 2.0}, "temperature": 0.7, "min_p": 0.03},
    {"min_tokens": 12, "ignore_eos": True, "repeat_penalty": 1.1, "temperature": 1.0, "top_k": 50},
]


@pytest.fixture(scope="module")
def small_llms(smollm2: Path) -> Iterator[dict[str, LLM]]:
    """One model in memory: plain, with its own words looked up, with itself and with a slimmed self."""
    model = load_models(str(smollm2), [Wish()], 1024, None)[0]
    slimmed = NativeEngine.load(smollm2, context=1024, slim=Slim({}, frozenset(range(4000))))
    yield {
        "plain": LLM(model),
        "suffix": LLM(model, Drafting(Wish.read("suffix"))),
        "itself": LLM(model, Drafting(Wish.read("m"), Model(name="itself", engine=model.engine))),
        "slimmed": LLM(model, Drafting(Wish.read("m"), Model(name="slimmed", engine=slimmed))),
    }
    model.dispose()
    slimmed.dispose()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_option_makes_drafting_change_a_token_a_word_or_a_log_probability(
    small_llms: dict[str, LLM], options: dict[str, Any]
) -> None:
    def told(name: str, **more: Any) -> list[Any]:
        result = small_llms[name].generate(
            PROMPT, max_tokens=20, seed=6, logprobs=True, top_logprobs=3, n=2, **options, **more
        )
        if name in {"itself", "slimmed"}:
            assert sum(one.stats.drafted for one in result.choices) > 0
        if name == "itself":
            assert all(one.stats.accepted == one.stats.drafted for one in result.choices)
        for word in options.get("bad_words", []):
            assert not any(word in one.text for one in result.choices)
        return [
            (one.tokens, one.text, one.finish_reason, one.logprobs, one.top_logprobs)
            for one in result.choices
        ]

    plain = told("plain")
    for name, length in (("suffix", 3), ("itself", 4), ("slimmed", 2)):
        assert told(name, draft_length=length) == plain


def test_an_echoed_prompt_is_scored_as_if_it_had_been_said(small_llms: dict[str, LLM]) -> None:
    """Greedy, so that each answered token has the log-probability of the likeliest."""
    llm = small_llms["plain"]
    said = llm.generate(PROMPT, max_tokens=30, logprobs=True, top_logprobs=1)
    echoed = llm.generate([*llm.encode(PROMPT), *said.tokens], max_tokens=1, echo=True, logprobs=True)
    assert echoed.text.startswith(PROMPT)
    assert echoed.logprobs is not None
    assert echoed.logprobs[-31:-1] == said.logprobs


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
