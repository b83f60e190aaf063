"""The decoder-only transformer that most families are: norm, attention, norm, gated MLP, twice residual."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pilotfish.engines.native.builder import Attention, Buffer, Builder, HeadNorms
from pilotfish.engines.native.config import Config
from pilotfish.engines.native.families.rope import scaled_rope


def attention_shape(config: Config) -> Attention:
    """Read heads and layers; a head's size is its share of the width unless the file says otherwise."""
    heads = config.integer("attention.head_count", most=1024)
    width = config.integer("embedding_length")
    head = config.integer("attention.key_length", width // heads, most=1024)
    config.expect("attention.value_length", head)
    kv_heads = config.integer("attention.head_count_kv", heads, most=1024)
    return Attention(config.integer("block_count", most=4096), heads, kv_heads, head)


def unpermuted(heads: int, head: int) -> NDArray[np.int32]:
    """Return the file's row for each row of an interleaved query or key matrix.

    Files of the llama family hold the pairs that rope rotates side by side (rows 2 i, 2 i + 1); the kernels
    want the first halves of all pairs, then the second halves.
    """
    rows = np.arange(heads * head, dtype=np.int32).reshape(heads, head // 2, 2)
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(-1)


def head_norms(block: str, eps: float) -> HeadNorms:
    """Return the norms of a block's queries and keys."""
    return HeadNorms(block + "attn_q_norm.weight", block + "attn_k_norm.weight", eps)


def logits(m: Builder, x: Buffer, eps: float) -> None:
    """Norm and head; without a head of its own a model uses its embedding."""
    h = m.norm(x, "output_norm.weight", eps, wanted_only=True)
    m.logits(h, "output.weight" if m.has("output.weight") else "token_embd.weight")


def build_decoder(
    m: Builder, *, interleaved: bool = False, qkv_bias: bool = False, qk_norm: bool = False
) -> None:
    """Build the whole model.

    Parameters
    ----------
    interleaved
        The file's query and key rows are stored pair by pair.
    qkv_bias
        Queries, keys and values have biases.
    qk_norm
        The queries and keys of each head have a norm.
    """
    c, shape = m.config, m.attention_shape
    eps = c.real("attention.layer_norm_rms_epsilon")
    c.integer("feed_forward_length")  # what the tensors say anyway
    rope = scaled_rope(m)
    order = None
    if interleaved:
        c.expect("rope.dimension_count", shape.head)
        order = [unpermuted(shape.heads, shape.head), unpermuted(shape.kv_heads, shape.head), None]

    x = m.embed("token_embd.weight")
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        h = m.norm(x, block + "attn_norm.weight", eps)
        qkv = m.qkv(
            h,
            [block + f"attn_{part}.weight" for part in "qkv"],
            biases=[block + f"attn_{part}.bias" for part in "qkv"] if qkv_bias else (),
            rows_from=order or (),
        )
        a = m.attention(qkv, layer, rope, norms=head_norms(block, eps) if qk_norm else None)
        m.add_linear(x, a, block + "attn_output.weight")
        h = m.norm(x, block + "ffn_norm.weight", eps)
        h = m.gated(h, block + "ffn_gate.weight", block + "ffn_up.weight")
        m.add_linear(x, h, block + "ffn_down.weight")
    logits(m, x, eps)
