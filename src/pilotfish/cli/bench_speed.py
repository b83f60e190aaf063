"""`pilotfish bench speed`: plain decoding and ways of drafting, in turn on the same prompts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pilotfish.cli import common
from pilotfish.cli.opening import check_limit, loading_bar, open_models, positive
from pilotfish.cli.output import console, print_json
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

    from pilotfish.bench.speed import Rates, Report, Settings
    from pilotfish.drafting import Drafting, Wish
    from pilotfish.model import Model, TextModel

DIFFERENT = 1


class SpeedByDefault(click.Group):
    """A group of commands that is `speed` if none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the command where options come first, but for those that ask for help."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["speed", *args]
        return super().parse_args(ctx, args)


@click.command("speed", short_help="Drafting against plain decoding (the default).")
@common.model_options
@common.option(
    "--modes",
    metavar="MODE,...",
    help="Of plain, suffix (with the corpus, if one is given), model (the draft model alone) and auto; "
    "plain always runs.  [default: all there is a model for]",
)
@common.option("--prompts", default="edits", metavar="SET", help="edits, hard, or a prompts file.")
@common.prompt_options(max_tokens=160, seed="Of sampled answers and of the intervals.")
@common.option("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy.")
@common.option(
    "--repeats", type=int, default=1, metavar="N", help="Times each prompt is asked; medians count."
)
@common.option("--plot", metavar="FILE", help="Draw the ratios (png, svg or pdf; needs matplotlib).")
@common.JSON
def speed_command(
    *,
    models: common.ModelOptions,
    modes: str | None,
    prompts: str,
    limit: int | None,
    repeats: int,
    plot: str | None,
    as_json: bool,
    **values: Any,  # noqa: ANN401 - checked there
) -> int:
    """Time answers plain and drafted for, all modes side by side on one prompt before the next.

    No drafter has met a prompt before. Plain decoding is timed twice; a run in which it differs from itself
    by more than 2 % is marked invalid. Exit code 1 if a mode's answer is not the plain one.
    """
    from pilotfish.bench.plot_speed import plot as draw
    from pilotfish.bench.plots import check_plot
    from pilotfish.bench.prompts import take
    from pilotfish.bench.sets import read_set
    from pilotfish.bench.speed import MODEL, SpeedBench, starts

    settings = _settings(**values)
    wish, names = _wish(models, modes)
    positive("repeats", repeats)
    check_limit(limit)
    if plot is not None:
        check_plot(Path(plot))
    chosen = take(read_set(prompts), limit)
    with open_models(models, [wish]) as (target, (drafting,)):
        if modes is None and drafting.model is None:
            names = tuple(mode for mode in names if mode != MODEL)
        ways = starts(names, drafting.model, drafting.corpus)
        bench = SpeedBench(target, ways, settings, time.perf_counter)
        with loading_bar("measuring") as bar:
            show = (lambda share: bar(target.name, share)) if bar else (lambda _share: None)
            report = bench.run(chosen, repeats, show)
        given = {"prompts": prompts, "limit": limit, "repeats": repeats}
        given |= {"draft_corpus": models.draft_corpus, "draft_slim": models.draft_slim}
        # Not for nothing: it takes the checksum of the files.
        whole = _as_json(report, target, drafting, settings, given) if as_json or plot is not None else {}
        if as_json:
            print_json(whole)
    _explain(report, stderr=as_json)
    if plot is not None:
        draw(whole, Path(plot))
    return DIFFERENT if report.different else 0


def _settings(*, raw: bool, turns: str, max_tokens: int, temperature: float, seed: int) -> Settings:
    from pilotfish.bench.speed import Settings
    from pilotfish.options import Options

    Options(max_tokens=max_tokens, temperature=temperature, seed=seed)
    return Settings(max_tokens, temperature, seed, turns, raw)  # type: ignore[arg-type]


def _wish(models: common.ModelOptions, modes: str | None) -> tuple[Wish, tuple[str, ...]]:
    """Return which drafters to load, and the modes."""
    from pilotfish.bench.speed import AUTO, MODEL, MODES, SUFFIX, checked
    from pilotfish.drafting import OFF, Wish

    if OFF in models.draft:
        raise UsageError("draft is off, so there is nothing to compare", "name suffix, auto or a model")
    wish = Wish.read(models.draft or "auto")
    if modes is None:
        return wish, MODES
    names = checked([mode.strip() for mode in modes.split(",")])
    if models.draft_corpus is not None and not {SUFFIX, AUTO} & set(names):
        raise UsageError("draft_corpus is given, but no mode looks things up", "add suffix or auto to modes")
    needs_model = MODEL in names or AUTO in names
    return wish if needs_model else Wish(suffix=True), names


def _as_json(
    report: Report,
    target: TextModel,
    drafting: Drafting,
    settings: Settings,
    given: Mapping[str, object],
) -> dict[str, object]:
    from dataclasses import asdict

    from pilotfish.bench.envelope import envelope
    from pilotfish.bench.speed import AUTO, MODEL, SUFFIX
    from pilotfish.drafting import CORPUS

    used: list[Model | str] = []
    if {SUFFIX, AUTO} & set(report.modes):
        used += [SUFFIX, CORPUS] if drafting.corpus is not None else [SUFFIX]
    if drafting.model is not None and {MODEL, AUTO} & set(report.modes):
        used.append(drafting.model)
    options = {"modes": list(report.modes)} | asdict(settings) | dict(given)
    return envelope("bench speed", target, used, options | {"context": target.engine.context}) | (
        report.as_dict()
    )


def _explain(report: Report, *, stderr: bool) -> None:
    """Print a table of the categories and of all prompts, for 80 columns, and whether it can be trusted."""
    from rich.table import Table
    from rich.text import Text

    out = console(stderr=stderr)
    table = Table(box=None, pad_edge=False)
    for head in ("category", "mode"):
        table.add_column(head)
    for head in ("tokens/s", "ratio", "95 %", "total", "tokens/pass", "acceptance"):
        table.add_column(head, justify="right")
    for category in (*report.categories, None):
        for mode in report.modes:
            label = "" if mode != report.modes[0] else "overall" if category is None else category
            last = mode == report.modes[-1]
            row = _row(report.rates(mode, category))
            table.add_row(Text(label, "bold" if category is None else ""), mode, *row, end_section=last)
    out.print(table)
    if report.skipped:
        out.print(f"{len(report.skipped)} prompts do not fit the context and were skipped: {report.skipped}")
    for prompt, mode in report.different[:1]:
        out.print(
            Text(
                f"{len(report.different)} answers differ from plain decoding's and are left out of the "
                f"ratios, the first: prompt {prompt}, {mode}",
                "bold red",
            )
        )
    out.print("ratio: plain decoding's seconds over the mode's; total: with the prompt")
    again = report.plain_vs_plain
    said = "could not be timed" if again is None else f"against itself: {again:.3f}"
    verdict = "" if report.valid else "; invalid, the machine was not quiet"
    out.print(Text(f"plain decoding {said}{verdict}", "" if report.valid else "bold red"))


def _row(rates: Rates) -> list[Text]:
    from rich.text import Text

    low, high = rates.ratio_ci95 or (None, None)
    style = "" if low is None or high is None else "green" if low > 1 else "red" if high < 1 else ""
    return [
        Text(f"{rates.tokens_per_s:.1f}"),
        Text(_number(rates.ratio), f"bold {style}"),
        Text("" if low is None else f"{_number(low)}-{_number(high)}", style),
        Text(_number(rates.ratio_total)),
        Text(f"{rates.tokens_per_pass:.2f}"),
        Text(f"{rates.acceptance:.0%}"),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
