"""What every line of JSON starts with: what was run, on which machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pilotfish
from pilotfish.processor import cpu_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pilotfish.model import Model


def envelope(
    kind: str, model: Model, drafts: Sequence[Model | str], settings: Mapping[str, object]
) -> dict[str, object]:
    """Return the fields that all reports share.

    Parameters
    ----------
    kind
        Name of the command.
    model
        The target.
    drafts
        Draft models, and names of drafters that are none (their `sha256` is null).
    settings
        The options that the result depends on.
    """
    return {
        "kind": kind,
        "schema": 1,
        "version": pilotfish.__version__,
        "model": _described(model),
        "drafts": [{"name": d, "sha256": None} if isinstance(d, str) else _described(d) for d in drafts],
        "machine": {"cpu": cpu_name(), "isa": model.isa, "threads": model.threads, "read_gb_s": None},
        "settings": dict(settings),
    }


def _described(model: Model) -> dict[str, object]:
    return {"name": model.name, "sha256": model.sha256()}
