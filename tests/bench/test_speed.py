"""What `bench speed` reports is what the clock and the counters said, and no mode gets a head start."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.bench.prompts import Prompt
from pilotfish.bench.speed import (
    AGAIN,
    AUTO,
    MODEL,
    MODES,
    PLAIN,
    SUFFIX,
    Answered,
    Measured,
    Report,
    Settings,
    SpeedBench,
    ids_sha256,
    starts,
)
from pilotfish.control import FixedLength
from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.scripted import ScriptedEngine, mistaken, ngrams
from pilotfish.errors import UsageError
from pilotfish.stats import Stats
from tiny import VOCAB_SIZE, says, tiny_draft, tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pilotfish.bench.speed import Start
    from pilotfish.drafters.base import View
    from pilotfish.engines.scripted import Rule
    from pilotfish.model import Model, TextModel

PROMPTS = [
    Prompt(f"p{i}", category, (text,))
    for i, (category, text) in enumerate([("a", "one"), ("b", "two"), ("a", "six")])
]
SETTINGS = Settings(max_tokens=20)


def engine_of(model: Model) -> ScriptedEngine:
    return model.engine  # type: ignore[return-value]


def pass_clock(target: Model, draft: Model | None = None, cost: float = 0.0) -> Callable[[], float]:
    """A second a pass of the target and `cost` seconds a pass of the draft model, and no time else."""
    return lambda: engine_of(target).passes + (cost * engine_of(draft).passes if draft else 0.0)


def bench(
    modes: Sequence[str] = MODES,
    rule: Rule | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    repeats: int = 1,
    settings: Settings = SETTINGS,
) -> Report:
    target = tiny_model(rule)
    draft = tiny_draft(mistaken(rule or ngrams(VOCAB_SIZE), 0.2))
    clock = pass_clock(target, draft, 0.25)
    report = SpeedBench(target, starts(modes, draft), settings, clock).run(prompts, repeats)
    assert engine_of(target).sequences == engine_of(draft).sequences == {}
    return report


def test_a_ratio_is_plain_seconds_over_the_modes_seconds() -> None:
    """A plain answer of 20 tokens takes 19 passes; a drafted one its passes, and the draft model's."""
    report = bench()
    assert report.modes == MODES
    for mode in MODES:
        rates = report.rates(mode)
        spent = sum(p.decode_s(mode) for p in report.prompts)
        assert rates.ratio == 3 * 19 / spent
        # One pass reads each prompt, in every mode.
        assert rates.ratio_total == (3 * 20) / (spent + 3)
        assert rates.tokens_per_s == 3 * 19 / spent
        assert rates.tokens_per_pass == 3 * 19 / sum(p.middle(mode).stats.passes for p in report.prompts)
    assert report.rates(PLAIN).ratio == report.rates(PLAIN).tokens_per_pass == 1.0
    assert report.rates(MODEL).ratio != 1.0
    assert report.rates(MODEL).acceptance > 0.3
    assert (report.plain_vs_plain, report.valid, report.different) == (1.0, True, [])


def test_a_category_is_over_its_own_prompts() -> None:
    report = bench()
    assert report.categories == ["a", "b"]
    (only,) = (p for p in report.prompts if p.category == "b")
    assert report.rates(MODEL, "b").ratio == 19 / only.decode_s(MODEL)
    first, _, third = report.prompts
    assert report.rates(MODEL, "a").ratio == 2 * 19 / (first.decode_s(MODEL) + third.decode_s(MODEL))


@pytest.mark.parametrize(
    ("mode", "drafter", "reads"), [(SUFFIX, "suffix", False), (MODEL, "tiny-draft", True)]
)
def test_the_modes_are_what_their_names_say(mode: str, drafter: str, reads: bool) -> None:
    """`suffix` never asks the draft model, which says here what the target would; `model` does."""
    target, draft = tiny_model(), tiny_draft()
    modes = starts([mode], draft)
    made = modes[mode](Beliefs())[0]
    assert made is not None
    assert made.name == drafter
    assert list(modes) == [PLAIN, mode]
    assert modes[PLAIN](Beliefs())[0] is None
    report = SpeedBench(target, modes, SETTINGS, pass_clock(target)).run(PROMPTS, 1)
    assert (engine_of(draft).passes > 0) == reads
    assert report.prompts[0].answers[PLAIN][0].stats.drafted == 0


def test_a_mode_that_can_not_be_is_refused() -> None:
    with pytest.raises(UsageError, match="modes has 'model', and there is no draft model"):
        starts([MODEL], None)
    with pytest.raises(UsageError, match="modes has 'fast'"):
        starts(["fast"], tiny_draft())


class Watched:
    """Remembers which mode was started when, and hands out whatever `make` gives."""

    def __init__(self, modes: Iterable[str], make: Callable[[], Start | Any]) -> None:
        self.started: list[str] = []
        self.beliefs: list[Beliefs] = []
        self.starts: dict[str, Start] = {mode: self._noting(mode, make) for mode in modes}

    def _noting(self, mode: str, make: Callable[[], Any]) -> Start:
        def start(beliefs: Beliefs) -> Any:
            self.started.append(mode)
            self.beliefs.append(beliefs)
            return (None if mode == PLAIN else make()), FixedLength(4)

        return start


def orders(repeats: int, prompts: int) -> list[tuple[str, ...]]:
    """Return the modes in the order in which they answered each prompt, in the order asked."""
    watched = Watched([PLAIN, SUFFIX, AUTO], SuffixDrafter)
    target = tiny_model()
    asked = [Prompt(str(i), "c", (f"text {i}",)) for i in range(prompts)]
    SpeedBench(target, watched.starts, SETTINGS, pass_clock(target)).run(asked, repeats)
    found = [tuple(watched.started[i : i + 4]) for i in range(0, len(watched.started), 4)]
    assert len(found) == 1 + repeats * prompts
    return found[1:]  # the first are the warm-up


@pytest.mark.parametrize(("repeats", "prompts"), [(4, 1), (1, 4), (4, 4), (4, 5)])
def test_all_modes_answer_a_prompt_before_the_next_and_take_turns_to_be_first(
    repeats: int, prompts: int
) -> None:
    found = orders(repeats, prompts)
    assert all(Counter(order) == {PLAIN: 2, SUFFIX: 1, AUTO: 1} for order in found)
    for prompt in range(prompts):
        if repeats == 4:  # as many as there are answers to a prompt
            assert Counter(found[i][0] for i in range(prompt, len(found), prompts))[SUFFIX] == 1
    if prompts == 4:
        for repeat in range(repeats):
            firsts = Counter(order[0] for order in found[repeat * 4 : repeat * 4 + 4])
            assert firsts == {PLAIN: 2, SUFFIX: 1, AUTO: 1}


def test_beliefs_are_a_modes_own_and_last_for_one_repeat() -> None:
    """They are handed on from prompt to prompt; a repeat meets the same prompts without them."""
    watched = Watched([PLAIN, SUFFIX], SuffixDrafter)
    target = tiny_model()
    SpeedBench(target, watched.starts, SETTINGS, pass_clock(target)).run(PROMPTS[:2], 2)
    suffix = [id(b) for mode, b in zip(watched.started, watched.beliefs, strict=True) if mode == SUFFIX]
    _warm, first, second, third, fourth = suffix
    assert first == second != third == fourth
    assert len({id(b) for b in watched.beliefs}) == 3 * 3


def test_the_two_plain_answers_do_not_follow_each_other() -> None:
    assert orders(1, 1) == [(PLAIN, SUFFIX, PLAIN, AUTO)]


class Remembering:
    """A drafter with a memory of all answers: it proposes what came the last time after the same text."""

    name = "remembering"

    def __init__(self) -> None:
        self.seen: dict[tuple[int, ...], int] = {}

    def propose(self, sequences: Sequence[View], limits: Sequence[int]) -> list[Draft]:
        """Return one token if the whole text is known."""
        del limits
        found = [self.seen.get(tuple(view.tokens)) for view in sequences]
        return [NO_DRAFT if token is None else Draft((token,), (1.0,)) for token in found]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Remember what followed each beginning of the text."""
        del draft, accepted
        tokens = tuple(sequence.tokens)
        self.seen |= {tokens[:i]: tokens[i] for i in range(1, len(tokens))}

    def forget(self, key: int) -> None:
        """Keep everything."""


@pytest.mark.parametrize("shared", [False, True])
def test_no_drafter_meets_a_prompt_again(shared: bool) -> None:
    """One that remembers gains nothing from repeats; were it handed on between answers, it would."""
    one = Remembering()
    watched = Watched([PLAIN, "m"], (lambda: one) if shared else Remembering)
    target = tiny_model()
    report = SpeedBench(target, watched.starts, SETTINGS, pass_clock(target)).run(PROMPTS, 3)
    drafted = [answer.stats.drafted for p in report.prompts for answer in p.answers["m"]]
    assert len(drafted) == 9
    assert any(drafted) == shared


def test_every_answer_starts_with_drafter_and_control_of_its_own() -> None:
    draft = tiny_draft()
    for mode, start in starts(MODES, draft).items():
        first, second = start(Beliefs())[0], start(Beliefs())[0]
        assert first is not second or mode == PLAIN


def test_a_prompt_is_read_once_for_all_modes_and_counts_for_each() -> None:
    target = tiny_model()
    asked = [Prompt("1", "c", ("a prompt of some length " * 20,))]
    bench = SpeedBench(target, starts([PLAIN, SUFFIX], None), SETTINGS, pass_clock(target))
    found = bench.run(asked, 2).prompts[0]
    engine = target.engine
    assert isinstance(engine, ScriptedEngine)
    assert found.prompt_tokens > 200
    assert engine.tokens < 3 * found.prompt_tokens + 500
    assert found.prompt_s(PLAIN) == found.prompt_s(SUFFIX) == found.prompt_s(AGAIN) > 0
    assert not engine.sequences


def test_a_run_in_which_plain_decoding_differs_from_itself_is_invalid() -> None:
    """Here the machine grows slower with each pass."""
    target = tiny_model()
    clock = lambda: float(engine_of(target).passes) ** 2  # noqa: E731
    report = SpeedBench(target, starts([PLAIN], None), SETTINGS, clock).run(PROMPTS[:1], 1)
    assert report.plain_vs_plain is not None
    assert report.plain_vs_plain < 0.98
    assert not report.valid
    assert report.as_dict()["valid"] is False


@pytest.mark.parametrize(
    ("again", "valid"), [(100.0, True), (98.1, True), (101.9, True), (97.9, False), (102.1, False)]
)
def test_plain_decoding_may_differ_from_itself_by_two_percent(again: float, valid: bool) -> None:
    report = Report((PLAIN,), 0, [measured("p", {PLAIN: [(again, 100.0)], AGAIN: [(100.0, 100.0)]})])
    assert report.plain_vs_plain == again / 100.0
    assert report.valid == valid


def measured(name: str, seconds: dict[str, list[tuple[float, float]]], category: str = "c") -> Measured:
    """Return a prompt with 11 tokens in each answer, and decode and prompt seconds as given, one a repeat."""
    found = Measured(name, category, 5)
    for mode, times in seconds.items():
        found.answers[mode] = [
            Answered((*range(11),), Stats(tokens=11, passes=10, decode_s=decode, prompt_s=prompt))
            for decode, prompt in times
        ]
    return found


def test_seconds_are_medians_over_repeats() -> None:
    """The example is worked out by hand: medians 4 and 2 on the one prompt, 10 and 5 on the other."""
    first = measured(
        "p", {PLAIN: [(4, 1), (3, 7), (90, 2)], SUFFIX: [(1, 2), (2, 1), (50, 2)], AGAIN: [(4, 1)] * 3}
    )
    second = measured("q", {PLAIN: [(10, 3)] * 3, SUFFIX: [(5, 3)] * 3, AGAIN: [(10, 3)] * 3})
    report = Report((PLAIN, SUFFIX), 0, [first, second])
    rates = report.rates(SUFFIX)
    assert rates.ratio == (4 + 10) / (2 + 5)
    assert rates.ratio_total == (4 + 2 + 10 + 3) / (2 + 2 + 5 + 3)
    assert rates.tokens_per_s == 20 / 7
    assert report.plain_vs_plain == 1.0
    assert first.middle(SUFFIX).stats.decode_s == 2


def test_answers_that_differ_are_counted_out_of_the_ratio_and_named() -> None:
    same = measured("p", {PLAIN: [(4, 1)], SUFFIX: [(2, 1)], AGAIN: [(4, 1)]})
    other = measured("q", {PLAIN: [(10, 1)], SUFFIX: [(1, 1)], AGAIN: [(10, 1)]})
    other.answers[SUFFIX] = [Answered((1, 2), other.answers[SUFFIX][0].stats)]
    report = Report((PLAIN, SUFFIX), 0, [same, other])
    assert report.different == [("q", SUFFIX)]
    assert report.as_dict()["identical"] is False
    assert report.rates(SUFFIX).ratio == 2.0
    assert report.plain_vs_plain == 1.0


def test_one_repeat_that_differs_is_enough() -> None:
    prompt = measured("p", {PLAIN: [(4, 1)] * 2, SUFFIX: [(2, 1)] * 2, AGAIN: [(4, 1)] * 2})
    prompt.answers[PLAIN][1] = Answered((9,), Stats(tokens=1))
    report = Report((PLAIN, SUFFIX), 0, [prompt])
    assert report.different == [("p", PLAIN), ("p", SUFFIX), ("p", AGAIN)]
    assert report.rates(SUFFIX).ratio is None


def test_ids_are_hashed_as_little_endian_32_bit_numbers() -> None:
    assert ids_sha256([1, 258]) == hashlib.sha256(bytes([1, 0, 0, 0, 2, 1, 0, 0])).hexdigest()


def test_the_report_has_the_names_of_the_format() -> None:
    report = bench().as_dict()
    assert list(report) == [
        "identical", "plain_vs_plain", "valid", "prompts", "categories", "overall", "skipped",
    ]  # fmt: skip
    first: Any = report["prompts"][0]  # type: ignore[index]
    assert list(first) == ["id", "category", "prompt_tokens", "modes"]
    assert list(first["modes"]) == list(MODES)
    assert list(first["modes"][MODEL]) == [
        "tokens", "ids_sha256", "prompt_s", "decode_s", "passes", "drafted", "accepted", "drafted_at",
        "accepted_at", "parts_s",
    ]  # fmt: skip
    assert first["modes"][MODEL]["decode_s"] == pytest.approx(sum(first["modes"][MODEL]["parts_s"].values()))
    rates = ["tokens_per_s", "ratio", "ratio_total", "tokens_per_pass", "acceptance"]
    categories: Any = report["categories"]
    overall: Any = report["overall"]
    assert {(name, *map(tuple, modes.values())) for name, modes in categories.items()} == {
        (name, *[tuple(rates)] * 4) for name in ("a", "b")
    }
    assert list(overall[AUTO]) == [*rates, "ratio_ci95"]
    low, high = overall[MODEL]["ratio_ci95"]
    assert low <= overall[MODEL]["ratio"] <= high


def test_later_turns_are_prompts_of_their_own_and_follow_the_plain_answer() -> None:
    talk = [Prompt("t", "c", ("one", "two", "three"))]
    settings = Settings(max_tokens=4, turns="all", raw=True)
    rule = says({"one": b"un", "one\nun\ntwo": b"deux", "one\nun\ntwo\ndeux\nthree": b"trois"})
    report = bench([SUFFIX], rule, prompts=talk, settings=settings, repeats=2)
    assert [p.id for p in report.prompts] == ["t", "t/2", "t/3"]
    assert [bytes(p.answers[SUFFIX][1].ids[:3]) for p in report.prompts[1:]] == [b"deu", b"tro"]
    assert all(len(answers) == 2 for p in report.prompts for answers in p.answers.values())


def test_prompts_with_the_same_id_are_kept_apart() -> None:
    report = bench([PLAIN], prompts=[Prompt("x", "c", ("one",)), Prompt("x", "c", ("three",))])
    assert [len(p.answers[PLAIN]) for p in report.prompts] == [1, 1]


def test_what_does_not_fit_the_context_is_skipped_once() -> None:
    target: TextModel = tiny_model(context=8)
    settings = Settings(max_tokens=2, raw=True)
    prompts = [Prompt("long", "c", ("far too long for it",)), Prompt("short", "c", ("hi",))]
    report = SpeedBench(target, starts([PLAIN], None), settings, pass_clock(target)).run(prompts, 2)
    assert report.skipped == ["long"]
    assert [p.id for p in report.prompts] == ["short"]


def test_answers_of_one_token_leave_ratios_open() -> None:
    report = bench(settings=Settings(max_tokens=1)).as_dict()
    overall: Any = report["overall"]
    assert overall[MODEL]["ratio"] is overall[MODEL]["ratio_ci95"] is report["plain_vs_plain"] is None
    assert overall[MODEL]["tokens_per_s"] == 0.0
    assert report["valid"] is False


def test_progress_grows_to_one() -> None:
    shares: list[float] = []
    target = tiny_model()
    SpeedBench(target, starts([PLAIN], None), SETTINGS, pass_clock(target)).run(PROMPTS, 2, shares.append)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert len(shares) == 7
    assert all(a < b for a, b in itertools.pairwise(shares))


def test_sampled_answers_are_the_same_in_every_mode_and_follow_the_seed() -> None:
    ids = set()
    for temperature, seed in ((0.0, 3), (1.5, 3), (1.5, 4)):
        settings = Settings(max_tokens=20, temperature=temperature, seed=seed)
        report = bench([SUFFIX, MODEL], prompts=PROMPTS[:1], settings=settings, repeats=2)
        assert report.different == []
        ids.add(report.prompts[0].answers[PLAIN][0].ids)
    assert len(ids) == 3
