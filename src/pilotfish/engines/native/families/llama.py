"""llama (Touvron et al. 2023) and what follows it, Llama 3, Mistral and SmolLM2 among them.

Grouped-query attention, pairs of rope side by side in the file. Llama 3.1 and later scale rope by the factors
in the tensor `rope_freqs`.
"""

from __future__ import annotations

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families.decoder import build_decoder


def build(m: Builder) -> None:
    """Build a llama model."""
    build_decoder(m, interleaved=True, qkv_bias=m.has("blk.0.attn_q.bias"))
