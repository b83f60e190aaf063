"""What models take of memory, beside what was promised before loading.

    python benchmarks/memory.py MODEL CONTEXT [--draft MODEL] [--draft-slim off] [--running N]

A prompt fills the context but for a few tokens, which are then answered. With --running, a server of N
answers at once is started instead, and nobody asks it. The largest resident size of the process
(`ru_maxrss`), less what it was when memory was checked, is what the models took. One process measures one
case.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path
from typing import Literal

import numpy as np  # noqa: F401 - counted as the process's, like what follows
import tokenizers  # noqa: F401

from pilotfish import memory
from pilotfish.drafting import Wish
from pilotfish.engines import native  # noqa: F401
from pilotfish.llm import LLM
from pilotfish.loading import load_models
from pilotfish.server.service import Service
from pilotfish.server.settings import Settings
from pilotfish.serving.reserves import reserves

LONG = 16
"""Tokens of a draft, as many as the promise has rows for beside one."""

ANSWER = 40
"""Tokens that the prompt leaves free."""


def resident() -> int:
    """Return the bytes of this process that are in memory now; Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def most_resident() -> int:
    """Return the largest size so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def fill(llm: LLM, context: int, draft_length: Literal["auto"] | int) -> None:
    """Let a prompt fill the context but for a few tokens, and answer those."""
    text = llm.encode("def double(x):\n    return x + x\n\n")
    prompt = (text * (context // len(text) + 1))[: context - ANSWER]
    answer = llm.generate(prompt, max_tokens=2 * ANSWER, draft_length=draft_length)
    assert len(answer.tokens) == ANSWER


def main() -> None:
    """Measure one case and print it as a row of a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("context", type=int)
    parser.add_argument("--draft", default="off")
    parser.add_argument("--draft-slim", default="auto")
    parser.add_argument("--running", type=int, help="a server that makes so many answers at once")
    given = parser.parse_args()
    promised: list[tuple[int, int]] = []
    check = memory.check_room

    def heard(what: str, need: int, free: int | None, hint: str = "") -> None:
        promised.append((need, resident()))
        check(what, need, free, *([hint] if hint else []))

    memory.check_room = heard
    target, [drafting] = load_models(
        given.model,
        [Wish.read(given.draft)],
        given.context,
        draft_slim=given.draft_slim,
        reserves=None if given.running is None else reserves(given.running),
    )
    need, before = promised[0]
    if given.running is None:
        fill(LLM(target, drafting), given.context, "auto" if given.draft == "off" else LONG)
    else:
        Service(target, drafting, Settings(most_running=given.running), run=False).close()
    taken = most_resident() - before
    name = given.model if given.draft == "off" else f"{given.model} with {given.draft}"
    name = name if given.running is None else f"{name}, a server of {given.running} answers at once"
    sizes = f"{need / 1e6:,.0f} MB | {taken / 1e6:,.0f} MB | {need / taken:.2f}"
    print(f"| {name} (slim: {given.draft_slim}) | {given.context} | {sizes} |")


if __name__ == "__main__":
    main()
