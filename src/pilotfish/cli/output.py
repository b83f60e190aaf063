"""What commands print: one line of JSON, tables, coloured tokens, a line of statistics."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from pilotfish.answer import Answer, Event
    from pilotfish.stats import Stats


def print_json(report: object) -> None:
    """Print one line; floats that JSON can't hold are an error, never `NaN`."""
    click.echo(json.dumps(report, ensure_ascii=False, allow_nan=False))


def colours(stream: object) -> bool:
    """Whether the stream is a terminal that wants colour: https://no-color.org."""
    return not os.environ.get("NO_COLOR") and bool(getattr(stream, "isatty", bool)())


def console(*, stderr: bool = False) -> Console:
    """Return a console that leaves a closed pipe to whoever runs the command."""
    from rich.console import Console

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # A file or a pipe has no width to keep to.
    wide = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return Pipe(stderr=stderr, highlight=False, markup=False, width=wide)


def colour_of(drafter: str | None) -> str | None:
    """Return the colour of a token: none for the target's own, else its drafter's."""
    if drafter is None:
        return None
    return "cyan" if drafter == "suffix" else "green"


def write_text(text: str, drafter: str | None = None) -> None:
    """Write a piece of an answer to stdout at once, coloured if a drafter guessed it."""
    if text:
        sys.stdout.write(click.style(text, fg=colour_of(drafter)) if drafter else text)
        sys.stdout.flush()


def watched(answer: Answer) -> Iterator[Event]:
    """Yield the events; until the first one a terminal says what is going on."""
    if sys.stderr.isatty():
        with console(stderr=True).status("reading the prompt"):
            first = next(answer, None)
        if first is not None:
            yield first
    yield from answer


def stats_line(stats: Stats, finish_reason: str) -> str:
    """Return one line about an answer."""
    parts = [
        f"{stats.tokens} tokens ({finish_reason})",
        f"prompt {stats.prompt_tokens} in {stats.prompt_s:.2f} s",
        f"{stats.tokens_per_s:.1f} tokens/s",
        f"{stats.passes} passes, {stats.tokens_per_pass:.2f} tokens per pass",
        f"{stats.accepted} of {stats.drafted} drafted accepted ({stats.acceptance:.0%})",
    ]
    if stats.drafting_off is not None:
        parts.append(f"not drafting at the end: {stats.drafting_off}")
    return ", ".join(parts)
