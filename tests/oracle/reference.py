"""The model families in NumPy, float64 throughout, straight from the GGUF file.

Written to be read beside the engine, not to be fast: no cache, no threads but the BLAS's. Rotary embedding
follows the file's own convention (adjacent pairs in llama files, halves in others) on the weights as filed,
so it checks the engine's un-permuting too.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from oracle.quants import block_shape, dequantize_activations, dequantize_f32, quantize_activations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

HEAD_ROWS = 16384
"""Rows of the output head that are decoded at a time: 200 MB in float64 at width 1,536."""

_COMMON = "attn_norm.weight attn_output.weight ffn_norm.weight ffn_up.weight ffn_down.weight"
_SPLIT = f"{_COMMON} ffn_gate.weight attn_q.weight attn_k.weight attn_v.weight"
_NORMED = f"{_SPLIT} attn_q_norm.weight attn_k_norm.weight"
LAYER_PARTS = {
    "llama": f"{_SPLIT} attn_q.bias attn_k.bias attn_v.bias",
    "qwen2": f"{_SPLIT} attn_q.bias attn_k.bias attn_v.bias",
    "qwen3": _NORMED,
    "gemma3": f"{_NORMED} post_attention_norm.weight post_ffw_norm.weight",
    "phi3": f"{_COMMON} attn_qkv.weight",
}
"""By family, the tensors of a layer that the reference uses."""
GLOBAL_TENSORS = frozenset({"token_embd.weight", "output_norm.weight", "output.weight"})
ROPE_TENSORS = {"llama": ["rope_freqs"], "phi3": ["rope_factors_long", "rope_factors_short"]}


class Reference:
    """A model file, evaluated in float64.

    Weights stay packed in the memory-mapped file; a call decodes one layer at a time to float32 (which
    holds the decoded values without loss) and casts each matrix to `dtype` while it is used. `keep` holds
    the decoded float32 weights between calls: 0.5 GB for SmolLM2-135M, 7 GB for a 1.5B model.

    Parameters
    ----------
    path
        A GGUF file of a family in `LAYER_PARTS`.
    context
        Of phi3 files with two sets of rope factors: beyond the context of training, the long ones are used.
    dtype
        Type of all arithmetic: float64, or float32 for a quick look.
    kv_f16
        Round keys (after rotation) and values to float16 before use, as a float16 cache does.
    int8_activations
        Quantize the input of every quantized matrix to int8 per 32, as the engine's integer kernels do: what
        the scheme itself costs, apart from any kernel. Only shallow models can be compared closely with it: a
        last bit of difference flips a few codes, and after some layers most roundings differ.
    keep
        Keep decoded weights.

    Raises
    ------
    ValueError
        On another family, or a tensor that this file does not use.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        context: int = 512,
        dtype: type[np.floating[Any]] = np.float64,
        kv_f16: bool = False,
        int8_activations: bool = False,
        keep: bool = False,
    ) -> None:
        reader = _HeaderReader(path)
        self.dtype = np.dtype(dtype)
        self.kv_f16 = kv_f16
        self.int8_activations = int8_activations
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._kept: dict[str, NDArray[np.float32]] | None = {} if keep else None

        self.family = str(reader.fields["general.architecture"].contents())
        if self.family not in LAYER_PARTS:
            raise ValueError(f"no reference for the family {self.family!r}")

        def key(name: str, default: float | None = None) -> float:
            field = reader.fields.get(f"{self.family}.{name}")
            if field is None and default is not None:
                return default
            return float(reader.fields[f"{self.family}.{name}"].contents())

        self.width = int(key("embedding_length"))
        self.layers = int(key("block_count"))
        self.heads = int(key("attention.head_count"))
        self.kv_heads = int(key("attention.head_count_kv", self.heads))
        self.head_size = int(key("attention.key_length", self.width // self.heads))
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.rope_size = int(key("rope.dimension_count", self.head_size))
        self.rope_base = key("rope.freq_base", 10000.0)
        self.rope_factors = np.full(self.rope_size // 2, key("rope.scaling.factor", 1.0))
        self.rope_magnitude = key("rope.scaling.attn_factor", 1.0)
        self.window = int(key("attention.sliding_window", 0))
        self._refuse_unknown_tensors()
        if "rope_freqs.weight" in self._tensors:
            self.rope_factors *= self._weights("rope_freqs.weight")
        if "rope_factors_long.weight" in self._tensors:
            beyond = context > key("rope.scaling.original_context_length")
            self.rope_factors *= self._weights(f"rope_factors_{'long' if beyond else 'short'}.weight")
        self.vocab_size = self._tensors["token_embd.weight"].data.shape[0]

    def logits(self, tokens: Sequence[int], rows: slice = slice(None)) -> Array:
        """Return the logits after each token of `tokens[rows]`, shape (n, vocab_size), in `dtype`."""
        return self.head(self.hidden([tokens])[0][rows])

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[Array]:
        """Return for each sequence the rows before the output head, shape (len(tokens), width).

        All sequences go through a layer together, so each weight is decoded once.
        """
        lengths = [len(tokens) for tokens in sequences]
        ends = np.cumsum(lengths)[:-1]
        positions = np.concatenate([np.arange(length) for length in lengths])
        x = self._embed([token for tokens in sequences for token in tokens])
        for layer in range(self.layers):
            prefix = f"blk.{layer}"
            q, k, v = self._queries_keys_values(self._norm(x, f"{prefix}.attn_norm"), layer, positions)
            if self.kv_f16:
                k, v = (part.astype(np.float16).astype(self.dtype) for part in (k, v))
            window = 0 if self._is_global(layer) else self.window
            mixed = [
                self._attend(*parts, window=window)
                for parts in zip(np.split(q, ends), np.split(k, ends), np.split(v, ends), strict=True)
            ]
            y = self._linear(np.concatenate(mixed), f"{prefix}.attn_output")
            x = x + (self._norm(y, f"{prefix}.post_attention_norm") if self.family == "gemma3" else y)
            y = self._mlp(self._norm(x, f"{prefix}.ffn_norm"), prefix)
            x = x + (self._norm(y, f"{prefix}.post_ffw_norm") if self.family == "gemma3" else y)
        return np.split(self._norm(x, "output_norm"), ends)

    def head(self, hidden: Array) -> Array:
        """Return the logits, shape (n, vocab_size), of rows of `hidden`; the head may be the embedding."""
        name = "output.weight" if "output.weight" in self._tensors else "token_embd.weight"
        hidden = self._input(hidden, name)
        logits = np.empty((len(hidden), self.vocab_size), dtype=self.dtype)
        for first in range(0, self.vocab_size, HEAD_ROWS):
            rows = slice(first, min(first + HEAD_ROWS, self.vocab_size))
            logits[:, rows] = hidden @ self._weights(name, rows).astype(self.dtype).T
        return logits

    def _is_global(self, layer: int) -> bool:
        """Tell whether rows of a layer see everything: in gemma3 every sixth does, whatever the window."""
        return self.family == "gemma3" and (layer + 1) % 6 == 0

    def _queries_keys_values(
        self, x: Array, layer: int, positions: NDArray[np.int64]
    ) -> tuple[Array, Array, Array]:
        """Return what attention works on: (n, heads, size), (n, kv_heads, size) twice."""
        prefix = f"blk.{layer}.attn_"
        if self.family == "phi3":
            sizes = self.heads * self.head_size, self.kv_heads * self.head_size
            q, k, v = np.split(self._linear(x, f"{prefix}qkv"), [sizes[0], sum(sizes)], axis=1)
        else:
            q, k, v = (self._linear(x, f"{prefix}{part}") for part in "qkv")
        q = q.reshape(len(x), self.heads, self.head_size)
        k, v = (part.reshape(len(x), self.kv_heads, self.head_size) for part in (k, v))
        if self.family in {"qwen3", "gemma3"}:
            q, k = self._norm(q, f"{prefix}q_norm"), self._norm(k, f"{prefix}k_norm")
        base, factors = self.rope_base, self.rope_factors
        if self.family == "gemma3" and not self._is_global(layer):
            base, factors = 10_000.0, np.ones_like(factors)
        q, k = (self._rope(part, positions, base, factors) for part in (q, k))
        return q, k, v

    def _mlp(self, x: Array, prefix: str) -> Array:
        up = self._linear(x, f"{prefix}.ffn_up")
        if self.family == "phi3":
            gate, up = np.split(up, 2, axis=1)
        else:
            gate = self._linear(x, f"{prefix}.ffn_gate")
        if self.family == "gemma3":
            gate = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate /= 1 + np.exp(-gate)
        return self._linear(gate * up, f"{prefix}.ffn_down")

    def _attend(self, q: Array, k: Array, v: Array, *, window: int) -> Array:
        """Attend in one sequence, over `window` positions: (n, heads, size) -> (n, heads * size)."""
        ages = np.subtract.outer(np.arange(len(q)), np.arange(len(q)))
        hidden = (ages < 0) | (ages >= (window or len(q)))
        out = np.empty_like(q)
        for head in range(self.heads):
            shared = head // (self.heads // self.kv_heads)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(self.head_size).astype(self.dtype)
            scores[hidden] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, shared]
        return out.reshape(len(q), -1)

    def _rope(
        self, x: Array, positions: NDArray[np.int64], base: float, factors: NDArray[np.float64]
    ) -> Array:
        """Rotate the first `rope_size` entries of each head, shape (n, heads, size)."""
        half = self.rope_size // 2
        angles = positions[:, None] * base ** (-np.arange(half) / half) / factors
        cos, sin = ((f(angles) * self.rope_magnitude).astype(self.dtype)[:, None] for f in (np.cos, np.sin))
        if self.family == "llama":
            first, second = slice(0, self.rope_size, 2), slice(1, self.rope_size, 2)
        else:
            first, second = slice(0, half), slice(half, self.rope_size)
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def _norm(self, x: Array, name: str) -> Array:
        scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.dtype.type(self.eps))
        y: Array = x * scale * self._weights(f"{name}.weight").astype(self.dtype)
        return y

    def _linear(self, x: Array, name: str) -> Array:
        y: Array = self._input(x, f"{name}.weight") @ self._weights(f"{name}.weight").astype(self.dtype).T
        if f"{name}.bias" in self._tensors:
            y += self._weights(f"{name}.bias").astype(self.dtype)
        return y

    def _input(self, x: Array, matrix: str) -> Array:
        if not self.int8_activations or block_shape(self._tensors[matrix].tensor_type.name)[0] == 1:
            return x
        return dequantize_activations(*quantize_activations(x.astype(np.float32))).astype(self.dtype)

    def _embed(self, tokens: Sequence[int]) -> Array:
        ids = np.asarray(tokens)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(f"token ids {ids.min()}..{ids.max()} in a vocabulary of {self.vocab_size}")
        table = self._tensors["token_embd.weight"]
        x: Array = dequantize_f32(table.data[ids], table.tensor_type.name).astype(self.dtype)
        return x * np.sqrt(self.dtype.type(self.width)) if self.family == "gemma3" else x

    def _weights(self, name: str, rows: slice = slice(None)) -> NDArray[np.float32]:
        tensor = self._tensors[name]
        if self._kept is None:
            return dequantize_f32(tensor.data[rows], tensor.tensor_type.name)
        if name not in self._kept:
            self._kept[name] = dequantize_f32(tensor.data, tensor.tensor_type.name)
        return self._kept[name][rows]

    def _refuse_unknown_tensors(self) -> None:
        parts = LAYER_PARTS[self.family].split()
        known = GLOBAL_TENSORS | {f"blk.{i}.{part}" for i in range(self.layers) for part in parts}
        known |= {f"{name}.weight" for name in ROPE_TENSORS.get(self.family, [])}
        unknown = sorted(self._tensors.keys() - known)
        if unknown:
            raise ValueError(f"the reference does not use the tensor {unknown[0]!r} of the file")


class _HeaderReader(gguf.GGUFReader):
    """gguf's reader, without the 2 to 100 s it takes to make an array of every token, score and merge."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        data = self.data.data
        item, count = struct.unpack_from("<IQ", data, orig_offs)
        end = orig_offs + 12
        if item == gguf.GGUFValueType.STRING:
            for _ in range(count):
                end += 8 + struct.unpack_from("<Q", data, end)[0]
        else:
            end += count * np.dtype(self.gguf_scalar_to_np[item]).itemsize
        return end - orig_offs, [], [], [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType(item)]
