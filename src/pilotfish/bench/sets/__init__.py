"""Sets of prompts that ship with the package, written for it.

`edits`
    Texts to be given back whole with a small change: where drafting gains most.
`hard`
    Texts that nothing can guess, meant for temperature 1.5: where drafting must not cost anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.bench.prompts import read_prompts

if TYPE_CHECKING:
    from pilotfish.bench.prompts import Prompt

NAMES = ("edits", "hard")


def read_set(name: str) -> list[Prompt]:
    """Read the set of that name; any other name is that of a prompts file.

    Raises
    ------
    UsageError
        As `read_prompts`.
    """
    return read_prompts(Path(__file__).with_name(f"{name}.jsonl") if name in NAMES else Path(name))
