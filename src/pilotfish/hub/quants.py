"""Which of a repository's models is meant: by quantization, by file, or by a default that is stated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from pilotfish.errors import HubError
from pilotfish.hub.names import HUB
from pilotfish.shards import shard_of

DEFAULT_ORDER = (
    "Q4_K_M",
    "Q4_K_S",
    "Q4_K_L",
    "UD-Q4_K_XL",
    "Q4_1",
    "Q4_0",
    "Q4",
    "Q5_K_M",
    "Q5_K_S",
    "Q5_0",
    "Q5",
    "Q6_K",
    "Q6_K_L",
    "Q6",
    "Q8_0",
    "Q8",
    "BF16",
    "F16",
    "F32",
)
"""What is taken where no quantization is named: the first of these that there is. Others, most of which hold
tensor types that are not computed here, have to be named."""

_QUANT = re.compile(
    r"(?<![A-Za-z0-9])"
    r"((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]{1,3})*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|FP?16|FP?32))"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_MOST_NAMED = 20


class Choice(Protocol):
    """Something to choose from: a model in a repository, or one that came from there."""

    @property
    def file(self) -> str:
        """Its path in the repository; of a split model, that of its first file."""
        ...

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        ...


C = TypeVar("C", bound=Choice)


def quant_of(file: str) -> str:
    """Return the quantization that a file's name says, in upper case, empty if none; the last one counts.

    Sources: the names that llama.cpp's `llama-quantize` and the hub's publishers use.
    """
    name = file.rpartition("/")[2]
    shard = shard_of(name)
    found = _QUANT.findall(name.removesuffix(".gguf") if shard is None else shard.stem)
    quant = found[-1].upper() if found else ""
    return {"FP16": "F16", "FP32": "F32"}.get(quant, quant)


def tag_of(choice: Choice, among: Iterable[Choice]) -> str:
    """Return the name of a model in its repository: its quantization if no other has it, else its file."""
    quant = quant_of(choice.file)
    same = [other for other in among if quant_of(other.file) == quant]
    return quant if quant and len(same) <= 1 else choice.file


def choose(among: Sequence[C], wanted: str | None, repo: str) -> C:
    """Return the model that is meant.

    Parameters
    ----------
    among
        What there is.
    wanted
        A quantization or a file, both in any case, the file with or without folder and ending; None for the
        first of `DEFAULT_ORDER`.
    repo
        For messages.

    Raises
    ------
    HubError
        There is none, or several fit; the message has the names there are.
    """
    if wanted is None:
        fit = next((fit for quant in DEFAULT_ORDER if (fit := _of_quant(among, quant))), list(among))
    else:
        by_file = [choice for choice in among if wanted.lower() in _names(choice.file)]
        fit = by_file or _of_quant(among, wanted)
    if len(fit) == 1:
        return fit[0]
    if not fit:
        raise HubError(
            f"{repo} has no {wanted!r}" if wanted else f"{repo} has no model that can be used",
            f"it has: {listed(among)}" if among else "",
        )
    named = f"is {wanted!r}" if wanted else "is meant"
    raise HubError(
        f"it is not clear which model of {repo} {named}",
        f"name one, as {HUB}{repo}:NAME, of: {listed(fit)}",
    )


def listed(among: Iterable[Choice]) -> str:
    """Return the names of models in one line, each as short as it can be; of very many the first ones."""
    among = list(among)
    quants = [quant_of(choice.file) for choice in among]
    names = [
        quant if quant and quants.count(quant) == 1 else choice.file
        for choice, quant in zip(among[:_MOST_NAMED], quants, strict=False)
    ]
    more = len(among) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _of_quant(among: Iterable[C], quant: str) -> list[C]:
    return [choice for choice in among if quant_of(choice.file) == quant.upper()]


def _names(file: str) -> set[str]:
    """Return what a file may be called, in lower case."""
    path = file.lower()
    base = path.rpartition("/")[2]
    shard = shard_of(base)
    return {path, base, base.removesuffix(".gguf")} | (set() if shard is None else {shard.stem})
