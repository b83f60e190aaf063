"""`pilotfish rm`: free the space that cached models take."""

from __future__ import annotations

import sys

import click

from pilotfish.cli import common
from pilotfish.cli.failures import one_line
from pilotfish.cli.output import print_json
from pilotfish.errors import UsageError


@click.command("rm", short_help="Remove models from the cache.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@common.JSON
def command(*, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove models by their names (see: pilotfish models), and what broken pulls of them left.

    Only pilotfish's own cache is freed, never the folders of other programs.
    """
    from pilotfish import __version__
    from pilotfish.hub import removal

    plans = [removal(name) for name in dict.fromkeys(names)]
    if not yes and not _asked(", ".join(f"{plan.name} ({_mb(plan.size)})" for plan in plans)):
        click.echo("nothing was removed", err=True)
        plans = []
    done = []
    for plan in plans:
        freed = plan.carry_out()
        done.append({"name": plan.name, "freed_bytes": freed, "files": [str(path) for path in plan.files]})
        if not as_json:
            click.echo(f"{plan.name}: {_mb(freed)} freed")
    if as_json:
        total = sum(plan["freed_bytes"] for plan in done if isinstance(plan["freed_bytes"], int))
        head = {"kind": "rm", "schema": 1, "version": __version__}
        print_json(head | {"freed_bytes": total, "models": done})


def _asked(what: str) -> bool:
    """Return what the user says.

    Raises
    ------
    UsageError
        There is nobody to ask.
    """
    if not _is_terminal():
        raise UsageError(f"removing {one_line(what)} is not confirmed", "say --yes")
    return click.confirm(f"Remove {one_line(what)}?", err=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
