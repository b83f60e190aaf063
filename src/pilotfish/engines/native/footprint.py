"""How much memory a model will take, from its header alone: nothing large is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.engines.base import Reserve
from pilotfish.engines.native.families.decoder import attention_shape
from pilotfish.engines.native.kernel_types import KERNEL_TYPES
from pilotfish.engines.native.kv import PAGE
from pilotfish.engines.native.threads import default_threads
from pilotfish.kernels import _kernels

if TYPE_CHECKING:
    from pilotfish.engines.native.config import Config
    from pilotfish.engines.native.container import Container, TensorInfo
    from pilotfish.engines.native.slim import Slim

KV_NUMBER = 2
"""Bytes of one number in the KV cache."""

ONE_ANSWER = Reserve(rows=128, wanted=17, tokens=0)
"""One answer at a time: rows of a pass over a slice of a prompt, and of one that checks a long draft."""

_FLOATS = ("F32", "F16", "BF16")
_QUANTIZED = 48 / 32
"""Bytes of a quantized activation: 32 share a scale and sums."""
_PARTIALS = 32 << 20
"""Most bytes of attention's results that are kept by block of 256 keys."""
_HEADER = 2
"""Numbers before the result of a query's attention."""
_QUERIES = 64
"""Queries of a tile of attention."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that a model adds to its process.

    Attributes
    ----------
    weights
        Packed, and as slimmed.
    kv
        The KV cache of one full sequence, or what is reserved if that is more; what is not reserved is taken
        page by page as texts grow.
    work
        What passes work on.
    """

    weights: int
    kv: int
    work: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.work


def footprint_of(
    container: Container,
    config: Config,
    context: int,
    slim: Slim | None = None,
    reserve: Reserve = ONE_ANSWER,
    threads: int | None = None,
) -> Footprint:
    """Return what a model will take.

    Parameters
    ----------
    container, config
        Its file.
    context
        Most tokens of its sequence.
    slim
        What will be left out, of a model that drafts.
    reserve
        Its largest passes, and the tokens that memory is taken for at the start.
    threads
        Of its passes; by default as many as it is loaded with.

    Raises
    ------
    FormatError
        The header has no sizes that make sense.
    """
    shape = attention_shape(config)
    width = config.integer("embedding_length")
    wide = config.integer("feed_forward_length", 4 * width)
    matrices = [info for info in container.tensors.values() if len(info.shape) == 2]
    queries, pair = shape.heads * shape.head, 2 * shape.kv_heads * shape.head
    number = _QUANTIZED + (4 if any(info.type in _FLOATS for info in matrices) else 0)
    # Layers share them: the residual stream and what is added to it, queries, keys and values, angles and
    # results of attention as floats; what matrices read.
    floats = 2 * width + queries + pair + 2 * shape.head + queries + _HEADER * shape.heads
    rows = reserve.rows * (4 * floats + number * (width + queries + wide))
    blocks = -(-context // (4 * PAGE))
    group = max(shape.heads // shape.kv_heads, 1)
    tiles = (4 * (threads or default_threads()) - 1) // shape.kv_heads
    shared = min(reserve.rows, tiles * max(_QUERIES // group, 1))
    partials = min(_PARTIALS, 4 * shared * (queries + _HEADER * shape.heads) * blocks)
    table = container.tensors.get("token_embd.weight")
    logits = 4 * reserve.wanted * (table.shape[-1] if table is not None else 0)
    kv_tokens = max(context, reserve.tokens)
    return Footprint(
        weights=sum(_packed(info, slim) for info in matrices),
        kv=-(-kv_tokens // PAGE) * PAGE * shape.layers * pair * KV_NUMBER,
        work=int(rows) + partials + logits,
    )


def _packed(info: TensorInfo, slim: Slim | None) -> int:
    name = info.type if slim is None else slim.types.get(info.name, info.type)
    if name not in KERNEL_TYPES:  # refused later, by name
        return info.nbytes
    return _kernels.packed_bytes(KERNEL_TYPES[name], info.shape[1], info.shape[0])
