"""Kinds of reports: a part fails or lies, and the answer is wrong, or everything after it is."""

from __future__ import annotations

import collections.abc
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from decoding import Run, answer, assert_nothing_is_left, decoder_of, draft_engine, plain
from pilotfish.control import ByGain, FixedLength
from pilotfish.decode import Decoder
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.base import Draft, Drafter, View
from pilotfish.drafters.model import ModelDrafter
from pilotfish.engines.base import Chunk
from pilotfish.engines.scripted import ScriptedEngine, ScriptedRows, mistaken, ngrams
from pilotfish.errors import EngineError
from pilotfish.sampling import Sampling
from strategies import PADDED, VOCAB, Fake, Request, draft_model, padded

LANGUAGE = ngrams(VOCAB, 2, seed=3)
REQUEST = Request((1, 2, 3), Sampling(temperature=0.8, seed=5), 40)
PLAIN = plain(LANGUAGE, REQUEST)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("pilotfish.drafters.guard")
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(logging.NOTSET)


def likely(tokens: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """Guess what the language says most likely, which is right now and then."""
    said = list(tokens)
    for _ in range(min(limit, 4)):
        said.append(int(np.argmax(LANGUAGE(tuple(said)))))
    return tuple(said[len(tokens) :])


LIES: dict[str, Any] = {
    "no number": float("nan"),
    "endless": float("inf"),
    "negative": -1.0,
    "above one": 1e300,
    "text": "surely",
    "nothing": None,
}


def liar(lie: Any, count: int = 1) -> Fake:
    """Return a drafter of good tokens that claims `lie` as the confidence of each, or `count` times that."""

    def guess(tokens: tuple[int, ...], limit: int) -> Draft:
        said = likely(tokens, limit)
        return Draft(said, (lie,) * (count * len(said)), ("liar",) * len(said))

    return Fake(guess, "liar")


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("count", [0, 1, 3], ids=["none", "one each", "too many"])
def test_a_drafter_that_lies_about_probabilities_changes_no_token(lie: Any, count: int) -> None:
    """Alone, and where its claims decide how much is drafted and by whom."""
    assert answer(decoder_of(LANGUAGE, liar(lie, count), 4), REQUEST) == PLAIN
    control = ByGain()
    auto = AutoDrafter(liar(lie, count), draft_model(mistaken(LANGUAGE, 0.2)), control)
    engine = ScriptedEngine(padded(LANGUAGE), PADDED)
    assert answer(Decoder(engine, auto, control, token_count=VOCAB), REQUEST) == PLAIN


@pytest.mark.parametrize(
    "wrong",
    [(1.5, 2.5), (None,), ([1],), (True, False), (2**70,), np.array([1, 2]), "12", {1: 2}, 7],
    ids=repr,
)
def test_a_draft_of_wrong_types_changes_no_token(wrong: Any) -> None:
    assert answer(decoder_of(LANGUAGE, Fake(lambda _tokens, _limit: Draft(wrong)), 4), REQUEST) == PLAIN


@pytest.mark.parametrize("names", [None, 3, (3, None), ("",), ("a",) * 99], ids=repr)
def test_wrong_names_of_drafters_change_no_token(names: Any) -> None:
    drafter = Fake(lambda tokens, limit: Draft(likely(tokens, limit), drafters=names))
    assert answer(decoder_of(LANGUAGE, drafter, 4), REQUEST) == PLAIN


class NowAndThen:
    """Raises at every third call, whichever it is, and else does what another drafter does."""

    name = "now and then"

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner
        self._calls = itertools.count()

    def _call(self, method: str, *args: Any) -> Any:
        if next(self._calls) % 3 == 2:
            raise RuntimeError(method)
        return getattr(self.inner, method)(*args)

    def propose(self, sequences: collections.abc.Sequence[View], limits: Any) -> list[Draft]:
        """Propose, or raise."""
        drafts: list[Draft] = self._call("propose", sequences, limits)
        return drafts

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Observe, or raise."""
        self._call("observe", sequence, draft, accepted)

    def forget(self, key: int) -> None:
        """Forget; that it always does."""
        self.inner.forget(key)


def test_a_drafter_that_raises_now_and_then_goes_on_drafting() -> None:
    """Missed news included: a draft model that did not hear what was accepted finds out by itself."""
    model = draft_model(LANGUAGE)
    run = Run(decoder_of(LANGUAGE, NowAndThen(model), 4))
    sequence = run.add(REQUEST)
    run.finish()
    assert (sequence.tokens[3:], sequence.finish_reason) == PLAIN
    assert sequence.stats.accepted > 10
    assert isinstance(model.engine, ScriptedEngine)
    assert model.engine.sequences == {}


class Halfway(ScriptedEngine):
    """Breaks its promise: a pass that fails has evaluated the first of its chunks, and leaves it there."""

    fails: frozenset[int] = frozenset()

    def forward(self, chunks: collections.abc.Sequence[Chunk]) -> ScriptedRows:
        """Evaluate, or a part."""
        if self.passes in self.fails:
            super().forward(chunks[:1])
            raise EngineError("broke in the middle")
        return super().forward(chunks)


def test_an_engine_that_breaks_in_the_middle_of_a_pass_leaves_every_sequence_right() -> None:
    """After the first of three sequences was evaluated; the next step does it all again."""
    requests = [Request((1,), max_tokens=30), REQUEST, Request((5, 5), max_tokens=9)]
    engine = Halfway(padded(LANGUAGE), PADDED)
    run = Run(Decoder(engine, draft_model(mistaken(LANGUAGE, 0.3)), FixedLength(4), token_count=VOCAB))
    for request in requests:
        run.add(request)
    engine.fails, broke = frozenset({4, 7, 9}), 0
    while run.running:
        try:
            run.step()
        except EngineError:
            broke += 1
    run.finish()
    assert broke == 3
    for request, sequence in zip(requests, run.sequences, strict=True):
        assert (sequence.tokens[len(request.prompt) :], sequence.finish_reason) == plain(LANGUAGE, request)


def test_a_draft_model_that_breaks_in_the_middle_of_a_pass_changes_no_token() -> None:
    """Reading the text, and drafting, for the first of two sequences."""
    drafts = Halfway(LANGUAGE, VOCAB)
    drafts.fails = frozenset({0, 3, 4, 11})
    run = Run(decoder_of(LANGUAGE, ModelDrafter(drafts, "model"), 4))
    requests = [REQUEST, Request((4,) * 300, max_tokens=30)]
    for request in requests:
        run.add(request)
    run.finish()
    for request, sequence in zip(requests, run.sequences, strict=True):
        assert (sequence.tokens[len(request.prompt) :], sequence.finish_reason) == plain(LANGUAGE, request)
        assert sequence.stats.accepted > 0
    assert drafts.passes > 12


@pytest.mark.parametrize("slice_", [0, 1, 2])
def test_an_engine_that_breaks_while_the_prompt_is_read_is_an_error_and_answers_the_next(slice_: int) -> None:
    engine = Halfway(padded(LANGUAGE), PADDED)
    engine.fails = frozenset({slice_})
    decoder = Decoder(engine, draft_model(LANGUAGE), FixedLength(4), token_count=VOCAB)
    with pytest.raises(EngineError, match="broke in the middle"):
        list(decoder.run(Request((1,) * 300).sequence()))
    assert_nothing_is_left(decoder)
    assert answer(decoder, REQUEST) == PLAIN
    drafts = draft_engine(decoder)
    assert drafts is not None
    assert drafts.sequences == {}
