"""What a draft model can do without: it need not be exact, only quick and mostly right.

A token of a draft costs the bytes that it reads. Two things are cut where that pays:

- The head says the ids that matter: the first ones (byte-pair merges are learned by frequency, so ids are
  roughly in order of it), those with a meaning of their own, and, as texts use them, those of prompt and
  answer (`NativeEngine.wants`). The target is never bound by this: an id that the draft model can't say is a
  guess that is not made.
- Matrices with more than five bits a weight are rounded to Q4_0, sixteen even steps for 32 weights.

Measured on the Qwen2.5-Coder 0.5B, at 1,058 positions of greedy answers of the 1.5B, each with the ids of the
text before it: bytes that a token reads, and agreement.

| | as filed | Q4_1 | Q4_0 |
|---|---|---|---|
| whole head | 392 MB, .834 | 306 MB, .825 | 278 MB, .818 |
| 48k ids | 294 MB, .829 | 248 MB, .820 | 226 MB, .816 |
| 32k ids | 279 MB, .824 | 239 MB, .814 | 218 MB, .812 |
| 16k ids | 263 MB, .817 | 230 MB, .810 | 210 MB, .802 |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.engines.native.kernel_types import KERNEL_TYPES
from pilotfish.engines.native.slim import GROUP, Slim
from pilotfish.engines.native.tensor_types import TENSOR_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pilotfish.engines.native.container import TensorInfo
    from pilotfish.text.vocabulary import Vocabulary

AUTO, OFF = "auto", "off"
"""What `draft_slim` may be."""

HEAD_IDS = 32_768
"""The lowest ids, which the head can always say: 98 % of the tokens of answers, with those of the text."""

SMALLEST_VOCABULARY = 49_152
"""Up to this many ids a head is a small part of a model."""

MOST_BITS = 5.0
"""Matrices with more bits a weight, scales included, are rounded."""

ROUNDED = "Q4_0"

WORTH = 0.85
"""Slimming costs agreement, so at most this share of the bytes that a token reads must be left."""

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_TYPES = {kind.name: kind for kind in TENSOR_TYPES.values()}


def slim_for(tensors: Mapping[str, TensorInfo], vocabulary: Vocabulary) -> Slim | None:
    """Return how to slim a draft model; None if it isn't worth it.

    Parameters
    ----------
    tensors
        Of the model's file.
    vocabulary
        Its tokens.
    """
    head = tensors.get(_HEAD, tensors.get(_EMBEDDING))
    if head is None or len(head.shape) != 2 or head.shape[1] <= SMALLEST_VOCABULARY:
        return None
    read = {name: info for name, info in tensors.items() if name != _EMBEDDING or info is head}
    types = {name: ROUNDED for name, info in read.items() if _is_rounded(info)}
    first = range(min(HEAD_IDS, head.shape[1]))
    slim = Slim(types, frozenset(first) | vocabulary.control_ids | vocabulary.user_ids | vocabulary.end_ids)
    before = sum(info.nbytes for info in read.values())
    after = sum(_bytes_left(info, slim, is_head=info is head) for info in read.values())
    return slim if after <= WORTH * before else None


def _is_rounded(info: TensorInfo) -> bool:
    kind, rounded = _TYPES[info.type], _TYPES[ROUNDED]
    return (
        len(info.shape) == 2
        and info.type in KERNEL_TYPES
        and info.shape[0] % rounded.block == 0
        and 8 * kind.nbytes / kind.block > MOST_BITS
    )


def _bytes_left(info: TensorInfo, slim: Slim, *, is_head: bool) -> float:
    """Return the bytes that a token still reads of a tensor."""
    kind = _TYPES[slim.types.get(info.name, info.type)]
    rows = info.shape[1] if len(info.shape) == 2 else 1
    if is_head and slim.head_ids is not None:
        rows = GROUP * len({token // GROUP for token in slim.head_ids})
    return rows * info.shape[0] // kind.block * kind.nbytes
