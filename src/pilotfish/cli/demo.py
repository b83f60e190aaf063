"""`pilotfish demo`: the same prompt answered plainly and with drafting, side by side."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from pilotfish.cli import common
from pilotfish.cli.opening import open_llm, read_options
from pilotfish.cli.output import colour_of, console, print_json
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from pilotfish.answer import Answer
    from pilotfish.llm import LLM

PROMPT = (
    "Here is a class:\n\n"
    "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n"
    "Rewrite it with type hints, add a method that returns the distance to another point, and add docstrings."
)
DIFFERENT = 1
REFRESH_S = 0.1


@click.command("demo", short_help="Show drafting at work.")
@click.argument("prompt", required=False)
@common.model_options
@common.sampling_options(max_tokens=200)
@common.RAW
@common.JSON
def command(
    *,
    prompt: str | None,
    models: common.ModelOptions,
    raw: bool,
    as_json: bool,
    **sampling: object,
) -> int:
    """Answer PROMPT, by default a small programming task, plainly and then with drafting.

    Exit code 1 if the two answers are not identical.
    """
    options = read_options(**sampling)  # type: ignore[arg-type]
    if prompt is not None and not prompt:
        raise UsageError("the prompt is empty", "leave it out for the default one")
    if options.draft_length == 0:
        raise UsageError("draft_length is 0, so there is nothing to show", "leave it out")
    _check_draft(models.draft)
    with open_llm(models) as llm:
        text = prompt or PROMPT
        use_template = llm.has_template and not raw
        ids = llm.chat_tokens([{"role": "user", "content": text}]) if use_template else llm.encode(text)
        seed = options.sampling().seed
        plainly, drafting = (
            read_options(**{**sampling, "seed": seed, **more})  # type: ignore[arg-type]
            for more in ({"draft_length": "0"}, {})
        )
        llm.start(ids[:1], read_options("auto", max_tokens=4)).result()  # first touch of the weights
        sides = Side("plain", llm.start(ids, plainly)), Side("drafted", llm.start(ids, drafting))
        if sys.stdout.isatty() and not as_json:
            _watch(sides)
        else:
            for side in sides:
                side.run(lambda: None)
        plain, drafted = sides
        identical = plain.answer.tokens == drafted.answer.tokens
        if as_json:
            print_json(_report(llm, plain, drafted, sampling | {"seed": seed, "raw": raw, "prompt": text}))
        else:
            if not sys.stdout.isatty():
                for side in sides[: 1 if identical else 2]:
                    click.echo(f"{side.answer.text}\n")
            console().print(_table(plain, drafted))
            click.echo(f"identical: {'yes' if identical else 'no'}")
    return 0 if identical else DIFFERENT


@dataclass(slots=True)
class Side:
    """One of the two answers, and its text by drafter."""

    title: str
    answer: Answer
    pieces: list[tuple[str, str | None]] = field(default_factory=list)

    def run(self, shown: Callable[[], None]) -> None:
        """Go through the answer, and call `shown` after each token."""
        for event in self.answer:
            self.pieces.append((event.text, event.drafted_by))
            shown()

    @property
    def ms_per_token(self) -> float:
        """Decode milliseconds a token, the first one excepted."""
        stats = self.answer.stats
        return 1000 * stats.decode_s / (stats.tokens - 1) if stats.tokens > 1 else 0.0

    def panel(self, last_lines: int | None = None) -> RenderableType:
        """Return the answer in a box, of a long one only the end."""
        from rich.panel import Panel
        from rich.text import Text

        text = Text()
        for piece, drafter in self.pieces:
            text.append(piece, style=colour_of(drafter) or "")
        if last_lines is not None:
            text = Text("\n").join(text.split("\n")[-last_lines:])
        rate = f"{self.answer.stats.tokens} tokens, {self.ms_per_token:.1f} ms each"
        return Panel(text, title=self.title, subtitle=rate if self.pieces else "not started")


def _check_draft(draft: Sequence[str]) -> None:
    from pilotfish.drafting import Wish

    if draft and Wish.read(draft) == Wish():
        raise UsageError("draft is off, so there is nothing to show", "name suffix, auto or a model")


def _watch(sides: tuple[Side, Side]) -> None:
    """Show both answers while they grow; the second starts when the first has ended."""
    from rich.live import Live
    from rich.table import Table

    out = console()
    shown_at = 0.0

    def both(last_lines: int | None = None) -> RenderableType:
        grid = Table.grid(expand=True)
        grid.add_column(ratio=1)
        grid.add_column(ratio=1)
        grid.add_row(*(side.panel(last_lines) for side in sides))
        return grid

    with Live(both(), console=out, auto_refresh=False, transient=True) as live:

        def shown() -> None:
            nonlocal shown_at
            if time.monotonic() - shown_at > REFRESH_S:
                # Half the lines: the panel wraps long ones.
                live.update(both(max(3, out.height // 2)), refresh=True)
                shown_at = time.monotonic()

        for side in sides:
            side.run(shown)
    out.print(both())
    out.print("accepted tokens: [green]of the draft model[/], [cyan]of the suffix drafter[/]")


def _ratio(plain: Side, drafted: Side) -> float:
    """Return plain decode seconds / drafted decode seconds; > 1 is faster."""
    seconds = drafted.answer.stats.decode_s
    return plain.answer.stats.decode_s / seconds if seconds > 0 else 1.0


def _table(plain: Side, drafted: Side) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column()
    rows: dict[str, list[str]] = {
        "tokens": [f"{s.answer.stats.tokens}" for s in (plain, drafted)],
        "passes": [f"{s.answer.stats.passes}" for s in (plain, drafted)],
        "tokens per pass": [f"{s.answer.stats.tokens_per_pass:.2f}" for s in (plain, drafted)],
        "acceptance": ["", f"{drafted.answer.stats.acceptance:.0%}"],
        "ms per token": [f"{s.ms_per_token:.1f}" for s in (plain, drafted)],
        "ratio": ["", f"{_ratio(plain, drafted):.2f}"],
    }
    for title in ("plain", "drafted"):
        table.add_column(title, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _report(llm: LLM, plain: Side, drafted: Side, settings: dict[str, object]) -> dict[str, object]:
    from pilotfish.bench.envelope import envelope

    report = envelope("demo", llm.target, llm.drafts, settings | {"context": llm.context})
    for side in (plain, drafted):
        stats = side.answer.stats.as_dict() | {"ms_per_token": side.ms_per_token}
        report[side.title] = {"tokens": side.answer.tokens, "stats": stats}
    return report | {
        "identical": plain.answer.tokens == drafted.answer.tokens,
        "ratio": _ratio(plain, drafted),
        "text": plain.answer.text,
    }
