"""Reading a prompt: evaluating it in slices and, if wanted, scoring its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.engines.base import Chunk

if TYPE_CHECKING:
    from pilotfish.engines.base import Engine, Rows
    from pilotfish.sequence import Sequence

SLICE = 128
"""Prompt tokens a pass: long enough to be efficient, short enough that Ctrl-C is heard soon."""

SCORED_SLICE = 32
"""The same where every row is wanted: a row has as many numbers as the vocabulary has tokens."""


def read_prompt(engine: Engine, sequence: Sequence) -> tuple[Rows, int]:
    """Evaluate what the sequence's handle does not hold of the prompt yet; open one if there is none.

    With `scores_prompt` all of it is evaluated, and `prompt_logprobs` filled.

    Returns
    -------
        The rows of the last pass, and which of them is behind the last token.
    """
    prompt = list(sequence.tokens)
    scores = sequence.logprobs if sequence.scores_prompt else None
    if sequence.handle < 0:
        sequence.handle = engine.open()
    warm = 0 if scores is not None else min(engine.length(sequence.handle), len(prompt) - 1)
    engine.truncate(sequence.handle, warm)
    sequence.prompt_logprobs = [] if scores is None else [None]
    size = SLICE if scores is None else SCORED_SLICE
    for begin in range(warm, len(prompt), size):
        part = prompt[begin : begin + size]
        last = begin + len(part) == len(prompt)
        wanted = int(last) if scores is None else len(part)
        rows = engine.forward([Chunk(sequence.handle, part, wanted)])
        if scores is not None:
            following = prompt[begin + 1 : begin + len(part) + 1]
            sequence.prompt_logprobs += [rows.logprobs(i, token, scores) for i, token in enumerate(following)]
    return rows, wanted - 1
