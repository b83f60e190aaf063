"""llama (Touvron et al. 2023) and what follows it: grouped-query attention, interleaved rope in the file."""

from __future__ import annotations

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families.decoder import build_decoder


def build(m: Builder) -> None:
    """Build a llama model."""
    if "vocab_size" in m.config:
        m.config.integer("vocab_size")
    build_decoder(m, interleaved=True, qkv_bias=m.has("blk.0.attn_q.bias"))
