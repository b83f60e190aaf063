"""What models take of memory, beside what was promised before loading.

    python benchmarks/memory.py MODEL CONTEXT [--draft MODEL] [--draft-slim off]

A prompt fills the context but for a few tokens, which are then answered. The largest resident size of the
process (`ru_maxrss`), less what it was when memory was checked, is what the models took. One process measures
one case.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path

import numpy as np  # noqa: F401 - counted as the process's, like what follows
import tokenizers  # noqa: F401

import pilotfish
from pilotfish import memory
from pilotfish.engines import native  # noqa: F401

ANSWER = 40
"""Tokens that the prompt leaves free."""


def resident() -> int:
    """Return the bytes of this process that are in memory now; Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def most_resident() -> int:
    """Return the largest size so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Measure one case and print it as a row of a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("context", type=int)
    parser.add_argument("--draft", default="off")
    parser.add_argument("--draft-slim", default="auto")
    given = parser.parse_args()
    promised: list[tuple[int, int]] = []
    check = memory.check_room

    def heard(what: str, need: int, free: int | None, hint: str = "") -> None:
        promised.append((need, resident()))
        check(what, need, free, *([hint] if hint else []))

    memory.check_room = heard
    llm = pilotfish.load(
        given.model, given.draft, given.context, draft_slim=given.draft_slim, notice=lambda _text: None
    )
    need, before = promised[0]
    text = llm.encode("def double(x):\n    return x + x\n\n")
    prompt = (text * (given.context // len(text) + 1))[: given.context - ANSWER]
    answer = llm.generate(prompt, max_tokens=2 * ANSWER, draft_length="auto" if given.draft == "off" else 4)
    assert len(answer.tokens) == ANSWER
    taken = most_resident() - before
    name = given.model if given.draft == "off" else f"{given.model} with {given.draft}"
    sizes = f"{need / 1e6:,.0f} MB | {taken / 1e6:,.0f} MB | {need / taken:.2f}"
    print(f"| {name} (slim: {given.draft_slim}) | {given.context} | {sizes} |")


if __name__ == "__main__":
    main()
