"""Prompts to measure and check with: a file's, or a few of our own."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

DEFAULT_CATEGORY = "other"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation's user turns.

    Attributes
    ----------
    id
        `question_id` or `id` of the line, else the line's number.
    category
        `category` of the line, else "other".
    turns
        What the user says, at least one.
    """

    id: str
    category: str
    turns: tuple[str, ...]


def read_prompts(path: Path) -> list[Prompt]:
    """Read a prompts file: one JSON object a line, with `turns` (list of str) or `prompt`.

    Blank lines are skipped.

    Raises
    ------
    UsageError
        An unreadable file, a line that is not such an object (named by its number), or no prompts at all.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"can't read the prompts file {path}: {reason}", "check the path") from error
    prompts = [_parse(line, number, path) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UsageError(f"the prompts file {path} has no prompts", "write one JSON object a line")
    return prompts


def take(prompts: Sequence[Prompt], limit: int | None) -> list[Prompt]:
    """Return `limit` prompts, round-robin over the categories in file order; None takes all as they stand."""
    if limit is None:
        return list(prompts)
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.category, []).append(prompt)
    rounds: Iterable[tuple[Prompt | None, ...]] = itertools.zip_longest(*groups.values())
    return [p for p in itertools.chain.from_iterable(rounds) if p is not None][:limit]


def _parse(line: str, number: int, path: Path) -> Prompt:
    where = f"line {number} of {path}"
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}", "write one JSON object a line") from error
    if not isinstance(item, dict):
        raise UsageError(f"{where} is not a JSON object", 'write {"turns": ["..."]} or {"prompt": "..."}')
    if "turns" in item:
        turns = item["turns"]
    elif "prompt" in item:
        turns = [item["prompt"]]
    else:
        raise UsageError(
            f"{where} has neither turns nor prompt", 'write {"turns": ["..."]} or {"prompt": "..."}'
        )
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) and t for t in turns):
        raise UsageError(
            f"{where}: turns or prompt is not text", "turns is a list of strings, prompt a string"
        )
    category = item.get("category", DEFAULT_CATEGORY)
    if not isinstance(category, str) or not category:
        raise UsageError(f"{where}: category is {category!r}", "category is a string")
    name = item.get("question_id", item.get("id", number))
    if not isinstance(name, (str, int)):
        raise UsageError(f"{where}: id is {name!r}", "an id is a string or a number")
    return Prompt(str(name), category, tuple(turns))


_OWN = (
    ("code", "Write a Python class Stack with push, pop, peek and is_empty, each with a one-line docstring."),
    ("code", "Add type hints to this function:\n\ndef mean(values):\n    return sum(values) / len(values)"),
    (
        "math",
        "A train leaves at 9:40 and arrives at 13:05 after two stops of 10 minutes. How long did it move?",
    ),
    ("math", "List the first ten square numbers and say which of them are also cubes."),
    ("writing", "Write a short letter to a neighbour who watered the plants while I was away."),
    ("writing", "Describe a harbour at dawn in five sentences."),
    ("facts", "What is the difference between weather and climate?"),
    (
        "rewriting",
        "Put this into the past tense: She walks to the lake, feeds the ducks and reads until noon.",
    ),
    (
        "translation",
        "Translate into German: The library opens at ten and closes when the last reader leaves.",
    ),
    (
        "extraction",
        "Give name, date and sum as JSON: On 3 March, Ada Berg paid 240 crowns for a used bicycle.",
    ),
    ("symbols", "Repeat exactly and then count the symbols: → ★ ★ → ☂ 日本 🐟 🐟 ★"),
    ("roleplay", "You are a lighthouse keeper. A tourist asks whether it gets lonely. Answer in character."),
)

BUILT_IN = tuple(Prompt(f"own-{i}", category, (text,)) for i, (category, text) in enumerate(_OWN, 1))
"""Used when no file is given."""
