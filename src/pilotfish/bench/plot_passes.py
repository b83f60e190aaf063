"""The curve of pass times with the floor drawn in."""

from __future__ import annotations

from pathlib import Path

from pilotfish.bench.passes import Passes
from pilotfish.errors import UsageError


def plot(passes: Passes, title: str, path: Path) -> None:
    """Write a picture; its format follows the file's ending (png, svg, pdf).

    Raises
    ------
    UsageError
        matplotlib is missing, an ending it doesn't know, or a file that can't be written.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError("plots need matplotlib", 'pip install "pilotfish[plot]"') from None
    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    counts = sorted(passes.rows)
    axes.plot(counts, [1e3 * passes.median_s(n) for n in counts], marker="o", label="median pass")
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
    axes.set_ylim(0, 1.15e3 * max(passes.median_s(n) for n in counts))
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"can't write {path}: {error}", "name a .png, .svg or .pdf file") from error
    finally:
        plt.close(figure)
