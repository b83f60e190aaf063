"""All suffixes of an array of tokens in order, as far as their first tokens tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sort_suffixes(tokens: NDArray[np.uint32], depth: int) -> NDArray[np.int32]:
    """Return where the suffixes begin, sorted by their first `depth` tokens, a power of 2, then by place.

    Prefix doubling (Manber and Myers 1993, "Suffix arrays: a new method for on-line string searches"): the
    order by 2k tokens is that of pairs of ranks by k tokens. Takes one to two seconds a million tokens, and
    some 40 bytes a token.

    Parameters
    ----------
    tokens
        Shape (n,), n below 2^31.
    depth
        A suffix that ends sooner sorts before those that go on.
    """
    count = len(tokens)
    rank = np.unique(tokens, return_inverse=True)[1].astype(np.int32) + 1
    length = 1
    while length < depth and count:
        keys = rank.astype(np.int64) * (count + 1)
        keys[: count - length] += rank[length:]
        order = np.argsort(keys)
        keys = keys[order]
        rank[order] = np.cumsum(np.concatenate([[True], keys[1:] != keys[:-1]]), dtype=np.int32)
        length *= 2
        if rank[order[-1]] == count:
            break
    return np.argsort(rank, kind="stable").astype(np.int32)
