"""What a drafter is: something that guesses the next tokens of sequences, and hears what became of it.

A drafter keeps its own state per sequence, keyed by `Sequence.key`, created when it first sees the key and
freed by `forget`. It never influences the text: whatever it proposes or raises, the answer is the target's.
"""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pilotfish.engines.base import Rows
    from pilotfish.sampling import Sampling


class View(Protocol):
    """What a drafter may see of a sequence."""

    @property
    def key(self) -> int:
        """Unique for the life of the process."""
        ...

    @property
    def tokens(self) -> collections.abc.Sequence[int]:
        """Prompt and emitted tokens, the pending one last; not to be changed."""
        ...

    @property
    def sampling(self) -> Sampling:
        """How the target chooses."""
        ...

    @property
    def salt(self) -> str:
        """Whose it is: what is learned from a text is of use to sequences with the same salt only."""
        ...

    @property
    def left(self) -> int:
        """Tokens that the answer may still have, behind the next one."""
        ...

    def awaited(self) -> bool:
        """Return whether others wait for the end of its steps; that may change within a step."""
        ...

    def choose(self, rows: Rows, row: int, guesses: collections.abc.Sequence[int] = ()) -> int:
        """Return what the target would choose from a draft model's row behind `tokens` and `guesses`.

        That is with its noise, penalties and bans: a draft model that chooses so is right more often.
        """
        ...


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposed run of tokens; the empty draft is no draft.

    Attributes
    ----------
    tokens
        Ids, first guess first.
    confidence
        For each token the drafter's own estimate, 0..1, that it is right if those before it are.
    drafters
        For each token the name of the drafter that proposed it.
    """

    tokens: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    drafters: tuple[str, ...] = ()


NO_DRAFT = Draft()


class Drafter(Protocol):
    """Anything that proposes tokens."""

    @property
    def name(self) -> str:
        """Short name, shown in statistics."""
        ...

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each sequence; one call serves the batch."""
        ...

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn that `sequence.tokens` has grown and that `accepted` tokens of the draft were kept."""
        ...

    def forget(self, key: int) -> None:
        """Free what is kept for a sequence; an unknown key is not an error."""
        ...
