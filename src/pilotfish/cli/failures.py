"""From what a command raises to one line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

from pilotfish import signals
from pilotfish.errors import PilotfishError

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR, INTERRUPTED = 2, 130


class ReaderLeft(Exception):
    """Whoever read the standard output, such as `head`, has had enough."""


def exit_code_of(run: Callable[[], object]) -> int:
    """Run a command and return its exit code; nothing but SystemExit leaves this function."""
    _open_missing_streams()
    logger = logging.getLogger("pilotfish")
    if not any(isinstance(handler, LogLine) for handler in logger.handlers):
        logger.addHandler(LogLine(logging.WARNING))
    with contextlib.suppress(AttributeError, OSError):  # what a terminal can't show must not end an answer
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        with signals.raised():
            code = run()
            sys.stdout.flush()
    except SystemExit:
        raise
    except (KeyboardInterrupt, click.Abort):
        _silence(sys.stdout, sys.stderr)
        return INTERRUPTED
    except signals.Terminated as error:
        _silence(sys.stdout, sys.stderr)
        return error.code
    except (ReaderLeft, BrokenPipeError):
        _silence(sys.stdout, sys.stderr)
        return 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except Exception as error:
        if isinstance(error, OSError):  # most likely the output: a full disk
            _silence(sys.stdout)
        _say(_described(error))
        return ERROR
    return code if isinstance(code, int) else 0


def _open_missing_streams() -> None:
    """Put nowhere in the place of streams that the caller has closed, as by `>&-`: Python has None there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - open as long as the process


def _described(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        hint = f" (see: {context.command_path} --help)" if context else ""
        return f"{error.format_message().rstrip('.')}{hint}"
    if isinstance(error, PilotfishError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory (take a smaller model or context, or end other programs)"
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
        return f"can't write the output: {error.strerror}"
    return f"{type(error).__name__}: {error} (set PILOTFISH_DEBUG=1 for the traceback)"


class LogLine(logging.Handler):
    """Shows what the library logs as one line each, without a traceback unless PILOTFISH_DEBUG is set."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record of a warning or an error."""
        cause = record.exc_info[1] if record.exc_info else None
        notice(record.getMessage() + ("" if cause is None else f" ({type(cause).__name__}: {cause})"))
        if cause is not None and os.environ.get("PILOTFISH_DEBUG"):
            traceback.print_exception(cause)


def notice(text: str) -> None:
    """Print one line about something that is worth knowing and no error."""
    click.echo(f"pilotfish: {one_line(text)}", err=True)


def _say(text: str) -> None:
    if os.environ.get("PILOTFISH_DEBUG"):
        traceback.print_exc()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"pilotfish: error: {one_line(text)}", err=True)


def one_line(text: str) -> str:
    """Return the text in one line, without what would steer a terminal: names in files are untrusted."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def _silence(*streams: object) -> None:
    """Let what is still buffered go nowhere, so that the interpreter's last flush can't fail."""
    for stream in streams:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            descriptor = stream.fileno()  # type: ignore[attr-defined]
            with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a path is not what this is about
                os.dup2(nowhere.fileno(), descriptor)
