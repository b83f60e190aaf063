"""`pilotfish models`: what can be pulled, and what is there."""

from __future__ import annotations

import click

from pilotfish.cli import common
from pilotfish.cli.output import console, print_json


@click.command("models", short_help="List models.")
@common.JSON
def command(as_json: bool) -> None:
    """List the models that have names, and which of them are in the cache."""
    from pilotfish import __version__
    from pilotfish.hub import REGISTRY, cache_dir, cached_path

    rows = [(entry, cached_path(entry.name)) for entry in REGISTRY.values()]
    if as_json:
        models = [
            {
                "name": entry.name,
                "title": entry.title,
                "family": entry.family,
                "licence": entry.licence,
                "size_bytes": entry.size,
                "sha256": entry.sha256,
                "draft": entry.draft,
                "path": None if path is None else str(path),
            }
            for entry, path in rows
        ]
        head = {"kind": "models", "schema": 1, "version": __version__}
        print_json({**head, "cache": str(cache_dir()), "models": models})
        return
    from rich.table import Table

    table = Table("name", "model", "licence", "draft model", box=None, pad_edge=False)
    table.add_column("size", justify="right")
    table.add_column("cached")
    for entry, path in rows:
        size = f"{entry.size / 1e6:,.0f} MB"
        table.add_row(
            entry.name, entry.title, entry.licence, entry.draft or "", size, "yes" if path else "no"
        )
    console().print(table)
    click.echo(f"cache: {cache_dir()}")
