"""Whole models of a few thousand random weights, as GGUF files without a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
import numpy as np

from oracle.quants import block_shape, random_blocks

if TYPE_CHECKING:
    from pathlib import Path

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3", "phi3")


@dataclass(frozen=True, slots=True)
class Tiny:
    """Shape of a random model; `width` and `mlp_width` must be multiples of the block of `kind`.

    Attributes
    ----------
    kind, embedding_kind
        Tensor types of the layers' matrices and of the embedding and head.
    head
        Size of a head; 0 for its share of the width.
    tied
        Leave `output.weight` out; gemma3 always does.
    window
        How many positions a row sees in layers with a window, of gemma3 and phi3; 0 for all (phi3 only).
    rope_factors
        Add the tensors of rope factors, of llama and phi3.
    """

    family: str = "llama"
    kind: str = "F32"
    embedding_kind: str = "F32"
    layers: int = 2
    width: int = 128
    mlp_width: int = 256
    heads: int = 4
    kv_heads: int = 2
    head: int = 0
    vocab_size: int = 97
    context: int = 512
    tied: bool = False
    window: int = 0
    rope_factors: bool = False

    @property
    def head_size(self) -> int:
        """Size of a head."""
        return self.head or self.width // self.heads


def of_family(family: str, **changes: object) -> Tiny:
    """Return a model in which everything that the family has is seen at work within a hundred tokens."""
    shapes: dict[str, dict[str, object]] = {
        "llama": {"rope_factors": True},
        "qwen2": {},
        "qwen3": {"head": 64},
        "gemma3": {"layers": 7, "head": 64, "kv_heads": 1, "window": 33},
        "phi3": {"kv_heads": 4, "window": 40, "rope_factors": True},
    }
    return Tiny(family, **{**shapes[family], **changes})  # type: ignore[arg-type]


class _Writer:
    """Random tensors, in the order they are asked for."""

    def __init__(self, path: Path, tiny: Tiny, seed: int) -> None:
        self.gguf = gguf.GGUFWriter(path, tiny.family)
        self._rng = np.random.default_rng(seed)

    def vector(self, name: str, size: int, mean: float = 1, std: float = 0.2) -> None:
        self.gguf.add_tensor(name, self._rng.normal(mean, std, size).astype(np.float32))

    def factors(self, name: str, size: int, most: float) -> None:
        self.gguf.add_tensor(name, self._rng.uniform(1, most, size).astype(np.float32))

    def matrix(self, name: str, rows: int, k: int, kind: str) -> None:
        raw = random_blocks(kind, rows, k, self._rng, std=k**-0.5)
        if block_shape(kind)[0] > 1 or kind == "BF16":
            self.gguf.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
        else:
            self.gguf.add_tensor(name, raw.view(np.float32 if kind == "F32" else np.float16))

    def close(self) -> None:
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()


def write_tiny(path: Path, tiny: Tiny = Tiny(), seed: int = 0) -> Path:
    """Write the model that `tiny` and `seed` determine; return the path."""
    out = _Writer(path, tiny, seed)
    _write_keys(out.gguf, tiny)
    out.matrix("token_embd.weight", tiny.vocab_size, tiny.width, tiny.embedding_kind)
    for layer in range(tiny.layers):
        _write_layer(out, tiny, f"blk.{layer}")
    out.vector("output_norm.weight", tiny.width)
    if not tiny.tied and tiny.family != "gemma3":
        out.matrix("output.weight", tiny.vocab_size, tiny.width, tiny.embedding_kind)
    if tiny.rope_factors and tiny.family == "llama":
        out.factors("rope_freqs.weight", tiny.head_size // 2, 8)
    if tiny.rope_factors and tiny.family == "phi3":
        out.factors("rope_factors_short.weight", tiny.head_size // 2, 1.2)
        out.factors("rope_factors_long.weight", tiny.head_size // 2, 30)
    out.close()
    return path


def _write_keys(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    writer.add_block_count(tiny.layers)
    writer.add_context_length(tiny.context)
    writer.add_embedding_length(tiny.width)
    writer.add_feed_forward_length(tiny.mlp_width)
    writer.add_head_count(tiny.heads)
    writer.add_head_count_kv(tiny.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e6 if tiny.family == "gemma3" else 10000.0)
    if tiny.head:
        writer.add_key_length(tiny.head)
        writer.add_value_length(tiny.head)
    if tiny.family in {"llama", "phi3"}:
        writer.add_rope_dimension_count(tiny.head_size)
    if tiny.family in {"gemma3", "phi3"}:
        writer.add_sliding_window(tiny.window)
    if tiny.family == "phi3":
        writer.add_rope_scaling_orig_ctx_len(tiny.context // 2)
        writer.add_rope_scaling_attn_factors(1.25)


def _write_layer(out: _Writer, tiny: Tiny, prefix: str) -> None:
    rows = {"q": tiny.heads * tiny.head_size} | dict.fromkeys("kv", tiny.kv_heads * tiny.head_size)
    out.vector(f"{prefix}.attn_norm.weight", tiny.width)
    if tiny.family == "phi3":
        out.matrix(f"{prefix}.attn_qkv.weight", sum(rows.values()), tiny.width, tiny.kind)
    else:
        for part, count in rows.items():
            out.matrix(f"{prefix}.attn_{part}.weight", count, tiny.width, tiny.kind)
            if tiny.family == "qwen2":
                out.vector(f"{prefix}.attn_{part}.bias", count, 0)
    if tiny.family in {"qwen3", "gemma3"}:
        out.vector(f"{prefix}.attn_q_norm.weight", tiny.head_size)
        out.vector(f"{prefix}.attn_k_norm.weight", tiny.head_size)
    out.matrix(f"{prefix}.attn_output.weight", tiny.width, rows["q"], tiny.kind)
    out.vector(f"{prefix}.ffn_norm.weight", tiny.width)
    if tiny.family == "gemma3":
        out.vector(f"{prefix}.post_attention_norm.weight", tiny.width)
        out.vector(f"{prefix}.post_ffw_norm.weight", tiny.width)
    if tiny.family == "phi3":
        out.matrix(f"{prefix}.ffn_up.weight", 2 * tiny.mlp_width, tiny.width, tiny.kind)
    else:
        out.matrix(f"{prefix}.ffn_gate.weight", tiny.mlp_width, tiny.width, tiny.kind)
        out.matrix(f"{prefix}.ffn_up.weight", tiny.mlp_width, tiny.width, tiny.kind)
    out.matrix(f"{prefix}.ffn_down.weight", tiny.width, tiny.mlp_width, tiny.kind)
