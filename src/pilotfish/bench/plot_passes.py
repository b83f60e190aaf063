"""The curve of pass times with the floor drawn in, and the peers' curves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pilotfish.bench.plots import as_it_is, picture

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.bench.passes import Passes


def plot(passes: Passes, title: str, path: Path) -> None:
    """Write a picture; its format follows the file's ending.

    Raises
    ------
    UsageError
        As `picture`.
    """
    with picture(path) as axes:
        counts = sorted(passes.rows)
        axes.plot(counts, [1e3 * passes.median_s(n) for n in counts], marker="o", label="median pass")
        for (name, peer), marker in zip(passes.peers.items(), itertools.cycle("sD^v")):
            label = f"{name} ({peer.version})"
            axes.plot(counts, [1e3 * peer.median_s(n) for n in counts], marker=marker, label=label)
        axes.plot(
            counts,
            [1e3 * n * passes.median_s(counts[0]) for n in counts],
            linestyle=":",
            color="grey",
            label="as many passes over one token",
        )
        axes.axhline(
            1e3 * passes.floor_s,
            linestyle="--",
            color="tab:red",
            label=f"floor: {passes.bytes / 1e9:.2f} GB at {passes.read_bytes_s / 1e9:.1f} GB/s",
        )
        axes.set(xlabel="tokens in the pass", ylabel="ms", title=as_it_is(title))
        curves = (passes, *passes.peers.values())
        axes.set_ylim(0, 1.15e3 * max(curve.median_s(n) for curve in curves for n in counts))
        axes.legend()
