"""The sampler's rules in the plainest way: dense rows, everything counted anew, whole answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.sampling import Sampling, gumbel, kept, scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pilotfish.engines.scripted import Rule

LARGEST = float(np.finfo(np.float32).max)


def penalized(
    logits: NDArray[np.float32], sampling: Sampling, prompt: Sequence[int], answer: Sequence[int]
) -> NDArray[np.float32]:
    """Return the row with penalties and biases for an answer so far, id by id."""
    text = [*prompt, *answer]
    window = text if sampling.repeat_last_n < 0 else text[len(text) - sampling.repeat_last_n :]
    if sampling.repeat_last_n > len(text):
        window = text
    biases = dict(sampling.logit_bias)
    row = []
    for token, logit in enumerate(logits.tolist()):
        x = logit
        if token in window and sampling.repeat_last_n != 0:
            x = x / sampling.repeat_penalty if x > 0 else x * sampling.repeat_penalty
        times = list(answer).count(token)
        if times:
            x -= times * sampling.frequency_penalty + sampling.presence_penalty
        x = float(np.float32(min(max(x, -LARGEST), LARGEST)))
        row.append(np.float32(min(max(x + biases.get(token, 0.0), -LARGEST), LARGEST)))
    return np.array(row, np.float32)


def chosen(row: NDArray[np.float32], sampling: Sampling, position: int) -> int:
    """Return the token of a row in which -inf is a token that can't be chosen."""
    ids = kept(row, sampling, absent=True)
    if len(ids) == 1:
        return int(ids[0])
    with np.errstate(over="ignore"):
        scores = scaled(row, sampling.temperature)[ids] + gumbel(ids, sampling, position)
    return int(ids[np.argmax(scores)])


def answered(
    rule: Rule, pieces: Sequence[bytes], prompt: Sequence[int], ends: frozenset[int], options: Any
) -> tuple[list[int], str, str]:
    """Return ids, text and finish reason of an answer (`options` is an `Options`); texts are ASCII.

    Parameters
    ----------
    pieces
        The bytes of each token.
    ends
        End tokens of the vocabulary.
    """
    sampling = options.sampling()
    if options.ignore_eos:
        ends = frozenset()
    said: list[int] = []
    sequences = [list(ids) for ids in options.banned_sequences]
    strings = [word.encode() for word in options.banned_strings]
    while True:
        logits = np.asarray(rule((*prompt, *said)), np.float32)
        row = penalized(logits, sampling, prompt, said)
        text = b"".join(pieces[token] for token in said)
        for token, piece in enumerate(pieces):
            early = token in ends and len(said) < options.min_tokens
            whole = [*said, token]
            if (
                early
                or any(ids == whole[-len(ids) :] for ids in sequences)
                or any(word in text + piece for word in strings)
            ):
                row[token] = -np.inf
        token = chosen(row, sampling, len(prompt) + len(said))
        said.append(token)
        if token in ends:
            return said, text.decode(), "stop"
        shown = (text + pieces[token]).decode()
        stops = [(shown.find(stop, max(0, len(text) + 1 - len(stop))), stop) for stop in options.stops]
        found = [(at + len(stop), at) for at, stop in stops if at >= 0]
        if found and len(said) > options.min_tokens:
            return said, shown[: min(found)[1]], "stop"
        if len(said) >= options.max_tokens:
            return said, shown, "length"
