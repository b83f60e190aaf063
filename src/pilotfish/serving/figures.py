"""What a scheduler says of itself, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """A scheduler's figures at some moment; those that only grow are marked so.

    Attributes
    ----------
    running, waiting
        Sequences that share passes, and requests that wait.
    passes, preemptions
        Passes made, and times that a request lost its cache. Both grow.
    prompt_tokens, reused_tokens
        Tokens of the prompts that were begun, and those of them that were not read, since they were kept, or
        another request read them. Both grow.
    kept_tokens, most_kept_tokens
        Tokens that the prefix cache keeps, and the most that it may; 0 without one.
    pages, most_pages
        Pages of the KV cache in use, and the most that there may be; None where the engine doesn't say.
    """

    running: int
    waiting: int
    passes: int
    preemptions: int
    prompt_tokens: int
    reused_tokens: int
    kept_tokens: int
    most_kept_tokens: int
    pages: int | None
    most_pages: int | None
