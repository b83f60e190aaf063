"""Which ids a text has used, and so which logits are adjusted: kept up to date, never counted anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.adjusting import Adjustment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pilotfish.bans import Ban
    from pilotfish.sampling import Sampling


class History:
    """The history of one sequence, as the sampler needs it.

    A row sees the tokens of its sequence and the guesses before it. The tokens of a sequence only grow; what
    was counted of guesses is taken back when others, or none, stand in their place. So whatever happened to
    a step, the next question is answered by what it is asked about alone.

    Parameters
    ----------
    sampling
        Penalties, the window, biases.
    prompt
        How many of the sequence's first tokens are its prompt.
    ends, min_tokens
        Ids that are banned before the answer has so many tokens.
    bans
        Further rules; they belong to this sequence.
    """

    def __init__(
        self,
        sampling: Sampling,
        prompt: int,
        *,
        ends: Iterable[int] = (),
        min_tokens: int = 0,
        bans: Sequence[Ban] = (),
    ) -> None:
        self._prompt = prompt
        self._window = sampling.repeat_last_n if sampling.repeat_penalty != 1.0 else 0
        self._min_tokens = min_tokens
        self._ends = np.array(sorted(ends), np.int32)
        self._bans = bans
        self._biased = np.array([token for token, _ in sampling.logit_bias], np.int32)
        self._bias = np.array([bias for _, bias in sampling.logit_bias], np.float64)
        self._said: list[int] = []
        self._sure = 0  # of these, how many are the sequence's own
        self._slots: dict[int, int] = {}  # by id: where it stands in the lists
        self._ids, self._repeated, self._generated = (np.zeros(64, np.int32) for _ in range(3))

    def after(self, tokens: Sequence[int], guesses: Sequence[int] = ()) -> Adjustment:
        """Return what is adjusted behind a sequence's tokens and guesses.

        Parameters
        ----------
        tokens
            Of the sequence, prompt and answer: those of the last call, and perhaps more.
        guesses
            Further tokens, as if they had been said.

        Returns
        -------
            Valid until the next call.
        """
        if not self._said and 0 < self._prompt <= len(tokens):
            self._begin(tokens[: self._prompt])
        more = [*tokens[self._sure :], *guesses]
        same = _common(self._said[self._sure :], more)
        while len(self._said) > self._sure + same:
            self._pop()
        for token in more[same:]:
            self._push(token)
        self._sure = len(tokens)
        used = len(self._slots)
        return Adjustment(
            self._ids[:used],
            self._repeated[:used],
            self._generated[:used],
            self._biased,
            self._bias,
            self._banned(),
        )

    def _begin(self, prompt: Sequence[int]) -> None:
        """Count a prompt, all at once: token by token a long one takes longer than a pass may wait."""
        said = np.array(prompt, np.int32)
        ids, first = np.unique(said, return_index=True)
        ids = ids[np.argsort(first)]
        self._slots = {token: slot for slot, token in enumerate(ids.tolist())}
        size = max(64, len(ids))
        self._ids, self._repeated, self._generated = (np.zeros(size, np.int32) for _ in range(3))
        self._ids[: len(ids)] = ids
        if self._window:
            seen, counts = np.unique(said[-self._window :] if self._window > 0 else said, return_counts=True)
            self._repeated[[self._slots[token] for token in seen.tolist()]] = counts
        self._said = list(prompt)
        self._sure = len(prompt)

    def _push(self, token: int) -> None:
        self._count(token, len(self._said), 1)
        if len(self._said) >= self._prompt:
            for ban in self._bans:
                ban.push(token)
        self._said.append(token)

    def _pop(self) -> None:
        token = self._said.pop()
        self._count(token, len(self._said), -1)
        if len(self._said) >= self._prompt:
            for ban in self._bans:
                ban.pop()

    def _count(self, token: int, at: int, by: int) -> None:
        """Count the token at a place, or take that back."""
        slot = self._slot(token)
        if self._window:
            self._repeated[slot] += by
            if 0 < self._window <= at:
                self._repeated[self._slots[self._said[at - self._window]]] -= by
        if at >= self._prompt:
            self._generated[slot] += by

    def _slot(self, token: int) -> int:
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._ids):
            self._ids, self._repeated, self._generated = (
                np.concatenate([a, np.zeros_like(a)]) for a in (self._ids, self._repeated, self._generated)
            )
        self._ids[slot] = token
        return slot

    def _banned(self) -> NDArray[np.int32]:
        lists = [ban.banned() for ban in self._bans]
        if len(self._said) - self._prompt < self._min_tokens:
            lists.append(self._ends)
        if len(lists) == 1:
            return lists[0]
        return np.concatenate(lists) if lists else np.empty(0, np.int32)


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many tokens both begin with."""
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
