"""`pilotfish bench`: how fast, and how near what the machine can do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilotfish.cli import common
from pilotfish.cli.failures import notice
from pilotfish.cli.opening import loading_bar, named, positive
from pilotfish.cli.output import console, print_json
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from pilotfish.bench.passes import Passes


@click.group("bench", short_help="Measure speed.")
def command() -> None:
    """Measure speed. Other load on the machine spoils a measurement."""


@command.command("passes", short_help="What a pass over n tokens costs.")
@common.MODEL
@common.THREADS
@common.OFFLINE
@common.option("--context", type=int, default=512, metavar="N", help="Tokens cached before each pass.")
@common.option("--repeats", type=int, default=9, metavar="N", help="Rounds; medians are reported.")
@common.option("--plot", metavar="FILE", help="Draw the curve (png, svg or pdf; needs matplotlib).")
@common.JSON
def passes_command(
    *,
    model: str | None,
    threads: int | None,
    offline: bool,
    context: int,
    repeats: int,
    plot: str | None,
    as_json: bool,
) -> None:
    """Time passes over 1 to 32 tokens in turn, beside the time that reading the weights takes.

    The floor of a pass is the bytes it has to read over the bandwidth measured in the same run.
    """
    from pilotfish.bench.envelope import envelope
    from pilotfish.bench.passes import TOKENS, measure
    from pilotfish.bench.plot_passes import check_plot
    from pilotfish.bench.plot_passes import plot as draw
    from pilotfish.drafting import Wish
    from pilotfish.engines.native import NativeEngine
    from pilotfish.loading import load_models

    positive("context", context)
    positive("repeats", repeats)
    if plot is not None:
        check_plot(Path(plot))
    room = max(context + max(TOKENS), 512)
    with loading_bar() as progress:
        target, _ = load_models(
            named(model), [Wish.read("off")], room, threads, offline=offline, notice=notice, progress=progress
        )
    engine = target.engine
    if not isinstance(engine, NativeEngine):
        raise UsageError(f"{target.name} is not run by the native engine", "name a GGUF file")
    with loading_bar() as bar:
        show = (lambda share: bar("measuring", share)) if bar else (lambda _share: None)
        result = measure(engine, context, repeats, clock=time.perf_counter, progress=show)
    if plot is not None:
        draw(result, f"{target.name}, context {context}, {target.isa}, {target.threads} threads", Path(plot))
    if as_json:
        report = envelope("bench passes", target, [], {"context": context, "repeats": repeats})
        machine = report["machine"]
        assert isinstance(machine, dict)
        machine["read_gb_s"] = result.read_bytes_s / 1e9
        print_json(report | result.as_dict())
    _table(result, stderr=as_json)
    target.dispose()


def _table(result: Passes, *, stderr: bool) -> None:
    from rich.table import Table

    one = result.median_s(min(result.rows))
    table = Table(box=None, pad_edge=False)
    for heading in ("tokens", "median ms", "min ms", "of one token", "over floor"):
        table.add_column(heading, justify="right")
    for n, times in result.rows.items():
        median = result.median_s(n)
        cells = (1e3 * median, 1e3 * min(times), median / one, median / result.floor_s)
        table.add_row(str(n), *(f"{cell:.2f}" for cell in cells))
    out = console(stderr=stderr)
    out.print(table)
    out.print(
        f"floor {1e3 * result.floor_s:.2f} ms: {result.bytes / 1e9:.3f} GB "
        f"at {result.read_bytes_s / 1e9:.1f} GB/s; one token reads {result.bytes / one / 1e9:.1f} GB/s"
    )
    for n, times in result.prefill.items():
        out.print(f"prompt of {n} tokens: {n / sorted(times)[len(times) // 2]:.0f} tokens/s")
    out.print("one token by part, ms: " + ", ".join(f"{p} {1e3 * s:.2f}" for p, s in result.parts.items()))
