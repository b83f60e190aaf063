"""Never slower, nothing to tune: on made-up machines whose costs and texts are known exactly."""

from __future__ import annotations

import itertools
import statistics

import pytest

from pilotfish.control import LONGEST, FixedLength
from pilotfish.costs import Costs
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafters.model import READ_SLICE, READY
from pilotfish.drafters.plan import share_rows
from simulation import AVX2, FLAT, PROMPT, VNNI, Answer, Chance, Machine, Text, cost, hashed, noisy

TABLES = {"AVX2": AVX2, "VNNI": VNNI, "flat": FLAT}
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
each_machine = pytest.mark.parametrize("table", list(TABLES.values()), ids=list(TABLES))


def always(probability: float) -> Chance:
    return lambda _position: probability


def between(begin: int, end: int, inside: float, outside: float) -> Chance:
    return lambda position: inside if begin <= position - PROMPT < end else outside


def machine(table: dict[int, float], share: float = 0.3) -> Machine:
    """Make one whose draft model takes `share` of the target's pass, and is assumed to be a third slower."""
    return Machine(cost(table), cost(table, 0.05 * share), draft_ratio=share * 4 / 3)


def ratio(machine: Machine, text: Text, drafter: str, tokens: int = 200) -> float:
    return machine.answer(text, tokens, "off").seconds / machine.answer(text, tokens, drafter).seconds


NOTHING_HELPS = {
    "a model always wrong and sure": (Text(always(0.0), always(0.9)), "model"),
    "a model always wrong, sure at times": (Text(always(0.0), lambda p: hashed("claim", p)), "model"),
    "a lookup always wrong and sure": (Text(found_claims=always(0.9)), "found"),
    "random text": (Text(always(0.1), always(0.15), always(0.05), found=always(0.05)), "both"),
}


@each_machine
@pytest.mark.parametrize("name", NOTHING_HELPS)
def test_where_nothing_helps_the_loss_is_at_most_two_percent(table: dict[int, float], name: str) -> None:
    """On a first answer, with nothing known of the machine; 200 tokens, decode time."""
    text, drafter = NOTHING_HELPS[name]
    assert ratio(machine(table), text, drafter) >= 0.98


@each_machine
def test_two_drafters_always_wrong_and_sure_are_found_out_once(table: dict[int, float]) -> None:
    """Each costs its trials on the first answer; on the next one both are known, whatever they claim."""
    text = Text(always(0.0), always(0.9), found=always(0.0), found_claims=always(0.9))
    beliefs, costs = Beliefs(), Costs(0.4)
    first, second = (
        machine(table).answer(text, 200, "off").seconds
        / machine(table).answers([text], 200, "both", costs=costs, beliefs=beliefs)[0].seconds
        for _ in range(2)
    )
    assert first >= 0.98
    assert second >= 0.98


@each_machine
def test_a_draft_model_as_large_as_the_target_loses_nothing(table: dict[int, float]) -> None:
    large = machine(table, 1.0)
    large.draft_ratio = 1.0
    assert ratio(large, Text(always(1.0)), "model") >= 0.99


@pytest.mark.parametrize("table", [AVX2, VNNI], ids=["AVX2", "VNNI"])
@pytest.mark.parametrize("drafter", ["model", "found"])
@pytest.mark.parametrize("right", [0.6, 0.9])
def test_it_is_about_as_fast_as_the_best_fixed_length(
    table: dict[int, float], drafter: str, right: float
) -> None:
    """The best one in hindsight, over three first answers of 160 tokens; most are within 3 %."""
    fast, texts = machine(table), [Text(always(right), found=always(right), seed=s) for s in range(3)]
    best = min(sum(fast.answer(t, 160, drafter, length=k).seconds for t in texts) for k in LENGTHS)
    assert best / sum(fast.answer(t, 160, drafter).seconds for t in texts) >= 0.93


@pytest.mark.parametrize("table", [AVX2, VNNI], ids=["AVX2", "VNNI"])
def test_a_text_that_is_found_is_not_read_by_the_draft_model(table: dict[int, float]) -> None:
    """Although the model would be right too: nothing is lost by having it, once the answer is under way."""
    fast, text = machine(table), Text(always(0.9), found=between(2, 200, 0.95, 0.0))
    alone = fast.answer(text, 160, "found").seconds
    assert alone / fast.answer(text, 160, "both").seconds >= 0.97


@pytest.mark.parametrize("table", [AVX2, VNNI], ids=["AVX2", "VNNI"])
def test_a_text_that_is_not_found_is_soon_read_by_the_draft_model(table: dict[int, float]) -> None:
    """Waiting whether something will be found costs little of what the model gains."""
    fast, text = machine(table), Text(always(0.9))
    alone = fast.answer(text, 160, "model").seconds
    assert alone / fast.answer(text, 160, "both").seconds >= 0.9


def drafted(answer: Answer, begin: int, end: int) -> list[int]:
    return [s.drafted for s in answer.steps if begin <= s.position - PROMPT < end]


@pytest.mark.parametrize("drafter", ["found", "model"])
def test_a_change_inside_an_answer_is_followed_within_few_steps(drafter: str) -> None:
    """Useless, then perfect for 100 tokens, then useless again; the target's certainty follows the text."""
    change = between(100, 200, 1.0, 0.05)
    text = Text(
        change,
        between(100, 200, 0.97, 0.3),
        between(100, 200, 0.97, 0.2),
        change,
        between(100, 200, 0.9, 0.3),
    )
    answer = machine(AVX2).answer(text, 300, drafter)
    assert sum(drafted(answer, 30, 100)) <= 6
    assert max(drafted(answer, 100, 200)[:14]) >= 3
    assert statistics.mean(drafted(answer, 130, 190)) >= 8
    assert max(drafted(answer, 215, 299)) <= 1


def test_noise_and_outliers_change_nothing_essential() -> None:
    """Lognormal noise of 10 %, one pass in fifty five times too long; steps are priced without the noise."""
    for seed in range(4):
        noisy_machine = machine(AVX2)
        noisy_machine.noise = noisy(seed)
        for text, drafter, least, most in (
            (Text(always(0.9)), "model", 1.2, 4.0),
            (Text(found=always(0.9)), "found", 2.0, 9.0),
            (Text(always(0.0), always(0.9)), "model", 0.0, 0.1),
        ):
            answer = noisy_machine.answer(text, 200, drafter)
            assert least <= statistics.mean(s.drafted for s in answer.steps) <= most


def test_the_same_observations_give_the_same_decisions() -> None:
    text = Text(always(0.8), found=always(0.6))
    first, second = (machine(AVX2).answer(text, 120) for _ in range(2))
    assert first.steps == second.steps


def test_in_a_batch_rows_go_where_they_are_likely_right() -> None:
    texts = [
        Text(found=always(0.95), id=1, certainty=always(0.5)),
        Text(found=always(0.2), id=2, certainty=always(0.5)),
    ]
    good, poor = machine(AVX2).answers(texts, 80, "found")
    together = len(good.steps)
    assert sum(s.drafted for s in good.steps) > 5 * sum(s.drafted for s in poor.steps[:together])


def test_rows_are_shared_by_survival_until_they_cost_more_than_they_bring() -> None:
    costs = Costs()
    shared = share_rows([[0.9, 0.8, 0.7], [0.3, 0.1], []], [10, 10, 10], costs, 1.0)
    assert shared == [3, 1, 0]
    assert share_rows([[0.9, 0.8], [0.95]], [10, 10], costs, 100.0) == [0, 0]
    assert share_rows([], [], costs, 1.0) == []


def test_the_reason_for_not_drafting_is_said() -> None:
    answer = machine(AVX2).answer(Text(always(0.0), always(0.9)), 60, "model")
    assert answer.sequence.stats.drafting_off is not None
    assert "of the time to pay" in answer.sequence.stats.drafting_off
    assert machine(AVX2).answer(Text(), 60, "off").sequence.stats.drafting_off == "no drafts were asked for"
    found = machine(AVX2).answer(Text(found=always(0.0)), 60, "found").sequence.stats.drafting_off
    assert found == "nothing like the end of the text has occurred before"


def test_a_prompt_too_long_to_pay_for_is_not_read_by_the_model() -> None:
    """Ten tokens are left, and the model would read 24 for them."""
    slow_reader = Machine(cost(AVX2), lambda rows, context: 0.015 * rows + 0 * context)
    answer = slow_reader.answer(Text(always(0.9)), 6, "model")
    assert sum(s.drafted for s in answer.steps) == 0


@pytest.mark.parametrize("drafter", ["model", "both"])
def test_of_a_long_prompt_the_model_reads_the_end(drafter: str) -> None:
    """Reading all 3,000 tokens would take as long as the whole answer; the end of them says enough."""
    fast, text = machine(AVX2), Text(always(0.85), size=3000)
    assert fast.answer(text, 160, "off").seconds / fast.answer(text, 160, drafter).seconds >= 1.25


def test_where_the_end_does_not_say_enough_the_model_reads_all_if_many_tokens_are_left() -> None:
    """It does worse than usual and is not sure of itself: what it has not read may tell it."""
    fast, text = machine(AVX2), Text(always(0.9), partly=always(0.2), size=100)
    assert ratio(fast, text, "model", 1000) >= 1.3
    assert ratio(fast, text, "model", 100) >= 0.97


def test_a_model_that_is_sure_and_wrong_is_not_given_more_to_read() -> None:
    """Then its first tokens would not have helped it: it reads 24 of 3,000 tokens at each trial, no more."""
    fast, text = machine(AVX2), Text(always(0.9), partly=always(0.0), size=3000)
    sure = Text(always(0.9), always(0.9), partly=always(0.0), size=3000)
    assert ratio(fast, sure, "model") >= 0.98
    assert ratio(fast, text, "model") >= 0.96


def test_a_fixed_length_learns_nothing_and_says_what_was_asked() -> None:
    assert FixedLength(3).why(None) is None  # type: ignore[arg-type]


@each_machine
@pytest.mark.parametrize("drafter", ["model", "both"])
@pytest.mark.parametrize(("count", "good"), [(2, 0), (2, 1), (2, 2), (4, 1), (4, 4)])
def test_a_batch_loses_nothing_by_drafts_that_only_some_of_it_want(
    table: dict[int, float], drafter: str, count: int, good: int
) -> None:
    """A pass of the draft model costs nearly the same for one as for all: who shares it is what counts."""
    texts = [
        Text(always(0.85 if i < good else 0.2), found=always(0.1), id=i, seed=3, size=24)
        for i in range(count)
    ]
    plain, drafted = (
        max(answer.seconds for answer in machine(table).answers(texts, 100, way)) for way in ("off", drafter)
    )
    assert plain / drafted >= 0.97


@pytest.mark.parametrize(("table", "size", "tokens"), [(VNNI, 300, 500), (FLAT, 600, 300)])
def test_in_a_batch_a_long_text_is_read_in_slices_without_a_break_and_drafted_for(
    table: dict[int, float], size: int, tokens: int
) -> None:
    """Two texts of which the end does not say enough: the model reads one after the other."""
    texts = [Text(always(0.9), partly=always(0.2), id=i, seed=3, size=size) for i in range(2)]
    plain, drafted = (machine(table, 0.05).answers(texts, tokens, way) for way in ("off", "model"))
    assert max(a.seconds for a in plain) / max(a.seconds for a in drafted) >= 1.12
    first = min(drafted, key=lambda answer: len(answer.steps))
    evaluated = [step.evaluated for step in first.steps]
    assert max(evaluated) <= READ_SLICE + 2 * (READY + LONGEST)
    reading = [i for i, count in enumerate(evaluated) if count >= READ_SLICE]
    assert len(reading) > size // READ_SLICE
    breaks = [after for before, after in itertools.pairwise(reading) if after > before + 1]
    assert len(breaks) <= 1  # before the second text
    assert statistics.mean(step.tokens for step in first.steps[reading[-1] + 2 :]) >= 1.5


def test_a_batch_in_which_long_texts_are_read_in_vain_loses_little() -> None:
    """The model is unsure at their end, and hardly better once it has read them."""
    texts = [Text(always(0.3), partly=always(0.2), id=i, seed=3, size=300) for i in range(2)]
    plain, drafted = (machine(VNNI, 0.05).answers(texts, 300, way) for way in ("off", "model"))
    assert any(step.evaluated >= READ_SLICE for answer in drafted for step in answer.steps)
    assert max(a.seconds for a in plain) / max(a.seconds for a in drafted) >= 0.96
