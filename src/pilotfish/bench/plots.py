"""What all pictures share: matplotlib asked for early, drawn without a window, written to a named file."""

from __future__ import annotations

import contextlib
import importlib.util
from typing import TYPE_CHECKING, Any

from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def as_it_is(text: str) -> str:
    """Return a text so that matplotlib shows it as it is, and takes no part of it for a formula."""
    return text.replace("$", r"\$")


@contextlib.contextmanager
def picture(path: Path, width: float = 7.0, height: float = 4.2, *, rows: int = 1) -> Iterator[Any]:
    """Give the axes of an empty figure, one below the other if there are several, and write it at the end.

    Parameters
    ----------
    path
        Its ending says the format.
    width, height
        In inches.
    rows
        Axes that share their x.

    Raises
    ------
    UsageError
        As `check_plot`, or a file that can't be written.
    """
    check_plot(path)
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(rows, figsize=(width, height), layout="constrained", sharex=True)
    try:
        yield axes
        figure.savefig(path)
    except OSError as error:
        raise UsageError(
            f"can't write {path}: {error}", "name a file in a folder you can write to"
        ) from error
    finally:
        plt.close(figure)
