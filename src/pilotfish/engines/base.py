"""What an engine is: sequences of evaluated tokens, and passes that extend them.

An engine knows token ids only. A *pass* takes chunks of one or more sequences and appends all their tokens;
it returns one row of logits for each wanted token. A pass that fails leaves every sequence as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pilotfish.adjusting import Adjustment
    from pilotfish.logprobs import Logprobs
    from pilotfish.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens to append to one sequence in a pass.

    Attributes
    ----------
    sequence
        Handle from `Engine.open`.
    tokens
        Ids to evaluate, at least one.
    wanted
        How many of the last tokens a row of logits is wanted for, 0..len(tokens).
    """

    sequence: int
    tokens: Sequence[int]
    wanted: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """What an engine is to take memory for before it is used, so that none is taken later.

    Attributes
    ----------
    rows, wanted
        Tokens of the largest pass, and rows of logits of the one that wants most.
    tokens
        Tokens that its sequences hold together; more take memory when they come.
    """

    rows: int
    wanted: int
    tokens: int


class Rows(Protocol):
    """The wanted rows of one pass, in order of the chunks; valid until the engine's next pass.

    Row `i` is what the target says after the tokens up to the i-th wanted one. Nothing of the width of the
    vocabulary reaches Python unless `logits` is called. Every method raises NumericsError on NaN or infinite
    logits.
    """

    def __len__(self) -> int: ...

    def argmax(self, row: int) -> int:
        """Return the id with the largest logit, the lowest one on a tie."""
        ...

    def margin(self, row: int) -> float:
        """Return the largest logit minus the second largest (0.0 on a tie)."""
        ...

    def choose(
        self, row: int, sampling: Sampling, position: int, adjustment: Adjustment | None = None
    ) -> int:
        """Return the token that `sampling.choose` gives for this row at this absolute position."""
        ...

    def probability(self, row: int, token: int) -> float:
        """Return softmax(logits)[token] at temperature 1."""
        ...

    def logprobs(self, row: int, token: int, top: int) -> Logprobs:
        """Return the log-probabilities of a token and of the `top` likeliest: `logprobs.logprobs`."""
        ...

    def digest(self, row: int) -> int:
        """Return a 64-bit hash of the row's bits: equal hashes mean equal logits."""
        ...

    def logits(self, row: int) -> NDArray[np.float32]:
        """Return a copy of the row, shape (vocab_size,)."""
        ...


class Engine(Protocol):
    """A model that evaluates passes; see `pilotfish.engines.scripted` for the smallest one."""

    @property
    def vocab_size(self) -> int:
        """Number of logits a row has, padding ids included."""
        ...

    @property
    def context(self) -> int:
        """Largest number of tokens a sequence may hold."""
        ...

    def open(self) -> int:
        """Return the handle of a new, empty sequence."""
        ...

    def close(self, sequence: int) -> None:
        """Free a sequence; closing one twice is an EngineError."""
        ...

    def length(self, sequence: int) -> int:
        """Return the number of evaluated tokens that the sequence holds."""
        ...

    def truncate(self, sequence: int, length: int) -> None:
        """Forget the tokens from the absolute `length` on; a length beyond the sequence is an EngineError."""
        ...

    def fork(self, sequence: int) -> int:
        """Return a new sequence that holds the same tokens; pages are shared until written to."""
        ...

    def forward(self, chunks: Sequence[Chunk]) -> Rows:
        """Evaluate one pass; no sequence may stand in it twice."""
        ...
