"""What Prometheus is told is what the answers say of themselves, under vLLM's names."""

# ruff: noqa: D102 - short, and read beside the tests

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from decoding import draft_engine, scripted
from pilotfish.engines.scripted import ScriptedEngine, ngrams
from pilotfish.server.metrics import CONTENT_TYPE, FINISHED, Metrics, steps_1_2_5
from serving.loads import Arrival, Load, arrivals, service
from strategies import MAKERS, VOCAB, Request, draft_model, good_drafter_names

if TYPE_CHECKING:
    import pytest

    from pilotfish.serving.ticket import Ticket

LANGUAGE = ngrams(VOCAB, 2, seed=3)

LABELS = {"model_name": "tiny", "engine": "0"}

# As vLLM's documentation lists them, without the prefix; ours that it lacks come behind.
COUNTERS = {
    "num_preemptions",
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "request_success",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
    "spec_decode_num_accepted_tokens_per_pos",
}
GAUGES = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"}
OUR_GAUGES = {"kv_cache_pages", "draft_kv_cache_pages", "prefix_cache_tokens"}
HISTOGRAMS = {
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
}


class Figures:
    """What a scrape says, as Prometheus's own parser reads it."""

    def __init__(self, metrics: Metrics) -> None:
        self.families = list(text_string_to_metric_families(metrics.render().decode()))

    def named(self, kind: str) -> set[str]:
        return {f.name for f in self.families if f.type == kind and not f.name.endswith("_created")}

    def value(self, name: str, **labels: str) -> float:
        wanted = {**LABELS, **labels}
        samples = (s for family in self.families for s in family.samples)
        [value] = [s.value for s in samples if s.name == f"pilotfish:{name}" and s.labels == wanted]
        return value

    def by(self, name: str, label: str) -> dict[str, float]:
        samples = (s for family in self.families for s in family.samples if s.name == f"pilotfish:{name}")
        return {s.labels[label]: s.value for s in samples}


def watched(load: Load) -> Metrics:
    return Metrics("tiny", load.scheduler, draft_engine(load.decoder))


def fed(load: Load, metrics: Metrics) -> Figures:
    for ticket in load.tickets:
        metrics.ended(ticket)
    return Figures(metrics)


def test_names_types_and_labels_are_those_of_vllm() -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), kept=64))
    figures = Figures(watched(load))
    assert figures.named("counter") == {f"pilotfish:{name}" for name in COUNTERS}
    assert figures.named("gauge") == {f"pilotfish:{name}" for name in GAUGES | OUR_GAUGES}
    assert figures.named("histogram") == {f"pilotfish:{name}" for name in HISTOGRAMS}
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
    for family in figures.families:
        for sample in family.samples:
            assert sample.labels.items() >= LABELS.items()


@given(arrivals, good_drafter_names, st.integers(0, 5), st.sampled_from([0, 8, 400]))
def test_sums_are_those_of_the_answers(batch: list[Arrival], name: str, length: int, kept: int) -> None:
    """Whatever was drafted, whoever left, and whatever was found in the cache."""
    load = Load(service(LANGUAGE, MAKERS[name](LANGUAGE), length, kept=kept))
    metrics = watched(load)
    play(load, batch)
    figures = fed(load, metrics)
    stats = [s.stats for ticket in load.tickets for s in ticket.choices]
    assert figures.value("generation_tokens_total") == sum(s.tokens for s in stats)
    assert figures.value("spec_decode_num_draft_tokens_total") == sum(s.drafted for s in stats)
    assert figures.value("spec_decode_num_accepted_tokens_total") == sum(s.accepted for s in stats)
    assert figures.value("spec_decode_num_drafts_total") == sum(s.drafted_at[0] for s in stats if s.drafted)
    accepted = Counter[str]()
    for s in stats:
        accepted.update({str(i): count for i, count in enumerate(s.accepted_at)})
    assert figures.by("spec_decode_num_accepted_tokens_per_pos_total", "position") == dict(accepted)
    read = [ticket.choices[0].stats.prompt_tokens for ticket in load.tickets if ticket.first_s is not None]
    assert figures.value("prompt_tokens_total") == sum(read)
    assert figures.value("prefix_cache_hits_total") == sum(ticket.reused for ticket in load.tickets)
    assert figures.by("request_success_total", "finished_reason") == {
        reason: sum(why(ticket) == reason for ticket in load.tickets) for reason in FINISHED
    }


def test_every_choice_of_a_request_counts_as_an_answer_and_its_prompt_once() -> None:
    load = Load(service(LANGUAGE))
    ask = Request((1, 2, 3), max_tokens=4)
    load.submit(ask, ask, ask)
    load.finish()
    figures = fed(load, watched(load))
    assert figures.value("prompt_tokens_total") == figures.value("prefix_cache_queries_total") == 3
    assert figures.value("generation_tokens_total") == 12
    assert figures.value("request_success_total", finished_reason="length") == 3
    assert figures.value("request_generation_tokens_count") == 1


def test_times_are_those_of_the_ticket() -> None:
    load = Load(service(LANGUAGE, most_running=1))
    tickets = [load.submit(Request((1, 2, 3), max_tokens=5)) for _ in range(2)]
    load.finish()
    figures = fed(load, watched(load))

    def total(begin: str, end: str, share: float = 1.0) -> float:
        return sum(float(getattr(t, end) - getattr(t, begin)) * share for t in tickets)

    assert figures.value("time_to_first_token_seconds_sum") == total("submitted_s", "first_s")
    assert figures.value("request_queue_time_seconds_sum") == total("submitted_s", "begun_s")
    assert figures.value("request_prefill_time_seconds_sum") == total("begun_s", "first_s")
    assert figures.value("request_decode_time_seconds_sum") == total("first_s", "ended_s")
    assert figures.value("request_inference_time_seconds_sum") == total("begun_s", "ended_s")
    assert figures.value("e2e_request_latency_seconds_sum") == total("submitted_s", "ended_s")
    assert figures.value("inter_token_latency_seconds_sum") == total("first_s", "ended_s")
    assert figures.value("inter_token_latency_seconds_count") == 2 * 4  # plain: a token a pass
    assert figures.value("request_time_per_output_token_seconds_sum") == total("first_s", "ended_s", 1 / 4)


def test_gauges_say_what_is_so_when_they_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load(service(LANGUAGE, draft_model(LANGUAGE), kept=400, most_running=2, context=640))
    metrics = watched(load)
    for first in range(3):
        load.submit(Request((first, *[5] * 99), max_tokens=50))
    load.step()
    load.step()
    figures = Figures(metrics)
    assert (figures.value("num_requests_running"), figures.value("num_requests_waiting")) == (2, 1)
    assert figures.value("kv_cache_pages") == 2 * 2 + 2 * 2  # each text as it is answered, and as it is kept
    assert figures.value("kv_cache_usage_perc") == 8 / (2 * 10 + 7)
    assert figures.value("prefix_cache_tokens") == 200
    monkeypatch.setattr(ScriptedEngine, "most_pages", 16, raising=False)
    assert Figures(metrics).value("kv_cache_usage_perc") == 8 / 16
    load.finish()
    figures = Figures(metrics)
    assert (figures.value("num_requests_running"), figures.value("num_requests_waiting")) == (0, 0)
    assert figures.value("kv_cache_pages") == figures.value("draft_kv_cache_pages") == 0


def test_a_request_that_was_refused_a_place_has_no_times_of_one() -> None:
    load = Load(service(LANGUAGE))
    load.submit(Request((1, 2, 3))).cancel()
    load.finish()
    figures = fed(load, watched(load))
    assert figures.value("request_success_total", finished_reason="abort") == 1
    assert figures.value("e2e_request_latency_seconds_count") == 1
    assert figures.value("request_queue_time_seconds_count") == 0
    assert figures.value("prompt_tokens_total") == figures.value("prefix_cache_queries_total") == 0


def test_an_answer_whose_logits_fail_counts_as_an_error() -> None:
    load = Load(service(LANGUAGE))
    scripted(load.decoder).nan_at.add(5)
    load.submit(Request((1, 2, 3), max_tokens=9))
    load.finish()
    figures = fed(load, watched(load))
    assert figures.value("request_success_total", finished_reason="error") == 1
    assert figures.value("generation_tokens_total") == 2


def test_buckets_of_counts_go_up_to_the_context() -> None:
    assert steps_1_2_5(8192) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    assert steps_1_2_5(1) == [1]


def why(ticket: Ticket) -> str:
    [s] = ticket.choices
    return s.finish_reason or ("abort" if ticket.cancelled else "error")


def play(load: Load, batch: list[Arrival]) -> None:
    """Submit requests at their times; a client leaves some passes after its own has come."""
    for arrival in batch:
        for _ in range(arrival.after):
            load.step()
        ticket = load.submit(arrival.request, salt=arrival.salt)
        for _ in range(arrival.leaves or 0):
            load.step()
        if arrival.leaves is not None:
            ticket.cancel()
    load.finish()
