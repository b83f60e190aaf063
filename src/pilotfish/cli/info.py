"""`pilotfish info`: what a model file is, and what it will need."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import click

from pilotfish.cli import common
from pilotfish.cli.failures import one_line
from pilotfish.cli.opening import named, positive
from pilotfish.cli.output import console, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMISE = "bits: tokens and logits are the same with and without drafting"


@click.command("info", short_help="Describe a model file.")
@common.MODEL
@common.CONTEXT
@common.THREADS
@common.OFFLINE
@common.JSON
def command(
    *, model: str | None, context: int | None, threads: int | None, offline: bool, as_json: bool
) -> None:
    """Describe a model from its header: family, size, context, tensor types, memory. Nothing is loaded."""
    from pilotfish import hub, memory
    from pilotfish.engines.native.threads import default_threads
    from pilotfish.kernels import _kernels
    from pilotfish.loading import Plan, memory_bytes
    from pilotfish.model import file_sha256
    from pilotfish.processor import cpu_name

    if threads is not None:
        positive("threads", threads)
    ref = hub.resolve(named(model), offline=offline)
    plan = Plan.make(ref, context)
    with plan.file as container:
        types = Counter(info.type for info in container.tensors.values())
        by_type = {name: {"tensors": count, "bytes": 0} for name, count in types.items()}
        for info in container.tensors.values():
            by_type[info.type]["bytes"] += info.nbytes
    sha256 = ref.entry.sha256 if ref.entry else file_sha256(ref.path)
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
        "free_bytes": memory.free_bytes(),
        "chat_template": "tokenizer.chat_template" in plan.metadata,
        "draft": ref.entry.draft if ref.entry else None,
        "promise": "bits",
    }
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


def _print(facts: Mapping[str, object], machine: Mapping[str, object], sha256: str) -> None:
    from rich.table import Table

    types: object = facts["tensor_types"]
    assert isinstance(types, dict)
    rows = {
        "name": facts["name"],
        "title": facts["title"],
        "file": facts["path"],
        "sha256": sha256,
        "family": facts["family"],
        "size": _mb(facts["size_bytes"]),
        "tensor types": ", ".join(f"{name} {_mb(t['bytes'])} ({t['tensors']})" for name, t in types.items()),
        "context": f"{facts['context']} (the model's: {facts['context_max']})",
        "memory": f"{_mb(facts['memory_bytes'])}, of it {_mb(facts['kv_bytes'])} for a full context",
        "free memory": "unknown" if facts["free_bytes"] is None else _mb(facts["free_bytes"]),
        "chat template": "yes" if facts["chat_template"] else "no, a base model",
        "draft model": facts["draft"] or "none known",
        "promise": PROMISE,
        "machine": f"{machine['cpu']}, {machine['isa']}, {machine['threads']} threads",
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, one_line(str(value)))
    console().print(table)


def _mb(size: object) -> str:
    assert isinstance(size, int)
    return f"{size / 1e6:,.0f} MB"
