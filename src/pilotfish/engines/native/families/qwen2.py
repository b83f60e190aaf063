"""qwen2 (Yang et al. 2024): biases on queries, keys and values, rope by halves."""

from __future__ import annotations

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families.decoder import build_decoder


def build(m: Builder) -> None:
    """Build a qwen2 model."""
    build_decoder(m, qkv_bias=True)
