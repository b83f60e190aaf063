"""Every option of the sampler, through the library: plain rules, and the same answer with any drafter."""

# ruff: noqa: D102 - the protocols say what their methods do

from __future__ import annotations

import dataclasses
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish.control import FixedLength
from pilotfish.drafters.either import Either
from pilotfish.drafters.model import ModelDrafter
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.scripted import ScriptedEngine, mistaken, ngrams
from pilotfish.errors import UsageError
from pilotfish.llm import LLM
from pilotfish.logprobs import logprobs
from pilotfish.options import Options
from sampling_rules import answered
from strategies import HOSTILE, Fake
from tiny import END, VOCAB_SIZE, tiny_engine, tiny_llm, tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotfish.answer import Result
    from pilotfish.control import Control
    from pilotfish.drafters.base import Drafter
    from pilotfish.engines.scripted import Rule
    from pilotfish.model import TextModel

ALPHABET = [*b"abcd \n", END]
TINY = tiny_model()


def target(rule: Rule) -> TextModel:
    return dataclasses.replace(TINY, engine=tiny_engine(rule))


@lru_cache(maxsize=8)
def letters(seed: int) -> Rule:
    """Return a rule that says few letters, and ends now and then."""
    base = ngrams(len(ALPHABET), 2, seed)

    @lru_cache(maxsize=4096)
    def row(last: tuple[int, ...]) -> np.ndarray:
        logits = np.full(VOCAB_SIZE, -30, np.float32)
        logits[ALPHABET] = np.asarray(base(last)) / 2
        return logits

    return lambda tokens: row(tuple(tokens[-2:]))


def _wrong(rule: Rule) -> Drafter:
    return Fake(lambda tokens, limit: [(int(np.argmax(rule(tokens))) + 1) % 256] * limit)


def _model(rule: Rule) -> ModelDrafter:
    return ModelDrafter(tiny_engine(rule), "model")


DRAFTERS: dict[str, Callable[[Rule], Drafter]] = {
    "suffix": lambda _rule: SuffixDrafter(min_match=1),
    "itself": _model,
    "poor model": lambda rule: _model(mistaken(rule, 0.3)),
    "either": lambda rule: Either(SuffixDrafter(), _model(mistaken(rule, 0.2))),
    "always wrong": _wrong,
    "always end": lambda _rule: Fake(lambda _tokens, limit: [END] * limit),
    **{name: HOSTILE[name] for name in ("raising", "too many tokens", "negative ids", "one draft too many")},
}


class Given(Drafting):
    """Always this drafter, at this length; plain decoding where the answer asks for it."""

    def __init__(self, drafter: Drafter, length: int) -> None:
        super().__init__(Wish())
        self.drafter, self.length = drafter, length

    def choose(self, draft_length: Any) -> tuple[Drafter | None, Control]:
        return (None if draft_length == 0 else self.drafter), FixedLength(self.length)


def drafted_llm(rule: Rule, name: str, length: int) -> LLM:
    return LLM(target(rule), Given(DRAFTERS[name](rule), length))


def told(llm: LLM, prompt: str, **options: Any) -> list[tuple[Any, ...]]:
    """Return all that an answer says, but for who drafted it; nothing may be left in the engine."""
    answer = llm.stream(prompt, **options)
    events = list(answer)
    result = answer.result()
    for i, one in enumerate(result.choices):
        own = [event for event in events if event.choice == i]
        assert [event.token for event in own] == one.tokens
        assert "".join(event.text for event in own) == one.text
        assert [event.finish_reason for event in own] == [None] * (len(own) - 1) + [one.finish_reason]
        if one.logprobs is not None:
            assert [event.logprob for event in own] == one.logprobs
            assert [event.top_logprobs for event in own] == one.top_logprobs
        assert one.stats.tokens == sum(not event.echo for event in own)
        assert one.stats.accepted == sum(event.drafted_by is not None for event in own)
    assert isinstance(llm.target.engine, ScriptedEngine)
    assert llm.target.engine.sequences == {}
    return [
        (one.tokens, one.text, one.finish_reason, one.logprobs, one.top_logprobs) for one in result.choices
    ]


def drawn(draw: random.Random) -> dict[str, Any]:
    """Return options at random; each of them is often left out."""

    def some(*values: Any, share: float = 0.35) -> Any:
        return draw.choice(values) if draw.random() < share else None

    max_tokens = draw.randint(1, 24)
    temperature = some(0.3, 0.8, 1.0, 1.7, share=0.7)
    wanted = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": draw.getrandbits(64),
        "top_k": some(1, 2, 4),
        "top_p": some(0.5, 0.9),
        "min_p": some(0.05, 0.3),
        "presence_penalty": some(-2.0, 0.6, 2.0),
        "frequency_penalty": some(-0.5, 0.2, 1.5),
        "repeat_penalty": some(0.7, 1.1, 2.0),
        "repeat_last_n": some(0, 1, 3, 64),
        "logit_bias": some({ALPHABET[0]: 5.0, END: -2.0}, {ALPHABET[3]: -100.0}, {ord("~"): 40.0}),
        "bad_words": some("ab", ["a", " c"], [[ALPHABET[1], ALPHABET[2]], "dd"], [[END]], ["bab", "b b"]),
        "min_tokens": some(1, max_tokens // 2, max_tokens),
        "ignore_eos": some(True),
        "stop": some("b", ["aa", "c d"], ["dc", "\n"]),
        "n": some(2, 3, share=0.25),
        "logprobs": some(True),
        "echo": some(True, share=0.2),
    }
    options = {name: value for name, value in wanted.items() if value is not None}
    if "logprobs" in options and draw.random() < 0.5:
        options["top_logprobs"] = draw.choice([1, 5, 20])
    return options


@pytest.mark.parametrize("number", range(200))
def test_any_combination_of_options_gives_the_same_answer_with_and_without_drafts(number: int) -> None:
    """And the plain answer is that of the rules, written down another way."""
    draw = random.Random(number)  # noqa: S311 - drawn anew each time
    rule, options = letters(number % 5), drawn(draw)
    prompt = "".join(draw.choices("abcd ", k=draw.randint(1, 9)))
    llm = LLM(target(rule))
    plain = told(llm, prompt, **options)
    if number % 2 == 0:
        pieces = [llm.target.tokenizer.token_bytes(token) for token in range(VOCAB_SIZE)]
        shown = prompt if options.get("echo") else ""
        expected = answered(rule, pieces, list(prompt.encode()), frozenset([END]), Options(**options))
        ids, text, reason = plain[0][:3]
        assert (ids[len(shown) :], text.removeprefix(shown), reason) == expected
    for name in draw.sample(sorted(DRAFTERS), 3):
        assert told(drafted_llm(rule, name, draw.randint(1, 8)), prompt, **options) == plain


@pytest.mark.parametrize("name", sorted(DRAFTERS))
@pytest.mark.parametrize("length", [1, 4, 16])
def test_all_options_at_once_with_every_drafter(name: str, length: int) -> None:
    options: dict[str, Any] = {
        "max_tokens": 40,
        "temperature": 0.9,
        "seed": 11,
        "top_p": 0.98,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.1,
        "repeat_penalty": 1.1,
        "repeat_last_n": 5,
        "logit_bias": {END: -1.0},
        "bad_words": ["ba", [ALPHABET[3], ALPHABET[3]]],
        "min_tokens": 10,
        "stop": "cc",
        "n": 3,
        "logprobs": True,
        "top_logprobs": 3,
        "echo": True,
    }
    plain = told(LLM(target(letters(1))), "abcab", **options)
    assert len({tuple(one[0]) for one in plain}) == 3
    assert told(drafted_llm(letters(1), name, length), "abcab", **options) == plain


def test_a_draft_model_that_is_the_target_is_always_right_under_penalties_and_bans() -> None:
    """It chooses by the same adjusted rule, so nothing is lost."""
    llm = drafted_llm(letters(2), "itself", 4)
    result = llm.generate(
        "abca",
        max_tokens=61,
        temperature=0.9,
        seed=2,
        frequency_penalty=0.3,
        repeat_penalty=1.3,
        bad_words=["ab"],
        ignore_eos=True,
    )
    assert result.stats.accepted == result.stats.drafted == 48
    assert "ab" not in result.text


@pytest.mark.parametrize(
    ("penalty", "text"),
    [
        ({}, "aaaaaaa"),
        ({"presence_penalty": 0.6}, "abaaaaa"),
        ({"frequency_penalty": 0.6}, "abacbad"),
        ({"repeat_penalty": 2.0}, "abcaaaa"),
        ({"repeat_penalty": 2.0, "repeat_last_n": 2}, "abcabca"),
    ],
)
def test_penalties_are_what_they_are_said_to_be(penalty: Any, text: str) -> None:
    """The logits are always 3, 2.5, 2 and 1.5 for a, b, c and d."""
    row = np.full(VOCAB_SIZE, -30, np.float32)
    row[[*b"abcd"]] = 3, 2.5, 2, 1.5
    for name in ("itself", "suffix"):
        llm = drafted_llm(lambda _tokens: row, name, 3)
        assert llm.generate("x", max_tokens=7, **penalty).text == text


def test_a_bias_of_100_is_the_only_thing_said_and_minus_100_is_not_said() -> None:
    llm = LLM(target(letters(0)))
    settings: dict[str, Any] = {"max_tokens": 20, "temperature": 1.0, "seed": 1}
    assert llm.generate("ab", **settings, logit_bias={ord("d"): 100.0}).text == "d" * 20
    said = llm.generate("ab", **settings, logit_bias={ord("a"): -100.0, END: -100.0}).text
    assert "a" not in said
    assert len(said) == 20


def test_bad_words_never_stand_in_the_text_whatever_tokens_make_them() -> None:
    llm = LLM(target(letters(4)))
    settings: dict[str, Any] = {"max_tokens": 200, "temperature": 1.0, "ignore_eos": True, "seed": 3}
    plain = llm.generate("abcd", **settings).text
    words = [plain[3], plain[10:12], plain[50:53]]
    result = llm.generate("abcd", **settings, bad_words=words)
    assert not any(word in result.text for word in words)
    assert len(result.text) > 150


def test_bad_words_are_looked_for_in_the_answer_only() -> None:
    """The prompt ends with half of one."""
    assert tiny_llm({"xa": "b"}).generate("xa", bad_words="ab").text == "b"


@pytest.mark.parametrize("length", [0, 1, 3, 8])
def test_before_min_tokens_no_end_token_is_said_and_no_stop_string_counts(length: int) -> None:
    rule = letters(2)
    for least in (1, 5, 20):
        settings: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_tokens": 20, "stop": ["a", "bc"]}
        llm = drafted_llm(rule, "poor model", length or 1)
        result = llm.generate("abc", min_tokens=least, speculate=length > 0, **settings)
        assert len(result.tokens) >= least
        assert END not in result.tokens[:least]
        assert LLM(target(rule)).generate("abc", **settings).stats.tokens < 5


def test_right_behind_min_tokens_the_end_may_come() -> None:
    llm = tiny_llm({"p": "ab"})
    assert llm.generate("p", min_tokens=2).tokens == [*b"ab", END]
    assert llm.generate("p", min_tokens=3, max_tokens=9).tokens == [*b"ab", 0, END]


def test_a_stop_string_that_is_complete_after_min_tokens_counts_though_it_began_before() -> None:
    llm = tiny_llm({"p": "ab ab ab"})
    assert llm.generate("p", stop="ab").text == ""
    assert llm.generate("p", stop="ab", min_tokens=2).text == "ab "
    assert llm.generate("p", stop="ab", min_tokens=4).text == "ab "
    assert llm.generate("p", stop="ab", min_tokens=5).text == "ab ab "
    assert llm.generate("p", stop="ab", min_tokens=8).text == "ab ab ab"


def test_with_ignore_eos_end_tokens_have_no_text_and_end_nothing() -> None:
    llm = tiny_llm({"p": [*b"ab", END, *b"cd", END, *b"ef"]})
    result = llm.generate("p", ignore_eos=True, max_tokens=8)
    assert (result.text, result.finish_reason) == ("abcdef", "length")
    assert result.tokens == [*b"ab", END, *b"cd", END, *b"ef"]
    assert llm.generate("p", ignore_eos=True, stop="bcd").text == "a"


def test_choices_share_the_prompt_and_one_seed_and_each_is_what_it_is_alone() -> None:
    rule = letters(1)
    llm = LLM(target(rule))
    engine = llm.target.engine
    assert isinstance(engine, ScriptedEngine)
    result = llm.generate("abcabcabc", n=4, temperature=1.0, seed=9, max_tokens=30, ignore_eos=True)
    assert engine.tokens == 9 + 4 * 29  # the prompt once
    assert engine.passes == 1 + 29
    assert [one.seed for one in result.choices] == [9] * 4
    assert len({tuple(one.tokens) for one in result.choices}) == 4
    fewer = llm.generate("abcabcabc", n=2, temperature=1.0, seed=9, max_tokens=30, ignore_eos=True)
    assert [one.tokens for one in fewer.choices] == [one.tokens for one in result.choices[:2]]
    assert (
        fewer.tokens
        == llm.generate("abcabcabc", temperature=1.0, seed=9, max_tokens=30, ignore_eos=True).tokens
    )


def test_choices_that_end_early_let_the_others_go_on() -> None:
    llm = drafted_llm(letters(0), "poor model", 3)
    result = llm.generate("ab", n=8, temperature=1.2, seed=1, max_tokens=40)
    lengths = [len(one.tokens) for one in result.choices]
    assert len(set(lengths)) > 3
    assert all(one.stats.tokens == length for one, length in zip(result.choices, lengths, strict=True))


def test_an_answer_of_several_choices_that_is_left_frees_all_of_them() -> None:
    llm = drafted_llm(letters(0), "itself", 3)
    answer = llm.stream("ab", n=3, temperature=1.0, ignore_eos=True)
    for _ in range(5):
        next(answer)
    answer.close()
    assert isinstance(llm.target.engine, ScriptedEngine)
    assert llm.target.engine.sequences == {}
    with pytest.raises(UsageError, match="left before its end"):
        answer.result()


def scored(result: Result, rule: Rule, prompt: list[int], top: int) -> None:
    """Assert that log-probabilities are those of the rule's own rows."""
    assert result.logprobs is not None
    assert result.top_logprobs is not None
    for i, token in enumerate(result.tokens):
        row = np.asarray(rule((*prompt, *result.tokens[:i])), np.float32)
        expected = logprobs(row, token, top)
        assert result.logprobs[i] == expected.logprob
        assert result.top_logprobs[i] == expected.top


@pytest.mark.parametrize("name", ["poor model", "suffix", "too many tokens"])
def test_log_probabilities_are_those_of_the_targets_raw_logits(name: str) -> None:
    """Neither temperature nor penalties nor bans nor truncation change them."""
    rule = letters(3)
    settings: dict[str, Any] = {"max_tokens": 25, "temperature": 0.7, "seed": 4, "top_k": 3}
    settings |= {"repeat_penalty": 1.5, "bad_words": ["ab"], "logit_bias": {ord("c"): 3.0}, "stop": "dd"}
    result = drafted_llm(rule, name, 5).generate("abc", logprobs=True, top_logprobs=4, **settings)
    scored(result, rule, list(b"abc"), 4)


def test_without_logprobs_there_are_none() -> None:
    result = tiny_llm({"p": "ab"}).generate("p")
    assert (result.logprobs, result.top_logprobs) == (None, None)


def test_echo_begins_with_the_prompt_and_scores_its_tokens() -> None:
    rule = letters(3)
    llm = LLM(target(rule))
    prompt = "abca" * 20
    events = list(llm.stream(prompt, echo=True, logprobs=True, top_logprobs=2, max_tokens=5, stop="bca"))
    assert [event.echo for event in events[:81]] == [True] * 80 + [False]
    assert "".join(event.text for event in events[:80]) == prompt
    ids = [event.token for event in events]
    assert ids[:80] == list(prompt.encode())
    assert (events[0].logprob, events[0].top_logprobs) == (None, ())
    for i, event in enumerate(events[1:], start=1):
        row = np.asarray(rule(tuple(ids[:i])), np.float32)
        assert (event.logprob, event.top_logprobs) == dataclasses.astuple(logprobs(row, ids[i], 2))
    alone = llm.generate(prompt, max_tokens=5, stop="bca")
    result = llm.generate(prompt, echo=True, max_tokens=5, stop="bca")
    assert (result.text, result.tokens) == (prompt + alone.text, [*prompt.encode(), *alone.tokens])
    assert result.stats.tokens == alone.stats.tokens
    assert result.logprobs is None


def test_echo_gives_special_tokens_and_characters_of_several_bytes_back_as_written() -> None:
    llm = tiny_llm({})
    prompt = "<|im_start|>für 🐟<|im_end|>"
    events = list(llm.stream(prompt, echo=True))
    assert "".join(event.text for event in events) == prompt
    assert [event.text for event in events[:4]] == ["<|im_start|>", "f", "", "ü"]


def test_echo_of_several_choices_is_in_each() -> None:
    result = tiny_llm({"p": "ab"}).generate("p", echo=True, n=2, logprobs=True)
    assert [one.text for one in result.choices] == ["pab", "pab"]
    assert [one.logprobs for one in result.choices] == [result.logprobs] * 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"presence_penalty": 3}, "presence_penalty 3"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty nan"),
        ({"repeat_penalty": 0}, "repeat_penalty 0"),
        ({"repeat_last_n": -5}, "repeat_last_n -5"),
        ({"logit_bias": [1]}, "logit_bias is [1]"),
        ({"logit_bias": {3: 1000}}, "logit_bias 1000 of token 3"),
        ({"logit_bias": {258: 1}}, "logit_bias has the id 258"),
        ({"logit_bias": {"a": 1}}, "logit_bias has the id 'a'"),
        ({"bad_words": 3}, "bad_words is 3"),
        ({"bad_words": b"no"}, "bad_words is b'no'"),
        ({"bad_words": [""]}, "a bad word is ''"),
        ({"bad_words": ["\ud800"]}, "a bad word is '\\ud800'"),
        ({"bad_words": [[]]}, "a bad word is []"),
        ({"bad_words": [None]}, "a bad word is None"),
        ({"bad_words": [[1, -1]]}, "an id of bad_words is -1"),
        ({"bad_words": [[300]]}, "bad_words has the id 300"),
        ({"bad_words": [[token] for token in range(258)]}, "bad_words ban every token"),
        ({"min_tokens": -1}, "min_tokens is -1"),
        ({"min_tokens": 300}, "min_tokens is 300, but max_tokens is 256"),
        ({"ignore_eos": 1}, "ignore_eos is 1"),
        ({"n": 0}, "n is 0"),
        ({"n": 129}, "n is 129"),
        ({"logprobs": 5}, "logprobs is 5"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs is 21"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs is -1"),
        ({"top_logprobs": 2}, "top_logprobs is 2, but logprobs is False"),
        ({"echo": "yes"}, "echo is 'yes'"),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error_that_names_it(options: Any, named: str) -> None:
    llm = tiny_llm({})
    with pytest.raises(UsageError) as caught:
        llm.stream("hi", **options)
    assert named in caught.value.message
    assert caught.value.hint
