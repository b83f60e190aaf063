"""What the passes of many requests need of memory, so that it is taken before anyone asks.

Memory that is taken whenever a pass is larger than all before would be taken under load, when nobody wants to
hear that there is none.
"""

from __future__ import annotations

from pilotfish.control import LONGEST
from pilotfish.drafters.model import READ_SLICE, READY
from pilotfish.engines.base import Reserve
from pilotfish.prompt import SLICE
from pilotfish.serving.scheduler import MOST_DRAFTED

USUAL_TOKENS = 512
"""Tokens of a text, prompt and answer, for which there is room in the target's cache at the start, or of what
is kept of such texts; longer ones, and more kept ones, take memory when they come."""

DRAFT_TOKENS = 256
"""The same of the draft model, which reads only the end of a long text and keeps nothing."""


def reserves(running: int, kv_tokens: int | None = None) -> tuple[Reserve, Reserve]:
    """Return what the target and the draft model are to reserve.

    Passes are the largest that a `Scheduler` makes with drafts of at most `LONGEST` tokens.

    Parameters
    ----------
    running
        Sequences that share passes.
    kv_tokens
        Tokens that the target's cache may hold; None for no bound.
    """
    drafted = min(MOST_DRAFTED, LONGEST * running)
    tokens = USUAL_TOKENS * running
    target = Reserve(
        rows=SLICE + running + drafted,
        wanted=running + drafted,
        tokens=tokens if kv_tokens is None else min(tokens, kv_tokens),
    )
    # It reads a slice, or what little each lacks, and beside that the guesses of another drafter.
    draft = Reserve(
        rows=READ_SLICE + READY * running + drafted,
        wanted=running + drafted,
        tokens=DRAFT_TOKENS * running,
    )
    return target, draft
