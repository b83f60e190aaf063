"""`pilotfish models`: what can be pulled, and what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pilotfish.cli import common
from pilotfish.cli.failures import one_line
from pilotfish.cli.output import console, print_json

if TYPE_CHECKING:
    from pilotfish.hub import Found

PLACES = {
    "pilotfish": "the cache",
    "huggingface": "Hugging Face's cache",
    "ollama": "Ollama",
    "llama.cpp": "llama.cpp's cache",
}


@click.command("models", short_help="List models.")
@common.JSON
def command(as_json: bool) -> None:
    """List the models that have names, and those on this machine: pulled, or fetched by other programs."""
    from pilotfish import __version__
    from pilotfish.hub import REGISTRY, cache_dir, cached_path, models_here

    rows = [(entry, cached_path(entry.name)) for entry in REGISTRY.values()]
    others = [found for found in models_here() if found.name not in REGISTRY]
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
                "source": f"hf:{entry.hub.repo}",
            }
            for entry, path in rows
        ]
        head = {"kind": "models", "schema": 1, "version": __version__}
        found = [_described(one) for one in others]
        print_json({**head, "cache": str(cache_dir()), "models": models, "others": found})
        return
    from rich.table import Table

    table = Table("name", "model", "licence", "draft model", box=None, pad_edge=False)
    table.add_column("size", justify="right")
    table.add_column("cached")
    for entry, path in rows:
        table.add_row(
            entry.name,
            entry.title,
            entry.licence,
            entry.draft or "",
            _mb(entry.size),
            "yes" if path else "no",
        )
    out = console()
    out.print(table)
    if others:
        out.print()
        out.print(_table_of(others))
    click.echo(f"cache: {cache_dir()}")


def _described(found: Found) -> dict[str, object]:
    return {
        "name": found.name,
        "store": found.store,
        "path": None if found.path is None else str(found.path),
        "size_bytes": found.size,
        "sha256": found.sha256 or None,
        "problem": None if found.problem is None else str(found.problem),
    }


def _table_of(others: list[Found]) -> object:
    from rich.table import Table

    table = Table("name", "from", box=None, pad_edge=False)
    table.add_column("size", justify="right")
    table.add_column("")
    for found in others:
        problem = "" if found.problem is None else f"can't be used: {found.problem.message}"
        size = _mb(found.size) if found.problem is None else ""
        table.add_row(one_line(found.name), PLACES[found.store], size, one_line(problem))
    return table


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
