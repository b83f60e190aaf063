"""Model families: each builds a program that reads like its paper."""

from __future__ import annotations

from collections.abc import Callable

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families import llama, qwen2
from pilotfish.errors import UnsupportedError, shown

FAMILIES: dict[str, Callable[[Builder], None]] = {"llama": llama.build, "qwen2": qwen2.build}
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
