"""How much memory a model will take, from its header alone: nothing large is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.engines.native.families.decoder import attention_shape
from pilotfish.engines.native.kernel_types import KERNEL_TYPES
from pilotfish.engines.native.kv import PAGE
from pilotfish.kernels import _kernels

if TYPE_CHECKING:
    from pilotfish.engines.native.config import Config
    from pilotfish.engines.native.container import Container, TensorInfo
    from pilotfish.engines.native.slim import Slim

KV_NUMBER = 2
"""Bytes of one number in the KV cache."""

READ_ROWS, DRAFT_ROWS = 128, 17
"""Rows of a pass over a slice of a prompt, and of one that checks a long draft, with logits of each."""

_FLOATS = ("F32", "F16", "BF16")
_QUANTIZED = 48 / 32
"""Bytes of a quantized activation: 32 share a scale and sums."""
_PARTIALS = 32 << 20
"""Most bytes of attention's results that are kept by block of 256 keys."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that a model adds to its process.

    Attributes
    ----------
    weights
        Packed, and as slimmed.
    kv
        The KV cache of one full sequence; it is taken page by page as the text grows.
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


def footprint_of(container: Container, config: Config, context: int, slim: Slim | None = None) -> Footprint:
    """Return what a model will take.

    Parameters
    ----------
    container, config
        Its file.
    context
        Most tokens of its sequence.
    slim
        What will be left out, of a model that drafts.

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
    # Each layer has its own: queries, keys and values as floats; the inputs of its four steps.
    layer = 4 * (queries + pair) + number * (2 * width + queries + wide)
    rows = READ_ROWS * (shape.layers * layer + (4 + number) * width + 4 * queries)
    blocks = -(-context // (4 * PAGE))
    partials = min(_PARTIALS, 4 * DRAFT_ROWS * (queries + 16 * shape.heads) * blocks)
    table = container.tensors.get("token_embd.weight")
    logits = 4 * DRAFT_ROWS * (table.shape[-1] if table is not None else 0)
    return Footprint(
        weights=sum(_packed(info, slim) for info in matrices),
        kv=-(-context // PAGE) * PAGE * shape.layers * pair * KV_NUMBER,
        work=int(rows) + partials + logits,
    )


def _packed(info: TensorInfo, slim: Slim | None) -> int:
    name = info.type if slim is None else slim.types.get(info.name, info.type)
    if name not in KERNEL_TYPES:  # refused later, by name
        return info.nbytes
    return _kernels.packed_bytes(KERNEL_TYPES[name], info.shape[1], info.shape[0])
