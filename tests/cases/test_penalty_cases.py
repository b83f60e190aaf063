"""Penalties and processors: row i sees the history and the drafts before i; nothing is ignored."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding import Run, decoder_of
from pilotfish.bans import BannedSequences
from pilotfish.control import FixedLength
from pilotfish.decode import Decoder
from pilotfish.engines.scripted import ScriptedEngine, mistaken, ngrams, uniform
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from sampling_oracle import assert_distributed, truncated
from sampling_rules import penalized
from strategies import MAKERS, VOCAB, draft_lengths, draft_model, drafter_names, rules

if TYPE_CHECKING:
    from pilotfish.engines.scripted import Rule

END = 3
SHAPES: list[dict[str, Any]] = [
    {"presence_penalty": 1.5},
    {"frequency_penalty": -0.8},
    {"repeat_penalty": 2.0, "repeat_last_n": 2},
    {"logit_bias": ((0, 1.0), (2, -0.5))},
    {"words": [[1], [2, 2], [0, 2, 0]]},
    {"min_tokens": 2},
    {"presence_penalty": 0.5, "repeat_penalty": 1.4, "words": [[1, 1]], "min_tokens": 1, "top_p": 0.9},
    {"frequency_penalty": 0.5, "logit_bias": ((1, 1.0),), "top_k": 2, "temperature": 1.5},
    {"repeat_penalty": 0.6, "min_p": 0.2, "temperature": 0.8},
]


def _request(seed: int, words: Any = (), min_tokens: int = 0, **sampling: Any) -> Sequence:
    return Sequence(
        [0, 1],
        Sampling(**{"temperature": 1.0, **sampling, "seed": seed}),
        3,
        frozenset([END]),
        min_tokens=min_tokens,
        bans=[BannedSequences(words)] if words else [],
    )


def _enumerated(
    rule: Rule, said: tuple[int, ...] = (), words: Any = (), min_tokens: int = 0, **sampling: Any
) -> dict[tuple[int, ...], float]:
    """Return the probability of each answer of at most 3 tokens that begins so, given its beginning."""
    if len(said) == 3 or END in said:
        return {said: 1.0}
    parameters = Sampling(**{"temperature": 1.0, **sampling})
    row = penalized(np.asarray(rule((0, 1, *said)), np.float32), parameters, [0, 1], said)
    banned = {word[-1] for word in words if [*said, word[-1]][-len(word) :] == word}
    banned |= {END} if len(said) < min_tokens else set()
    left = [token for token in range(4) if token not in banned]
    shares: dict[tuple[int, ...], float] = {}
    for i, share in truncated(row[left], parameters).items():
        more = _enumerated(rule, (*said, left[i]), words, min_tokens, **sampling)
        shares |= {text: share * rest for text, rest in more.items()}
    return shares


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_over_many_seeds_the_distribution_is_the_targets_under_each_adjustment(shape: dict[str, Any]) -> None:
    """All answers of 3 tokens over 4, one of which ends, enumerated, against 600 speculative ones."""

    def target(tokens: tuple[int, ...]) -> np.ndarray:
        return np.asarray(ngrams(4, 1, seed=1)(tokens)) / 4

    drafter = draft_model(mistaken(target, 0.5), vocab_size=4)
    decoder = Decoder(ScriptedEngine(target, 4), drafter, FixedLength(2))
    count, drafted, accepted = 600, 0, 0
    got: Counter[tuple[int, ...]] = Counter()
    for seed in range(count):
        sequence = _request(seed, **shape)
        got[tuple(token.id for token in decoder.run(sequence))] += 1
        drafted, accepted = drafted + sequence.stats.drafted, accepted + sequence.stats.accepted
    assert 0 < accepted < drafted
    exact = _enumerated(target, **shape)
    assert sum(exact.values()) == pytest.approx(1)
    assert set(got) <= set(exact)
    # Answers too rare for a test of counts are counted as one.
    rare, share = set[tuple[int, ...]](), 0.0
    for text in sorted(exact, key=exact.__getitem__):
        if exact[text] * count > 5 and (not rare or share * count > 5):
            break
        rare.add(text)
        share += exact[text]
    counts, shares = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for text, p in exact.items():
        counts[() if text in rare else text] += got[text]
        shares[() if text in rare else text] += p  # type: ignore[assignment]
    assert_distributed(counts, dict(shares))


adjusting = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.8, 2.0]),
        "seed": st.integers(0, 2**64 - 1),
        "presence_penalty": st.sampled_from([0.0, 1.0, -2.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.5, 2.0]),
        "repeat_penalty": st.sampled_from([1.0, 1.5, 0.5]),
        "repeat_last_n": st.sampled_from([-1, 1, 4]),
        "logit_bias": st.sampled_from([(), ((0, -5.0),), ((3, 4.0), (7, -100.0))]),
    }
)


@given(
    rule=rules,
    name=drafter_names,
    length=draft_lengths,
    sampling=adjusting,
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8),
    words=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=3), max_size=4),
    ends=st.frozensets(st.integers(0, VOCAB - 1), max_size=2),
    min_tokens=st.integers(0, 12),
    scores=st.sampled_from([None, 0, 3]),
)
def test_no_drafter_changes_an_adjusted_answer_or_its_log_probabilities(
    rule: Rule,
    name: str,
    length: int,
    sampling: dict[str, Any],
    prompt: list[int],
    words: list[list[int]],
    ends: frozenset[int],
    min_tokens: int,
    scores: int | None,
) -> None:
    """Good drafters and hostile ones; two sequences share each pass, caches are right after every step."""

    def told(drafter: Any) -> list[tuple[Any, ...]]:
        run = Run(decoder_of(rule, drafter, length))
        for choice in range(2):
            sequence = Sequence(
                list(prompt),
                Sampling(**sampling, choice=choice),
                20,
                ends,
                min_tokens=min_tokens,
                bans=[BannedSequences(words)] if words else [],
                logprobs=scores,
            )
            run.sequences.append(sequence)
            run.emitted[sequence.key] = run.decoder.prefill(sequence)
        run.finish()
        return [
            (s.tokens, s.finish_reason, [token.logprobs for token in run.emitted[s.key]])
            for s in run.sequences
        ]

    assert told(MAKERS[name](rule)) == told(None)


def test_a_step_that_fails_leaves_no_guess_in_the_history() -> None:
    """The same step again gives what it would have given at first."""

    def request() -> Sequence:
        return Sequence([1, 2], Sampling(frequency_penalty=2.0, repeat_penalty=1.5), 30)

    plain = [token.id for token in decoder_of(uniform(VOCAB)).run(request())]
    decoder = decoder_of(uniform(VOCAB), MAKERS["itself"](uniform(VOCAB)), 4)
    assert isinstance(decoder.engine, ScriptedEngine)
    sequence = request()
    decoder.prefill(sequence)
    for number in range(2, 40, 3):
        decoder.engine.failures[number] = RuntimeError("out of order")
    while sequence.finish_reason is None:
        try:
            decoder.step([sequence])
        except RuntimeError:
            continue
    assert not decoder.engine.failures.keys() & {2, 5}
    assert sequence.tokens[2:] == plain
    assert len(set(plain)) == VOCAB
