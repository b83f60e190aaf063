"""What a model family builds its program with: each call adds an op and returns where its result is.

Sizes are checked against the file's tensors here, once, so that a pass need not check anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilotfish.engines.native.config import Config
from pilotfish.engines.native.container import Container
from pilotfish.engines.native.kernel_types import KERNEL_TYPES, not_read
from pilotfish.engines.native.slim import GROUP, HeadGroups, Slim
from pilotfish.engines.native.tensor_types import TENSOR_TYPES
from pilotfish.errors import FormatError, UnsupportedError, shown_name
from pilotfish.kernels import _kernels

_BLOCK = 32
"""Activations share a scale by 32, so every width is a multiple of it."""

_MOST = 1 << 24
"""Rows and columns of a matrix, so that the kernels' 32-bit indices hold."""

_LEAST_FACTOR = 1 / 64
"""What divides an angle: sines and cosines are exact for angles up to 2^20."""

_PART_BYTES = 32 << 20
"""A matrix is packed in parts of about this size: little of the file is in memory beside its packed copy, and
progress is told within a large matrix too."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Floats of the residual stream or of queries, keys and values: (rows, width).

    `use` tells apart what lies in the same place one after the other.
    """

    index: int
    width: int
    use: int


@dataclass(frozen=True, slots=True)
class Activations:
    """What matrices read: (rows, width), quantized by 32; `use` as of a `Buffer`."""

    index: int
    width: int
    use: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Shape of a model's attention."""

    layers: int
    heads: int
    kv_heads: int
    head: int


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Tensors of the RMS norms of each head's query and key, all heads sharing them."""

    query: str
    key: str
    eps: float


class Builder:
    """Builds one program from one file.

    What an op returns is overwritten by the next call of the same kind (two `norm`, two `qkv` and so on), so
    that all layers work in the same place: it stays in the processor's cache, and takes memory once. The
    residual stream and the logits have places of their own.

    Parameters
    ----------
    context
        Most tokens of a sequence.
    isa
        Instruction set of the kernels.
    progress
        Called with the share of weight bytes packed so far, 0..1.
    slim
        What to leave out of a model that drafts.

    Attributes
    ----------
    context
        Most tokens of a sequence.
    head
        The ids that the head can say; None for all.
    head_group_bytes
        Bytes of 16 rows of a restricted head.
    """

    def __init__(
        self,
        container: Container,
        config: Config,
        attention: Attention,
        *,
        context: int,
        isa: str,
        threads: int,
        float_activations: bool,
        progress: Callable[[float], None],
        slim: Slim | None = None,
    ) -> None:
        self.config = config
        self.attention_shape = attention
        self.context = context
        if attention.head % _BLOCK or attention.heads % attention.kv_heads:
            raise UnsupportedError(f"attention of {attention} is not supported")
        self.head: HeadGroups | None = None
        self._container = container
        self._slim = slim or Slim({})
        self._threads = threads
        self._progress = progress
        self._used: set[str] = set()
        self._gathered: set[str] = set()  # tensors of which a pass reads a few rows only
        self._weights: dict[str, _kernels.Weight] = {}
        self._packed = 0
        self._arena_bytes = sum(map(self._packed_bytes, container.tensors))
        self._arena = _kernels.Arena(self._arena_bytes)
        self.pages = _kernels.Pages(attention.layers, attention.kv_heads, attention.head)
        self.program = _kernels.Program(isa, self.pages, float_activations)
        self.vocab_size = 0
        self.head_group_bytes = 0
        self._places: dict[tuple[type[Buffer | Activations], str, int], int] = {}  # by kind of op and width
        self._uses: dict[tuple[type[Buffer | Activations], int], int] = {}

    @property
    def weights_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._arena_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes, as filed or as rounded, of the tensors that a pass reads in full; no restricted head."""
        return sum(map(self._filed_bytes, self._used - self._gathered))

    def has(self, name: str) -> bool:
        """Tell whether the file has a tensor of that name."""
        return name in self._container.tensors

    def embed(self, table: str, *, scale: float = 1.0) -> Buffer:
        """Rows of the embedding table for the pass's tokens, times `scale`."""
        weight = self._matrix(table, self.config.integer("embedding_length"))
        self.vocab_size = weight.rows
        self.config.integer("vocab_size", weight.rows)  # what the tensor says anyway
        self._gathered.add(table)
        out = self._buffer("embed", weight.columns)
        self.program.embed(weight, scale, out.index)
        return out

    def rope_table(
        self,
        base: float,
        dimensions: int,
        *,
        factor: float = 1.0,
        factors: str | None = None,
        magnitude: float = 1.0,
    ) -> int:
        """Angles of the pass's positions, for the first `dimensions` of each head.

        Parameters
        ----------
        factor
            Angles are divided by it.
        factors
            Name of a tensor (dimensions / 2,): the angle of each pair is divided by its factor too.
        magnitude
            Cosines and sines are multiplied by it.
        """
        if dimensions % _BLOCK or dimensions > self.attention_shape.head:
            raise UnsupportedError(
                f"rope over {dimensions} of {self.attention_shape.head} dimensions is not supported"
            )
        if base < 1:
            raise UnsupportedError(f"a rope base of {base} is not supported", "it is at least 1")
        by_pair = np.full(dimensions // 2, factor, dtype=np.float32)
        if factors is not None:
            by_pair *= self._vector(factors, dimensions // 2)
        if not (np.isfinite(by_pair) & (by_pair >= _LEAST_FACTOR)).all():
            where = "rope.scaling.factor" if factors is None else f"the tensor {factors}"
            raise UnsupportedError(f"{where} has rope factors that are not at least {_LEAST_FACTOR}")
        return self.program.rope_table(base, dimensions, by_pair, magnitude)

    def norm(self, x: Buffer, weight: str, eps: float, *, wanted_only: bool = False) -> Activations:
        """RMS norm (Zhang and Sennrich 2019), quantized for the matrices that read it."""
        out = self._activations("norm", x.width)
        self.program.norm(self._at(x), self._vector(weight, x.width), eps, out.index, wanted_only)
        return out

    def qkv(
        self,
        h: Activations,
        matrices: Sequence[str],
        *,
        biases: Sequence[str] = (),
        rows_from: Sequence[NDArray[np.int32] | None] = (),
    ) -> Buffer:
        """Queries, keys and values of all heads side by side in one new buffer.

        Row i of a matrix, and of its bias, is the file's row `rows_from[...][i]`.
        """
        shape = self.attention_shape
        heads = (shape.heads, shape.kv_heads, shape.kv_heads)
        parts, offset = [], 0
        for i, (name, count) in enumerate(zip(matrices, heads, strict=True)):
            rows = count * shape.head
            weight = self._matrix(name, h.width, rows_from[i] if rows_from else None, rows=rows)
            bias_name = biases[i] if biases else None
            bias = None if bias_name is None else self._vector(bias_name, weight.rows)
            if bias is not None and rows_from and rows_from[i] is not None:
                bias = bias[rows_from[i]]
            parts.append((weight, bias, offset))
            offset += weight.rows
        out = self._buffer("qkv", offset)
        self.program.linear(self._at(h), parts, out.index, add=False, wanted_only=False, name="qkv")
        return out

    def fused_qkv(self, h: Activations, matrix: str) -> Buffer:
        """Queries, keys and values of all heads, whose matrices lie in one tensor in this order."""
        shape = self.attention_shape
        weight = self._matrix(matrix, h.width, rows=(shape.heads + 2 * shape.kv_heads) * shape.head)
        out = self._buffer("qkv", weight.rows)
        self.program.linear(
            self._at(h), [(weight, None, 0)], out.index, add=False, wanted_only=False, name="qkv"
        )
        return out

    def linear(self, h: Activations, matrix: str) -> Buffer:
        """Return a matrix's result, as wide as the residual stream, in a new buffer."""
        weight = self._matrix(matrix, h.width, rows=self.config.integer("embedding_length"))
        out = self._buffer("linear", weight.rows)
        self.program.linear(
            self._at(h), [(weight, None, 0)], out.index, add=False, wanted_only=False, name="output"
        )
        return out

    def add_norm(self, x: Buffer, y: Buffer, weight: str, eps: float) -> None:
        """Add the RMS norm of `y` to the residual stream."""
        self.program.add_norm(self._at(y), self._vector(weight, y.width), eps, self._at(x))

    def add_linear(self, x: Buffer, h: Activations, matrix: str) -> None:
        """Add a matrix's result to the residual stream."""
        weight = self._matrix(matrix, h.width, rows=x.width)
        self.program.linear(
            self._at(h), [(weight, None, 0)], self._at(x), add=True, wanted_only=False, name="output"
        )

    def attention(
        self,
        qkv: Buffer,
        layer: int,
        rope: int,
        *,
        norms: HeadNorms | None = None,
        scale: float | None = None,
        window: int = 0,
    ) -> Activations:
        """Rotate queries and keys, store keys and values, attend over what each row sees.

        Parameters
        ----------
        norms
            Norms of each query and key, before they are rotated.
        scale
            Scores are multiplied by it; default 1 / sqrt(head size).
        window
            How many positions a row sees, its own included; 0 for all.
        """
        shape = self.attention_shape
        weights = None
        if norms is not None:
            of_queries, of_keys = (self._vector(name, shape.head) for name in (norms.query, norms.key))
            weights = of_queries, of_keys, norms.eps
        scale = 1.0 / math.sqrt(shape.head) if scale is None else scale
        self.program.rope_and_cache(self._at(qkv), shape.heads, layer, rope, scale, weights)
        out = self._activations("attention", shape.heads * shape.head)
        self.program.attention(self._at(qkv), shape.heads, layer, window, out.index)
        return out

    def gated(self, h: Activations, gate: str, up: str, *, gelu: bool = False) -> Activations:
        """silu(gate(h)) * up(h), or gelu by tanh in place of silu (Shazeer 2020, SwiGLU and GEGLU)."""
        gate_weight = self._matrix(gate, h.width)
        up_weight = self._matrix(up, h.width, rows=gate_weight.rows)
        out = self._activations("gated", gate_weight.rows)
        self.program.gated(self._at(h), gate_weight, up_weight, gelu, out.index)
        return out

    def fused_gated(self, h: Activations, gate_and_up: str) -> Activations:
        """silu(gate(h)) * up(h), the rows of both in one tensor: the gate's, then the others."""
        width = self.config.integer("feed_forward_length")
        out = self._activations("gated", width)
        both = self._matrix(gate_and_up, h.width, rows=2 * width)
        self.program.gated(self._at(h), both, both, False, out.index)
        return out

    def logits(self, h: Activations, matrix: str) -> None:
        """Logits of the wanted rows."""
        weight = self._matrix(matrix, h.width, rows=self.vocab_size)  # a token has a row in both
        out = self._buffer("logits", weight.rows)
        if self._slim.head_ids is not None:
            self.head = HeadGroups(self._slim.head_ids, weight.rows, self._slim.most_groups)
            self.head_group_bytes = self._filed_bytes(matrix) // weight.rows * GROUP
            self._gathered.add(matrix)
            self.program.restricted_head(self._at(h), weight, out.index)
            return
        self.program.linear(
            self._at(h), [(weight, None, 0)], out.index, add=False, wanted_only=True, name="head"
        )
        self._gathered.discard(matrix)  # a tied embedding is read in full after all
        self.program.set_logits(out.index)

    def skip(self, name: str, length: int) -> None:
        """Accept a vector that this model could use and does not need."""
        self._vector(name, length)
        self._gathered.add(name)

    def refuse_unused(self) -> None:
        """Raise UnsupportedError if the file has a tensor that the family didn't use."""
        unused = sorted(self._container.tensors.keys() - self._used)
        if unused:
            raise UnsupportedError(
                f"the tensor {shown_name(unused[0])} is not supported",
                f"{len(unused)} tensor(s) of the file have no place in a {self.config.architecture} model",
            )

    def _buffer(self, kind: str, width: int) -> Buffer:
        """Return the place for results of a kind of op, from now on another use of it."""
        return Buffer(*self._place(Buffer, kind, width, self.program.buffer))

    def _activations(self, kind: str, width: int) -> Activations:
        if width % _BLOCK:
            raise UnsupportedError(f"a width of {width} is not a multiple of {_BLOCK}")
        return Activations(*self._place(Activations, kind, width, self.program.activations))

    def _place(
        self, of: type[Buffer | Activations], kind: str, width: int, make: Callable[[int], int]
    ) -> tuple[int, int, int]:
        key = (of, kind, width)
        if key not in self._places:
            self._places[key] = make(width)
        index = self._places[key]
        self._uses[of, index] = use = self._uses.get((of, index), 0) + 1
        return index, width, use

    def _at(self, what: Buffer | Activations) -> int:
        """Return the index of what an op is to read, which must not have been overwritten."""
        if self._uses[type(what), what.index] != what.use:
            raise ValueError("a result is read after another one of its kind was made")
        return what.index

    def _packed_bytes(self, name: str) -> int:
        info = self._container.tensors[name]
        if len(info.shape) != 2:
            return 0
        if info.type not in KERNEL_TYPES:
            raise not_read(shown_name(name), info.type)
        return _kernels.packed_bytes(KERNEL_TYPES[self._type(name)], info.shape[1], info.shape[0])

    def _type(self, name: str) -> str:
        """Return the type that a matrix has in memory."""
        return self._slim.types.get(name, self._container.tensors[name].type)

    def _filed_bytes(self, name: str) -> int:
        """Return the bytes that a tensor would take in a file in the type it has in memory."""
        info = self._container.tensors[name]
        kind = next(kind for kind in TENSOR_TYPES.values() if kind.name == self._type(name))
        return math.prod(info.shape) // kind.block * kind.nbytes

    def _use(self, name: str) -> None:
        if name not in self._container.tensors:
            raise FormatError(f"the tensor {name} is missing", "the file is not a complete model")
        self._used.add(name)

    def _matrix(
        self,
        name: str,
        columns: int | None = None,
        rows_from: NDArray[np.int32] | None = None,
        *,
        rows: int | None = None,
    ) -> _kernels.Weight:
        """Return the packed matrix (rows, columns); row i is the file's row `rows_from[i]`."""
        self._use(name)
        info = self._container.tensors[name]
        if (
            len(info.shape) != 2
            or info.shape[0] != (columns or info.shape[0])
            or info.shape[1] != (rows or info.shape[1])
        ):
            raise FormatError(f"the tensor {name} has shape {info.shape}, not ({columns}, {rows or 'any'})")
        if rows_from is not None and len(rows_from) != info.shape[1]:
            raise FormatError(f"the tensor {name} has {info.shape[1]} rows, not {len(rows_from)}")
        if max(info.shape) > _MOST:
            raise UnsupportedError(
                f"the tensor {name} has shape {info.shape}; sides up to {_MOST} are supported"
            )
        if name in self._weights:
            return self._weights[name]
        weight = _kernels.Weight(self._arena, KERNEL_TYPES[self._type(name)], info.shape[1], info.shape[0])
        self._pack(weight, name, rows_from)
        self._weights[name] = weight
        return weight

    def _pack(self, weight: _kernels.Weight, name: str, rows_from: NDArray[np.int32] | None) -> None:
        """Fill a matrix from the file, part by part, while the system reads on ahead."""
        data = np.frombuffer(self._container.data(name), dtype=np.uint8)
        row_bytes = data.size // weight.rows
        part = max(_PART_BYTES // row_bytes // GROUP, 1) * GROUP
        if rows_from is not None:
            part = weight.rows  # rows come from all over the matrix
        before = self._packed
        for first in range(0, weight.rows, part):
            count = min(part, weight.rows - first)
            begin, end = first * row_bytes, (first + count) * row_bytes
            self._container.read_ahead(name, begin)
            if self._type(name) == self._container.tensors[name].type:
                weight.pack(data, rows_from, self._threads, first, count)
            else:
                self._round(weight, name, data[begin:end], rows_from, first)
            self._container.release(name, begin, end)
            self._packed = before + self._packed_bytes(name) * (first + count) // weight.rows
            self._progress(self._packed / self._arena_bytes)

    def _round(
        self,
        weight: _kernels.Weight,
        name: str,
        data: NDArray[np.uint8],
        rows_from: NDArray[np.int32] | None,
        first: int,
    ) -> None:
        """Fill rows from `first` on with the file's, rounded; they are packed as filed on the way."""
        kind = KERNEL_TYPES[self._container.tensors[name].type]
        rows = data.size * weight.rows // self._container.tensors[name].nbytes
        arena = _kernels.Arena(_kernels.packed_bytes(kind, rows, weight.columns))
        source = _kernels.Weight(arena, kind, rows, weight.columns)
        source.pack(data, rows_from, self._threads)
        weight.round_from(source, first, self._threads)

    def _vector(self, name: str, length: int) -> NDArray[np.float32]:
        self._use(name)
        info = self._container.tensors[name]
        dtype = {"F32": np.float32, "F16": np.float16}.get(info.type)
        if info.shape != (length,) or dtype is None:
            raise FormatError(
                f"the tensor {name} is {info.type} of shape {info.shape}, not F32 of ({length},)"
            )
        return np.frombuffer(self._container.data(name), dtype=dtype).astype(np.float32)
