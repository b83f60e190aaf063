"""Byte-pair encoding itself, as the tokenizers library does it, with or without the interpreter's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers


def ids_of(encoder: tokenizers.Tokenizer, text: str, *, beside: bool) -> list[int]:
    """Return the ids of a text.

    Parameters
    ----------
    beside
        Whether other threads of Python may run meanwhile; a text of 100 kB takes some 0.2 s. It is then a
        batch of one, for which the library lets the lock go. Unless TOKENIZERS_PARALLELISM is false, that
        starts threads of its own, and who forks afterwards gets a warning; so it is not done unasked.
    """
    if beside:
        found: list[int] = encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return found
    alone: list[int] = encoder.encode(text, add_special_tokens=False).ids
    return alone
