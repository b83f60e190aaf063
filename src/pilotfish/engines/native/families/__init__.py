"""Model families: each builds a program that reads like its paper."""

from __future__ import annotations

from collections.abc import Callable

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families import gemma3, llama, phi3, qwen2, qwen3
from pilotfish.errors import UnsupportedError, shown

FAMILIES: dict[str, Callable[[Builder], None]] = {
    "llama": llama.build,
    "qwen2": qwen2.build,
    "qwen3": qwen3.build,
    "gemma3": gemma3.build,
    "phi3": phi3.build,
}
"""By `general.architecture`."""


def family_named(architecture: str) -> Callable[[Builder], None]:
    """Return what builds models of a family.

    Raises
    ------
    UnsupportedError
        The family is not known.
    """
    if architecture not in FAMILIES:
        raise UnsupportedError(
            f"the model family {shown(architecture)} is not supported", f"supported are {', '.join(FAMILIES)}"
        )
    return FAMILIES[architecture]
