"""Token ids to text, one at a time, never half a character."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns a stream of ids into a stream of text.

    The pieces, put together, are what `Tokenizer.decode` gives for all ids. Bytes of a character that is not
    complete are held back, at most three; bytes that can't become a character are released as U+FFFD at once.
    `special` shows control tokens' text too.
    """

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        self._bytes_of = tokenizer.shown_bytes if special else tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Return the text that is complete with this token; often none."""
        return self._decoder.decode(self._bytes_of(token_id))

    def finish(self) -> str:
        """Return what is still held back, as U+FFFD; the detokenizer can then be used afresh."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
