"""gemma3 (Gemma Team 2025), text only: five layers that see a window, then one that sees everything.

- Every block has four norms: before and after attention, before and after the MLP; the later one is taken
  before the residual is added. Their weights have had 1 added by the converter.
- Queries and keys have a norm too. The gate is gelu by tanh. The head is the embedding, which is multiplied
  by sqrt(width) where it is read.
- Layers with a window rotate with a base of their own, 10,000, and are not scaled. Files don't say so, nor
  which layers these are.
"""

from __future__ import annotations

import math

from pilotfish.engines.native.builder import Builder
from pilotfish.engines.native.families.decoder import head_norms, logits
from pilotfish.engines.native.families.rope import linear_factor

_GLOBAL_EVERY = 6
_LAYERS_OF_27B = 62


def build(m: Builder) -> None:
    """Build a gemma3 model."""
    c, shape = m.config, m.attention_shape
    eps = c.real("attention.layer_norm_rms_epsilon")
    c.integer("feed_forward_length")  # what the tensors say anyway
    c.expect("attention.sliding_window_pattern", _GLOBAL_EVERY)
    window = c.integer("attention.sliding_window", most=1 << 30)
    width = c.integer("embedding_length")
    # Scores are divided by the root of the head's size; in the largest model, of a head's share of the width.
    scale = 1 / math.sqrt(width // shape.heads if shape.layers == _LAYERS_OF_27B else shape.head)
    c.expect("rope.dimension_count", shape.head)
    everywhere = m.rope_table(c.real("rope.freq_base", 1e6), shape.head, factor=linear_factor(m))
    nearby = m.rope_table(c.real("rope.freq_base_swa", 10_000.0), shape.head)

    x = m.embed("token_embd.weight", scale=math.sqrt(width))
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        sees_all = layer % _GLOBAL_EVERY == _GLOBAL_EVERY - 1
        h = m.norm(x, block + "attn_norm.weight", eps)
        a = m.attention(
            m.qkv(h, [block + f"attn_{part}.weight" for part in "qkv"]),
            layer,
            everywhere if sees_all else nearby,
            norms=head_norms(block, eps),
            scale=scale,
            window=0 if sees_all else window,
        )
        y = m.linear(a, block + "attn_output.weight")
        m.add_norm(x, y, block + "post_attention_norm.weight", eps)
        h = m.norm(x, block + "ffn_norm.weight", eps)
        h = m.gated(h, block + "ffn_gate.weight", block + "ffn_up.weight", gelu=True)
        y = m.linear(h, block + "ffn_down.weight")
        m.add_norm(x, y, block + "post_ffw_norm.weight", eps)
    logits(m, x, eps)
