"""Model families: each builds a program that reads like its paper."""

from __future__ import annotations

from collections.abc import Callable

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families import llama, qwen2

FAMILIES: dict[str, Callable[[Builder], None]] = {"llama": llama.build, "qwen2": qwen2.build}
"""By `general.architecture`."""
