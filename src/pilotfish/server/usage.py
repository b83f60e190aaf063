"""The figures of an answer: OpenAI's `usage`, llama.cpp's `timings`, vLLM's `metrics`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.server.service import Reply
    from pilotfish.stats import Stats


def usage(replies: Sequence[Reply]) -> dict[str, object]:
    """Return tokens of prompts and answers; a prompt counts once, whatever `n` is."""
    prompt = sum(reply.choices[0].sequence.stats.prompt_tokens for reply in replies)
    said = sum(sum(reply.said) for reply in replies)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said,
        "total_tokens": prompt + said,
        "prompt_tokens_details": {"cached_tokens": sum(reply.ticket.reused for reply in replies)},
    }


def figures(replies: Sequence[Reply]) -> dict[str, object]:
    """Return what is told beside the answer: `timings` and `metrics`."""
    stats = [choice.sequence.stats for reply in replies for choice in reply.choices]
    return {"timings": _timings(replies, stats), "metrics": {"speculative_decoding": speculation(stats)}}


def _timings(replies: Sequence[Reply], stats: Sequence[Stats]) -> dict[str, object]:
    """Return llama.cpp's figures.

    Times are those that the client waited, while others may have shared the passes; of several prompts they
    are added. The first token of an answer comes with the prompt, so rates of what is predicted leave it out.
    """
    tickets = [reply.ticket for reply in replies]
    cached = sum(ticket.reused for ticket in tickets)
    prompt = sum(reply.choices[0].sequence.stats.prompt_tokens for reply in replies) - cached
    said = [tokens for reply in replies for tokens in reply.said]
    queued = reading = answering = 0.0
    for ticket in tickets:
        ended = ticket.submitted_s if ticket.ended_s is None else ticket.ended_s
        begun = ended if ticket.begun_s is None else ticket.begun_s
        first = ended if ticket.first_s is None else ticket.first_s
        queued += begun - ticket.submitted_s
        reading += first - begun
        answering += ended - first
    after_first = sum(max(0, tokens - 1) for tokens in said)
    return {
        "cache_n": cached,
        "prompt_n": prompt,
        "prompt_ms": _ms(reading),
        "prompt_per_token_ms": _ms(_ratio(reading, prompt)),
        "prompt_per_second": _ratio(prompt, reading),
        "predicted_n": sum(said),
        "predicted_ms": _ms(answering),
        "predicted_per_token_ms": _ms(_ratio(answering, after_first)),
        "predicted_per_second": _ratio(after_first, answering),
        "draft_n": sum(one.drafted for one in stats),
        "draft_n_accepted": sum(one.accepted for one in stats),
        "queued_ms": _ms(queued),
    }


def speculation(stats: Sequence[Stats]) -> dict[str, object]:
    """Return vLLM's figures: `acceptance_histogram[j]` counts the drafts of which j tokens were accepted."""
    depth = max((len(one.drafted_at) for one in stats), default=0)
    drafted = [sum(one.drafted_at[i] for one in stats if i < len(one.drafted_at)) for i in range(depth)]
    accepted = [sum(one.accepted_at[i] for one in stats if i < len(one.accepted_at)) for i in range(depth)]
    drafts = drafted[0] if drafted else 0
    histogram = [a - b for a, b in itertools.pairwise([drafts, *accepted, 0])] if drafts else []
    return {
        "mean_acceptance_length": 1 + _ratio(sum(accepted), drafts) if drafts else 0.0,
        "draft_acceptance_rate": _ratio(sum(accepted), sum(drafted)),
        "acceptance_histogram": histogram,
        "num_spec_steps": drafts,
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "num_spec_tokens": depth,
    }


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else 0.0


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
