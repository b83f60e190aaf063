"""What is shown of a pull."""

from __future__ import annotations

import io
import sys
from itertools import count

import pytest
from rich.console import Console

from pilotfish.hub.progress import PlainProgress
from pilotfish.hub.rich_progress import RichProgress, terminal_progress


def test_plain_lines_come_by_tenths_and_not_too_often() -> None:
    stream = io.StringIO()
    seconds = count()  # one second goes by at every look at the clock
    progress = PlainProgress(stream, lambda: float(next(seconds)))
    progress.start("tiny", 1_000_000, 0)
    for _ in range(100):
        progress.advance(10_000)
    progress.finish()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "tiny: 10 % (0.1 MB of 1.0 MB)"
    assert lines[-1] == "tiny: 100 % (1.0 MB of 1.0 MB)"
    assert len(lines) == 10


def test_a_quick_stretch_has_no_lines_but_messages_have() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, lambda: 0.0)
    progress.start("tiny", 100, 0)
    progress.advance(100)
    progress.message("done [red]")
    assert stream.getvalue() == "done [red]\n"


def test_a_stretch_that_goes_on_says_from_where() -> None:
    stream = io.StringIO()
    PlainProgress(stream).start("tiny", 2_000_000, 500_000)
    assert stream.getvalue() == "tiny: 0.5 MB of 2.0 MB are here already\n"


def test_the_bar_shows_bytes_and_messages_as_they_are() -> None:
    stream = io.StringIO()
    progress = RichProgress(Console(file=stream, force_terminal=True, width=100))
    progress.start("tiny [red]", 2_000_000, 500_000)
    progress.advance(1_500_000)
    progress.message("from [bold]somewhere: " + "x" * 200)
    progress.finish()
    progress.finish()
    text = stream.getvalue()
    assert "tiny [red]" in text
    assert "2.0/2.0 MB" in text
    assert "from [bold]somewhere: " + "x" * 200 in text
    assert text.endswith("\x1b[?25h"), "the cursor is shown again"


@pytest.mark.parametrize(
    ("terminal", "no_color", "bar"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_a_bar_is_for_terminals_that_want_one(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_color: str, bar: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    assert isinstance(terminal_progress(), RichProgress) == bar
