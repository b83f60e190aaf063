"""Figures for Prometheus: vLLM's names with our prefix, so that dashboards made for one fit the other.

Counters and histograms are fed once a request, when it has ended, from its own counters: sums over answers
are what the answers themselves say. Gauges are read from the scheduler when somebody asks. Names, labels and
buckets are those of vLLM's documentation ("Production Metrics"); what vLLM lacks is said beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

from pilotfish.errors import Cancelled
from pilotfish.server.refusals import Refusal
from pilotfish.serving.prefixes import PAGE

if TYPE_CHECKING:
    from pilotfish.sequence import Sequence as TokenSequence
    from pilotfish.server.gate import Gate
    from pilotfish.server.service import Reply
    from pilotfish.serving.scheduler import Scheduler
    from pilotfish.serving.ticket import Ticket

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PREFIX = "pilotfish:"

FINISHED = ("stop", "length", "abort", "error")
"""Values of `finished_reason`: an answer's own, then `abort` of clients that left, and `error`."""

FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0, 160.0, 640.0, 2560.0),
)
PER_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0),
)
LATENCY = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0),
    *(480.0, 960.0, 1920.0, 7680.0),
)


@runtime_checkable
class Paged(Protocol):
    """An engine that says how much of its KV cache is held."""

    @property
    def pages_in_use(self) -> int:
        """Pages that some sequence holds."""
        ...


class Metrics:
    """The figures of one server; `ended` feeds them, `render` tells them.

    Parameters
    ----------
    model
        Value of the label `model_name`; the label `engine` is always 0, as there is one.
    scheduler
        What gauges are read from.
    draft_engine
        That of the draft model, if there is one.
    """

    def __init__(self, model: str, scheduler: Scheduler, draft_engine: object = None) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model, "engine": "0"}
        self._watch(scheduler, draft_engine)
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of the prompts that were read.")
        self._tokens = self._counter("generation_tokens", "Tokens of the answers.")
        self._preemptions = self._counter("num_preemptions", "Times that a request lost its cache.")
        self._queries = self._counter("prefix_cache_queries", "Tokens that were looked for in kept texts.")
        self._hits = self._counter("prefix_cache_hits", "Tokens that were found in kept texts.")
        self._drafts = self._counter("spec_decode_num_drafts", "Drafts that the target has judged.")
        self._drafted = self._counter("spec_decode_num_draft_tokens", "Guesses that the target has judged.")
        self._accepted = self._counter("spec_decode_num_accepted_tokens", "Guesses that were kept.")
        self._accepted_at = self._family(
            "spec_decode_num_accepted_tokens_per_pos",
            "Guesses that were kept, by place.",
            "position",
        )
        self._finished = self._family("request_success", "Answers that ended, by why.", "finished_reason")
        for reason in FINISHED:
            self._finished.labels(**self._labels, finished_reason=reason)
        self._first = self._histogram("time_to_first_token_seconds", "Arrival to first token.", FIRST_TOKEN)
        self._per_token = self._histogram(
            "request_time_per_output_token_seconds", "Mean time between two tokens of a request.", PER_TOKEN
        )
        self._gaps = self._histogram(
            "inter_token_latency_seconds", "Time between two passes that brought tokens.", PER_TOKEN
        )
        self._whole = self._histogram("e2e_request_latency_seconds", "Arrival to end.", LATENCY)
        self._queued = self._histogram("request_queue_time_seconds", "Arrival to place.", LATENCY)
        self._ran = self._histogram("request_inference_time_seconds", "Place to end.", LATENCY)
        self._read = self._histogram("request_prefill_time_seconds", "Place to first token.", LATENCY)
        self._decoded = self._histogram("request_decode_time_seconds", "First token to end.", LATENCY)
        tokens = steps_1_2_5(scheduler.decoder.engine.context)
        self._prompt_size = self._histogram("request_prompt_tokens", "Tokens of a request's prompt.", tokens)
        self._size = self._histogram("request_generation_tokens", "Tokens of a request's answers.", tokens)

    def ended(self, ticket: Ticket, *, scores_only: bool = False) -> None:
        """Count a request that has ended, however that was; to be called once for each, from any thread.

        With `scores_only` the one token that each choice had to make counts nowhere.
        """
        prompt = ticket.choices[0].stats.prompt_tokens
        said = [0 if scores_only else s.stats.tokens for s in ticket.choices]
        for s in ticket.choices:
            reason = why_ended(s, ticket.error)
            reason = "length" if scores_only and reason == "stop" else reason
            self._finished.labels(**self._labels, finished_reason=reason).inc()
            self._count_drafts(s)
        tokens = sum(said)
        self._tokens.inc(tokens)
        self._preemptions.inc(ticket.preempted)
        if ticket.begun_s is not None and not ticket.choices[0].prompt_logprobs:
            self._queries.inc(prompt)
            self._hits.inc(ticket.reused)
        if ticket.first_s is not None:
            self._prompt_tokens.inc(prompt)
            self._prompt_size.observe(prompt)
            self._size.observe(tokens)
        for gap in ticket.gaps_s:
            self._gaps.observe(gap)
        self._take_times(ticket, max(said))

    def __call__(self, reply: Reply) -> None:
        """Count the request of a reply that has ended: an observer of a service."""
        self.ended(reply.ticket, scores_only=reply.scores_only)

    def render(self) -> bytes:
        """Return all figures in Prometheus's text format, of the type `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _count_drafts(self, s: TokenSequence) -> None:
        stats = s.stats
        if not stats.drafted:
            return
        self._drafts.inc(stats.drafted_at[0])  # a draft has a first guess, whatever follows
        self._drafted.inc(stats.drafted)
        self._accepted.inc(stats.accepted)
        for i, count in enumerate(stats.accepted_at):
            self._accepted_at.labels(**self._labels, position=str(i)).inc(count)

    def _take_times(self, ticket: Ticket, longest: int) -> None:
        """Observe what is known of a ticket's times; `longest` is the length of its longest answer."""
        arrived, begun, first, ended = ticket.submitted_s, ticket.begun_s, ticket.first_s, ticket.ended_s
        if ended is None:
            return
        self._whole.observe(ended - arrived)
        if begun is not None:
            self._queued.observe(begun - arrived)
            self._ran.observe(ended - begun)
        if first is not None and begun is not None:
            self._read.observe(first - begun)
            if longest:
                self._first.observe(first - arrived)
                self._decoded.observe(ended - first)
            if longest > 1:
                self._per_token.observe((ended - first) / (longest - 1))

    def _watch(self, scheduler: Scheduler, draft_engine: object) -> None:
        """Set up what is read when somebody asks."""
        engine, prefixes = scheduler.decoder.engine, scheduler.prefixes
        self._gauge("num_requests_running", "Answers that share passes.", lambda: scheduler.running)
        self._gauge("num_requests_waiting", "Requests that wait for a place.", lambda: scheduler.waiting)
        if prefixes is not None:  # not in vLLM
            self._gauge("prefix_cache_tokens", "Tokens of kept texts.", lambda: prefixes.tokens)
        if isinstance(engine, Paged):
            paged = engine
            full = scheduler.most_running * pages(engine.context)
            full += 0 if prefixes is None else pages(prefixes.most_tokens)

            def usage() -> float:
                return paged.pages_in_use / (scheduler.figures().most_pages or full)

            self._gauge(
                "kv_cache_usage_perc",
                "Share, 0..1, of the KV pages that there may be, or that full places and kept texts need.",
                usage,
            )
            self._gauge("kv_cache_pages", "KV pages held.", lambda: paged.pages_in_use)  # not in vLLM
        if isinstance(draft_engine, Paged):  # not in vLLM
            held = draft_engine
            self._gauge("draft_kv_cache_pages", "KV pages the draft model holds.", lambda: held.pages_in_use)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        gauge = Gauge(PREFIX + name, text, tuple(self._labels), registry=self.registry)
        gauge.labels(**self._labels).set_function(value)

    def _family(self, name: str, text: str, label: str) -> Counter:
        return Counter(PREFIX + name, text, (*self._labels, label), registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(PREFIX + name, text, tuple(self._labels), registry=self.registry).labels(
            **self._labels
        )

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        family = Histogram(PREFIX + name, text, tuple(self._labels), registry=self.registry, buckets=bounds)
        return family.labels(**self._labels)


def scrape(gate: Gate) -> Response:
    """Answer `GET /metrics`: also while the server is full or drains; 503 while the model loads."""
    try:
        return Response(gate.service.metrics.render(), media_type=CONTENT_TYPE)
    except Refusal as refusal:
        return refusal.response()


def why_ended(sequence: TokenSequence, error: Exception | None) -> str:
    """Return the `finished_reason` of one answer, one of `FINISHED`; `error` ended its request."""
    if sequence.finish_reason is not None:
        return sequence.finish_reason
    return "abort" if isinstance(error, Cancelled) and sequence.error is None else "error"


def pages(tokens: int) -> int:
    """Return how many pages so many tokens need."""
    return -(-tokens // PAGE)


def steps_1_2_5(most: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, 50 … up to `most`."""
    steps = [step * 10**power for power in range(len(str(most))) for step in (1, 2, 5)]
    return [step for step in steps if step <= most]
