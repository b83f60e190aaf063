"""phi3 (Abdin et al. 2024), Phi-3, Phi-3.5 and Phi-4: fused matrices, LongRoPE, a window in some.

Queries, keys and values are one tensor, gate and up another. LongRoPE (Ding et al. 2024) divides the angle of
each pair by one factor up to the context that the model was first trained for, and by another beyond. The
context that a model is loaded with decides which, once, so that no key has to be rotated anew.
"""

from __future__ import annotations

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families.decoder import logits

_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


def build(m: Builder) -> None:
    """Build a phi3 model."""
    c, shape = m.config, m.attention_shape
    eps = c.real("attention.layer_norm_rms_epsilon")
    window = c.integer("attention.sliding_window", 0, least=0, most=1 << 30)  # 0: none
    rope = _rope(m)

    x = m.embed("token_embd.weight")
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        h = m.norm(x, block + "attn_norm.weight", eps)
        a = m.attention(m.fused_qkv(h, block + "attn_qkv.weight"), layer, rope, window=window)
        m.add_linear(x, a, block + "attn_output.weight")
        h = m.norm(x, block + "ffn_norm.weight", eps)
        m.add_linear(x, m.fused_gated(h, block + "ffn_up.weight"), block + "ffn_down.weight")
    logits(m, x, eps)


def _rope(m: Builder) -> int:
    c = m.config
    base = c.real("rope.freq_base", 10_000.0)
    dimensions = c.integer("rope.dimension_count", m.attention_shape.head)
    first_context = c.integer("rope.scaling.original_context_length", m.context, most=1 << 30)
    magnitude = c.real("rope.scaling.attn_factor", 1.0)
    if not (m.has(_LONG) or m.has(_SHORT)):
        return m.rope_table(base, dimensions, magnitude=magnitude)
    used, unused = (_LONG, _SHORT) if m.context > first_context else (_SHORT, _LONG)
    m.skip(unused, dimensions // 2)
    return m.rope_table(base, dimensions, factors=used, magnitude=magnitude)
