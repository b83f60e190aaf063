"""Whole models of a few thousand random weights, as GGUF files without a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
import numpy as np

from oracle.quants import block_shape, random_blocks

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tiny:
    """Shape of a random model; `width` and `mlp_width` must be multiples of the block of `kind`.

    Attributes
    ----------
    kind, embedding_kind
        Tensor types of the layers' matrices and of the embedding and head.
    tied
        Leave `output.weight` out.
    """

    family: str = "llama"
    kind: str = "F32"
    embedding_kind: str = "F32"
    layers: int = 2
    width: int = 128
    mlp_width: int = 256
    heads: int = 4
    kv_heads: int = 2
    vocab_size: int = 97
    context: int = 512
    tied: bool = False


def write_tiny(path: Path, tiny: Tiny = Tiny(), seed: int = 0) -> Path:
    """Write the model that `tiny` and `seed` determine; return the path."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, tiny.family)
    writer.add_block_count(tiny.layers)
    writer.add_context_length(tiny.context)
    writer.add_embedding_length(tiny.width)
    writer.add_feed_forward_length(tiny.mlp_width)
    writer.add_head_count(tiny.heads)
    writer.add_head_count_kv(tiny.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if tiny.family == "llama":
        writer.add_rope_dimension_count(tiny.width // tiny.heads)

    def vector(name: str, size: int, mean: float) -> None:
        writer.add_tensor(name, rng.normal(mean, 0.2, size).astype(np.float32))

    def matrix(name: str, rows: int, k: int, kind: str) -> None:
        raw = random_blocks(kind, rows, k, rng, std=k**-0.5)
        if block_shape(kind)[0] > 1:
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
        elif kind == "BF16":
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, raw.view(np.float32 if kind == "F32" else np.float16))

    kv_width = tiny.width // tiny.heads * tiny.kv_heads
    matrix("token_embd.weight", tiny.vocab_size, tiny.width, tiny.embedding_kind)
    for layer in range(tiny.layers):
        prefix = f"blk.{layer}"
        vector(f"{prefix}.attn_norm.weight", tiny.width, 1)
        for part, rows in (("q", tiny.width), ("k", kv_width), ("v", kv_width)):
            matrix(f"{prefix}.attn_{part}.weight", rows, tiny.width, tiny.kind)
            if tiny.family == "qwen2":
                vector(f"{prefix}.attn_{part}.bias", rows, 0)
        matrix(f"{prefix}.attn_output.weight", tiny.width, tiny.width, tiny.kind)
        vector(f"{prefix}.ffn_norm.weight", tiny.width, 1)
        matrix(f"{prefix}.ffn_gate.weight", tiny.mlp_width, tiny.width, tiny.kind)
        matrix(f"{prefix}.ffn_up.weight", tiny.mlp_width, tiny.width, tiny.kind)
        matrix(f"{prefix}.ffn_down.weight", tiny.width, tiny.mlp_width, tiny.kind)
    vector("output_norm.weight", tiny.width, 1)
    if not tiny.tied:
        matrix("output.weight", tiny.vocab_size, tiny.width, tiny.embedding_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
