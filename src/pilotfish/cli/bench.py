"""`pilotfish bench`: how fast, and how near what the machine can do."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilotfish.cli import common
from pilotfish.cli.bench_speed import SpeedByDefault, speed_command
from pilotfish.cli.failures import notice
from pilotfish.cli.opening import loading_bar, named, positive
from pilotfish.cli.output import console, print_json
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.bench.passes import Passes
    from pilotfish.bench.peers import Peer
    from pilotfish.model import TextModel


@click.group("bench", cls=SpeedByDefault, short_help="Measure speed.")
def command() -> None:
    """Measure speed. Other load on the machine spoils a measurement."""


command.add_command(speed_command)


@command.command("passes", short_help="What a pass over n tokens costs.")
@common.MODEL
@common.THREADS
@common.OFFLINE
@common.option("--context", type=int, default=512, metavar="N", help="Tokens cached before each pass.")
@common.option("--repeats", type=int, default=9, metavar="N", help="Rounds; medians are reported.")
@common.option("--plot", metavar="FILE", help="Draw the curve (png, svg or pdf; needs matplotlib).")
@common.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME",
    help="Time this implementation in turn with ours: llama.cpp (see make peers).",
)
@common.JSON
def passes_command(
    *,
    model: str | None,
    threads: int | None,
    offline: bool,
    context: int,
    repeats: int,
    plot: str | None,
    peers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Time passes over 1 to 32 tokens in turn, beside the time that reading the weights takes.

    The floor of a pass is the bytes it has to read over the bandwidth measured in the same run. A peer runs
    the same file with the same threads; the ratio is its time over ours.
    """
    from pilotfish.bench.envelope import envelope
    from pilotfish.bench.passes import TOKENS, measure
    from pilotfish.bench.peers import check_peer
    from pilotfish.bench.plot_passes import plot as draw
    from pilotfish.bench.plots import check_plot
    from pilotfish.drafting import Wish
    from pilotfish.engines.native import NativeEngine
    from pilotfish.loading import load_models

    positive("context", context)
    positive("repeats", repeats)
    if plot is not None:
        check_plot(Path(plot))
    for peer in peers:
        check_peer(peer)
    room = max(context + max(TOKENS), 512)
    with loading_bar() as progress:
        target, _ = load_models(
            named(model), [Wish.read("off")], room, threads, offline=offline, notice=notice, progress=progress
        )
    engine = target.engine
    if not isinstance(engine, NativeEngine):
        raise UsageError(f"{target.name} is not run by the native engine", "name a GGUF file")
    with contextlib.ExitStack() as stack:
        stack.callback(target.dispose)
        opened = _opened(stack, peers, target, room)
        bar = stack.enter_context(loading_bar("measuring"))
        show = (lambda share: bar(target.name, share)) if bar else (lambda _share: None)
        result = measure(engine, context, repeats, clock=time.perf_counter, peers=opened, progress=show)
    if plot is not None:
        draw(result, f"{target.name}, context {context}, {target.isa}, {target.threads} threads", Path(plot))
    if as_json:
        used = {"context": context, "repeats": repeats, "peers": [peer.name for peer in opened]}
        report = envelope("bench passes", target, [], used)
        machine = report["machine"]
        assert isinstance(machine, dict)
        machine["read_gb_s"] = result.read_bytes_s / 1e9
        print_json(report | result.as_dict())
    _table(result, stderr=as_json)


def _opened(stack: contextlib.ExitStack, names: Sequence[str], target: TextModel, room: int) -> list[Peer]:
    """Load the target's file into the peers; the stack closes them."""
    from pilotfish.bench.peer_features import unused_features
    from pilotfish.bench.peers import INSTALL_LLAMA_CPP, open_peer

    peers = []
    for name in dict.fromkeys(names):
        assert target.path is not None, "the native engine runs files"
        peer = open_peer(name, target.path, room=room, threads=target.threads)
        stack.callback(peer.close)
        peers.append(peer)
        if unused := unused_features(peer.build):
            notice(f"{name} was not compiled for this processor ({', '.join(unused)}); {INSTALL_LLAMA_CPP}")
    return peers


def _table(result: Passes, *, stderr: bool) -> None:
    from rich.table import Table

    one = result.median_s(min(result.rows))
    table = Table(box=None, pad_edge=False)
    for heading in ("tokens", "median ms", "min ms", "of one token", "over floor"):
        table.add_column(heading, justify="right")
    for name in result.peers:
        table.add_column(f"{name} ms", justify="right")
        table.add_column("ratio", justify="right")
    for n, times in result.rows.items():
        median = result.median_s(n)
        cells = [1e3 * median, 1e3 * min(times), median / one, median / result.floor_s]
        for name, peer in result.peers.items():
            cells += [1e3 * peer.median_s(n), result.ratio(name, n)]
        table.add_row(str(n), *(f"{cell:.2f}" for cell in cells))
    out = console(stderr=stderr)
    out.print(table)
    out.print(
        f"floor {1e3 * result.floor_s:.2f} ms: {result.bytes / 1e9:.3f} GB "
        f"at {result.read_bytes_s / 1e9:.1f} GB/s; one token reads {result.bytes / one / 1e9:.1f} GB/s"
    )
    for n in result.prefill:
        said = [f"prompt of {n} tokens: {result.prefill_tokens_s(n):.0f} tokens/s"]
        for name, peer in result.peers.items():
            ratio = result.prefill_ratio(name, n)
            said.append(f"{name} {peer.prefill_tokens_s(n):.0f}, ratio {ratio:.2f}")
        out.print("; ".join(said))
    out.print("one token by part, ms: " + ", ".join(f"{p} {1e3 * s:.2f}" for p, s in result.parts.items()))
    for name, peer in result.peers.items():
        out.print(f"{name}: {peer.version}; {peer.build}", soft_wrap=True)
    if result.peers:
        out.print("ratio above 1: pilotfish is faster")
