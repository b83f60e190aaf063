"""Reading a text part by part: evaluating what a sequence's cache does not hold yet."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.engines.base import Chunk

if TYPE_CHECKING:
    from pilotfish.engines.base import Engine, Rows
    from pilotfish.sequence import Sequence

SLICE = 128
"""Tokens read in a pass: long enough to be efficient, short enough that Ctrl-C is heard soon."""

SCORED_SLICE = 32
"""The same where every row is wanted: a row has as many numbers as the vocabulary has tokens."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a pass reads of a text: its next tokens.

    Attributes
    ----------
    choices
        The sequences that answer it. The first reads; the others share what it holds in the end.
    count
        Tokens to read, at least 1 and at most `most_to_read`.
    """

    choices: collections.abc.Sequence[Sequence]
    count: int

    @property
    def first(self) -> Sequence:
        """The sequence that reads."""
        return self.choices[0]

    @property
    def is_last(self) -> bool:
        """Whether the text is read then: an answer begins, or goes on."""
        return self.count == self.first.unread

    def chunk(self) -> Chunk:
        """Return what to evaluate; rows are wanted of all tokens that are scored, and of the last one."""
        s = self.first
        wanted = self.count if s.scores_left else int(self.is_last)
        return Chunk(s.handle, s.tokens[s.evaluated : s.evaluated + self.count], wanted)

    def score(self, rows: Rows, row: int) -> int:
        """Fill `prompt_logprobs` of all choices from the part's rows, the first being `row`.

        Returns
        -------
            The row behind the part's last token, if that was wanted.
        """
        s = self.first
        if not s.scores_left or s.logprobs is None:
            return row
        done = len(s.prompt_logprobs)
        following = s.tokens[done : min(s.stats.prompt_tokens, s.evaluated + self.count + 1)]
        # The row behind token i says how likely token i + 1 was.
        begin = row + done - 1 - s.evaluated
        scores = [rows.logprobs(begin + i, token, s.logprobs) for i, token in enumerate(following)]
        for choice in self.choices:
            choice.prompt_logprobs += scores
        return row + self.count - 1

    def taken(self, engine: Engine) -> None:
        """Count the tokens as evaluated; after the last part the other choices get a cache like it."""
        if self.is_last:
            for other in self.choices[1:]:
                if other.handle < 0:
                    other.handle = engine.fork(self.first.handle)
                other.evaluated = len(other.tokens)
        self.first.evaluated += self.count


def begin(engine: Engine, sequence: Sequence) -> None:
    """Open a cache for a sequence, or use what the handle that it was given holds of its text already.

    The last token is always evaluated anew, and with `scores_prompt` all of the prompt is.
    """
    if sequence.handle < 0:
        sequence.handle = engine.open()
    sequence.evaluated = min(engine.length(sequence.handle), len(sequence.tokens) - 1)
    if sequence.scores_left:
        sequence.evaluated = min(sequence.evaluated, len(sequence.prompt_logprobs) - 1)
    engine.truncate(sequence.handle, sequence.evaluated)


def most_to_read(sequence: Sequence) -> int:
    """Return how many tokens of a sequence a pass may read at most."""
    return min(sequence.unread, SCORED_SLICE if sequence.scores_left else SLICE)
