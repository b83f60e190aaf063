"""The wanted rows of a pass; logits stay in C++."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pilotfish.errors import EngineError
from pilotfish.kernels import _kernels
from pilotfish.logprobs import Logprobs
from pilotfish.sampling import Sampling

if TYPE_CHECKING:
    from pilotfish.adjusting import Adjustment
    from pilotfish.engines.native.engine import NativeEngine


class NativeRows:
    """Rows of one pass of a `NativeEngine`; using them after its next pass is an EngineError."""

    def __init__(self, engine: NativeEngine, pass_number: int, count: int) -> None:
        self._engine = engine
        self._pass = pass_number
        self._count = count

    def __len__(self) -> int:
        return self._count

    def argmax(self, row: int) -> int:
        """Return the id with the largest logit, the lowest one on a tie."""
        return self._engine.program(self._pass).argmax(row)

    def margin(self, row: int) -> float:
        """Return the largest logit minus the second largest."""
        return self._engine.program(self._pass).margin(row)

    def choose(
        self, row: int, sampling: Sampling, position: int, adjustment: Adjustment | None = None
    ) -> int:
        """Return the token that `sampling.choose` gives for this row at this absolute position."""
        s = sampling
        lists = None if adjustment is None else packed(s, adjustment)
        program = self._engine.program(self._pass)
        return program.choose(
            row, s.temperature, s.top_k, s.top_p, s.min_p, s.seed, s.choice, position, lists
        )

    def probability(self, row: int, token: int) -> float:
        """Return softmax(logits)[token] at temperature 1."""
        return self._engine.program(self._pass).probability(row, token)

    def logprobs(self, row: int, token: int, top: int) -> Logprobs:
        """Return the log-probabilities of a token and of the `top` likeliest."""
        logprob, likeliest = self._engine.program(self._pass).logprobs(row, token, top)
        return Logprobs(logprob, tuple(likeliest))

    def digest(self, row: int) -> int:
        """Return a 64-bit hash of the row's bits."""
        return self._engine.program(self._pass).digest(row)

    def logits(self, row: int) -> NDArray[np.float32]:
        """Return a copy of the row, shape (vocab_size,)."""
        if not 0 <= row < self._count:
            raise EngineError(f"the pass has no row {row}", f"it has {self._count}")
        return self._engine.program(self._pass).logits(row)


def packed(sampling: Sampling, adjustment: Adjustment) -> _kernels.Adjustment:
    """Return what the C++ twin takes; it points into the lists."""
    return _kernels.Adjustment(
        adjustment.ids,
        adjustment.repeated,
        adjustment.generated,
        adjustment.biased,
        adjustment.bias,
        adjustment.banned,
        sampling.presence_penalty,
        sampling.frequency_penalty,
        sampling.repeat_penalty,
    )
