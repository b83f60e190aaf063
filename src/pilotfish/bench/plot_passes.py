"""The curve of pass times with the floor drawn in, and the peers' curves."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

from pilotfish.bench.passes import Passes
from pilotfish.errors import UsageError

ENDINGS = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raise UsageError if no picture can be drawn; asked before minutes are spent on measuring.

    Raises
    ------
    UsageError
        matplotlib is missing, or an ending that is not png, svg or pdf.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--plot is {str(path)!r}", f"name a file that ends in {', '.join(ENDINGS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("plots need matplotlib", 'pip install "pilotfish[plot]"')


def plot(passes: Passes, title: str, path: Path) -> None:
    """Write a picture; its format follows the file's ending.

    Raises
    ------
    UsageError
        As `check_plot`, or a file that can't be written.
    """
    check_plot(path)
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
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
    axes.set(xlabel="tokens in the pass", ylabel="ms", title=title)
    curves = (passes, *passes.peers.values())
    axes.set_ylim(0, 1.15e3 * max(curve.median_s(n) for curve in curves for n in counts))
    axes.legend()
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(
            f"can't write {path}: {error}", "name a file in a folder you can write to"
        ) from error
    finally:
        plt.close(figure)
