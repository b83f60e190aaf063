"""`pilotfish info`: what a model file is, what it will need, and what is set where."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import TYPE_CHECKING

import click

from pilotfish.cli import common
from pilotfish.cli.configuration import PROFILE, config_path, settings_of, with_profile
from pilotfish.cli.failures import one_line
from pilotfish.cli.opening import named, positive
from pilotfish.cli.output import console, print_json
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pilotfish.engines.native.container import Container
    from pilotfish.loading import Plan

PROMISE = "bits: tokens and logits are the same with and without drafting"


@click.command("info", short_help="Describe a model file, and what is set.")
@click.argument("name", required=False, metavar="[MODEL]")
@common.MODEL
@common.CONTEXT
@common.THREADS
@common.OFFLINE
@common.JSON
@click.pass_context
def command(
    ctx: click.Context,
    *,
    name: str | None,
    model: str | None,
    context: int | None,
    threads: int | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Describe a model from its header: family, size, context, tensor types, memory. No weights are loaded.

    The settings that `pilotfish run` would use are shown with where each comes from.
    """
    from pilotfish import hub, memory
    from pilotfish.engines.native.threads import default_threads
    from pilotfish.kernels import _kernels
    from pilotfish.loading import Plan, memory_bytes
    from pilotfish.model import file_sha256
    from pilotfish.processor import cpu_name
    from pilotfish.serving.reserves import reserves
    from pilotfish.serving.scheduler import MOST_RUNNING

    if threads is not None:
        positive("threads", threads)
    settings = _settings(ctx, name)
    ref = hub.resolve(named(name or model), offline=offline)
    plan = Plan.make(ref, context, threads=threads)
    served = plan.reserving(reserves(MOST_RUNNING)[0])
    with plan.file as container:
        by_type, refusal = _types(container), _refusal(plan)
        parameters = sum(math.prod(info.shape) for info in container.tensors.values())
    facts: dict[str, object] = {
        "name": ref.name,
        "title": str(plan.metadata.get("general.name", "")),
        "path": str(ref.path),
        "family": plan.metadata["general.architecture"],
        "size_bytes": plan.file.size_bytes,
        "context_max": plan.longest,
        "context": plan.context,
        "tensor_types": by_type,
        "weights_bytes": plan.footprint.weights,
        "kv_bytes": plan.footprint.kv,
        "work_bytes": plan.footprint.work,
        "memory_bytes": memory_bytes(plan),
        "server_memory_bytes": memory_bytes(served),
        "free_bytes": memory.free_bytes(),
        "chat_template": "tokenizer.chat_template" in plan.metadata,
        "draft": ref.entry.draft if ref.entry else None,
        "parameters": parameters,
        "promise": "bits" if refusal is None else None,
        "refusal": refusal,
        "config_file": str(config_path()),
        "settings": {key: {"value": value, "source": source} for key, (value, source) in settings.items()},
    }
    sha256 = ref.sha256 or file_sha256(ref.path)
    isa = os.environ.get("PILOTFISH_ISA") or _kernels.isas()[0]
    machine = {"cpu": cpu_name(), "isa": isa, "threads": threads or default_threads(), "read_gb_s": None}
    if as_json:
        from pilotfish import __version__

        head = {"kind": "info", "schema": 1, "version": __version__}
        print_json(
            {**head, "model": {"name": ref.name, "sha256": sha256}, "drafts": [], "machine": machine}
            | {"settings": {"context": plan.context}, "info": facts}
        )
    else:
        _print(facts, machine, sha256)


def _settings(ctx: click.Context, name: str | None) -> dict[str, tuple[object, str]]:
    """Return value and source of what `run` would use, with the flags given here."""
    from pilotfish.cli.run import command as run

    own = settings_of(ctx)
    if name is not None:
        if own["model"][1] == "flag":
            raise UsageError(f"two models are named, {name!r} and {own['model'][0]!r}", "name one")
        own["model"] = (name, "flag")
    profile = ctx.meta.get(PROFILE)
    inner = with_profile(run).make_context("run", ["--profile", profile] if profile else [], parent=ctx)
    found = settings_of(inner) | {key: setting for key, setting in own.items() if setting[1] == "flag"}
    if found["model"][0] is None:
        found["model"] = (named(None), "default")
    if not found["draft"][0]:
        found["draft"] = (("auto",), found["draft"][1])
    return found


def _types(container: Container) -> dict[str, dict[str, int]]:
    types = Counter(info.type for info in container.tensors.values())
    by_type = {name: {"tensors": count, "bytes": 0} for name, count in types.items()}
    for info in container.tensors.values():
        by_type[info.type]["bytes"] += info.nbytes
    return by_type


def _refusal(plan: Plan) -> str | None:
    """Return why the model can't be run, None if it can; whether its weights fit the memory is not asked."""
    from pilotfish.engines.native.checking import check_runs
    from pilotfish.errors import ModelError
    from pilotfish.text.tokenizer import Tokenizer

    try:
        check_runs(plan.file)
        Tokenizer.from_metadata(plan.metadata)
    except ModelError as error:
        return str(error)
    except MemoryError:
        return "the machine's memory has no room for its weights"
    return None


def _print(facts: Mapping[str, object], machine: Mapping[str, object], sha256: str) -> None:
    from rich.table import Table

    types, settings = facts["tensor_types"], facts["settings"]
    assert isinstance(types, dict)
    assert isinstance(settings, dict)
    rows = {
        "name": facts["name"],
        "title": facts["title"],
        "file": facts["path"],
        "sha256": sha256,
        "family": facts["family"],
        "size": f"{_mb(facts['size_bytes'])}, {_millions(facts['parameters'])} parameters",
        "tensor types": ", ".join(f"{name} {_mb(t['bytes'])} ({t['tensors']})" for name, t in types.items()),
        "context": f"{facts['context']} (the model's: {facts['context_max']})",
        "memory": f"{_mb(facts['memory_bytes'])}, of it {_mb(facts['kv_bytes'])} for a full context",
        "as a server": f"{_mb(facts['server_memory_bytes'])}, most of it from the start",
        "free memory": "unknown" if facts["free_bytes"] is None else _mb(facts["free_bytes"]),
        "chat template": "yes" if facts["chat_template"] else "no, a base model",
        "draft model": facts["draft"] or "none known",
        "promise": PROMISE if facts["promise"] else f"none, it can't be run: {facts['refusal']}",
        "machine": f"{machine['cpu']}, {machine['isa']}, {machine['threads']} threads",
    }
    out = console()
    out.print(_two_columns(rows))
    out.print(f"\nsettings of run; configuration file: {one_line(str(facts['config_file']))}")
    table = Table("setting", "value", "from", box=None, pad_edge=False)
    for key, found in settings.items():
        value = found["value"]
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        table.add_row(key, one_line("" if shown is None else str(shown)), one_line(found["source"]))
    out.print(table)


def _two_columns(rows: Mapping[str, object]) -> object:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, one_line(str(value)))
    return table


def _mb(size: object) -> str:
    assert isinstance(size, int)
    return f"{size / 1e6:,.0f} MB"


def _millions(count: object) -> str:
    assert isinstance(count, int)
    return f"{count / 1e6:,.1f} million"
