"""The command line: one small file a command, imported when it is called."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

import click

from pilotfish import signals
from pilotfish.cli.failures import ReaderLeft, exit_code_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

COMMANDS = ("run", "chat", "serve", "pull", "models", "rm", "info", "demo", "verify", "bench")


class Commands(click.Group):
    """The commands by name; whatever one of them raises becomes one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        from pilotfish.cli.configuration import with_profile

        command = importlib.import_module(f"pilotfish.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return with_profile(command)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401 - passed on to click
        """Read the arguments, which may print the help."""
        with _reader_may_leave():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _reader_may_leave():
            return super().invoke(ctx)

    def main(self, args: Any = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # noqa: ANN401
        """Run and exit: 0 ok, 1 verify found a difference, 2 error, 130 Ctrl-C, 143 SIGTERM."""
        extra = {**extra, "prog_name": "pilotfish", "standalone_mode": False}
        run = super().main
        sys.exit(exit_code_of(lambda: run(args, **extra)))


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Keep a closed pipe from click, which would call it a failure."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderLeft from None


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from pilotfish import __version__

        click.echo(f"pilotfish {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
def cli() -> None:
    """Exact speculative decoding: the same answer, sooner.

    Options can also be given in the environment, as PILOTFISH_MODEL, PILOTFISH_THREADS and so on, or in a
    configuration file; `pilotfish info` shows what is set, and where.
    """


def main() -> NoReturn:
    """Run the command line; the entry point of the `pilotfish` script."""
    signals.handle()
    cli.main()
