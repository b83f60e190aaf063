"""A bar on the terminal: bytes, rate and time left."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar

from pilotfish.hub.progress import PlainProgress, Progress


class RichProgress:
    """Draws a bar on stderr while a stretch lasts; messages appear above it.

    Parameters
    ----------
    console
        Where to draw; stderr by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """Show the bar."""
        self.finish()
        bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = bar.add_task(label, total=total_bytes, completed=done_bytes)
        bar.start()
        self._bar = bar

    def advance(self, n: int) -> None:
        """Move the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, n)

    def message(self, text: str) -> None:
        """Print the line as it is."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def finish(self) -> None:
        """Leave the bar as it stands and give the terminal back."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def terminal_progress() -> Progress:
    """Return a bar if stderr is a terminal and `NO_COLOR` is unset or empty, else whole lines."""
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        return RichProgress()
    return PlainProgress()
