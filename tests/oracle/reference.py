"""The llama and qwen2 families in NumPy, float64 throughout, straight from the GGUF file.

Written to be read beside the engine, not to be fast: no cache, no threads but the BLAS's. Rotary embedding
follows the file's own convention (adjacent pairs in llama files, halves in qwen2 files) on the weights as
filed, so it checks the engine's un-permuting too.
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

LAYER_PARTS = frozenset(
    {"attn_norm.weight", "attn_output.weight", "ffn_norm.weight"}
    | {f"ffn_{part}.weight" for part in ("gate", "up", "down")}
    | {f"attn_{part}.{leaf}" for part in "qkv" for leaf in ("weight", "bias")}
)
GLOBAL_TENSORS = frozenset({"token_embd.weight", "output_norm.weight", "output.weight"})


class Reference:
    """A model file, evaluated in float64.

    Weights stay packed in the memory-mapped file; a call decodes one layer at a time to float32 (which
    holds the decoded values without loss) and casts each matrix to `dtype` while it is used. `keep` holds
    the decoded float32 weights between calls: 0.5 GB for SmolLM2-135M, 7 GB for a 1.5B model.

    Parameters
    ----------
    path
        A GGUF file of the family llama or qwen2.
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
        if self.family not in {"llama", "qwen2"}:
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
        self._refuse_unknown_tensors()
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
            normed = self._norm(x, f"{prefix}.attn_norm")
            q, k, v = (self._linear(normed, f"{prefix}.attn_{part}") for part in "qkv")
            q = self._rope(q.reshape(len(x), self.heads, self.head_size), positions)
            k = self._rope(k.reshape(len(x), self.kv_heads, self.head_size), positions)
            v = v.reshape(len(x), self.kv_heads, self.head_size)
            if self.kv_f16:
                k, v = (part.astype(np.float16).astype(self.dtype) for part in (k, v))
            mixed = [
                self._attend(*parts)
                for parts in zip(np.split(q, ends), np.split(k, ends), np.split(v, ends), strict=True)
            ]
            x = x + self._linear(np.concatenate(mixed), f"{prefix}.attn_output")
            normed = self._norm(x, f"{prefix}.ffn_norm")
            gate = self._linear(normed, f"{prefix}.ffn_gate")
            up = self._linear(normed, f"{prefix}.ffn_up")
            x = x + self._linear(gate / (1 + np.exp(-gate)) * up, f"{prefix}.ffn_down")
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

    def _attend(self, q: Array, k: Array, v: Array) -> Array:
        """Attend causally in one sequence: (n, heads, size), (n, kv_heads, size) twice -> (n, width)."""
        n = len(q)
        future = np.triu(np.ones((n, n), dtype=bool), 1)
        out = np.empty_like(q)
        for head in range(self.heads):
            shared = head // (self.heads // self.kv_heads)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(self.head_size).astype(self.dtype)
            scores[future] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, shared]
        return out.reshape(n, -1)

    def _rope(self, x: Array, positions: NDArray[np.int64]) -> Array:
        """Rotate the first `rope_size` entries of each head, shape (n, heads, size)."""
        half = self.rope_size // 2
        angles = positions[:, None] * self.rope_base ** (-np.arange(half) / half)
        cos, sin = (f(angles).astype(self.dtype)[:, None] for f in (np.cos, np.sin))
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
        return dequantize_f32(table.data[ids], table.tensor_type.name).astype(self.dtype)

    def _weights(self, name: str, rows: slice = slice(None)) -> NDArray[np.float32]:
        tensor = self._tensors[name]
        if self._kept is None:
            return dequantize_f32(tensor.data[rows], tensor.tensor_type.name)
        if name not in self._kept:
            self._kept[name] = dequantize_f32(tensor.data, tensor.tensor_type.name)
        return self._kept[name][rows]

    def _refuse_unknown_tensors(self) -> None:
        known = GLOBAL_TENSORS | {f"blk.{i}.{part}" for i in range(self.layers) for part in LAYER_PARTS}
        unknown = sorted(self._tensors.keys() - known)
        if unknown:
            raise ValueError(f"the reference does not use the tensor {unknown[0]!r} of the file")


class _HeaderReader(gguf.GGUFReader):
    """gguf's reader, without the 2 to 18 s it takes to make an array of every token and merge."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        data = self.data.data
        item, count = struct.unpack_from("<IQ", data, orig_offs)
        if item != gguf.GGUFValueType.STRING:
            return super()._get_field_parts(orig_offs, raw_type)
        end = orig_offs + 12
        for _ in range(count):
            end += 8 + struct.unpack_from("<Q", data, end)[0]
        return end - orig_offs, [], [], [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING]
