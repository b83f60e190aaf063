"""qwen3 (Yang et al. 2025): a norm on each query and key in place of biases, heads of a size of their own."""

from __future__ import annotations

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families.decoder import build_decoder


def build(m: Builder) -> None:
    """Build a qwen3 model."""
    build_decoder(m, qk_norm=True)
