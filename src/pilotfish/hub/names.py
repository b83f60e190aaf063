"""What users may call a model besides a path or a name of the registry: a prefix says whose it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pilotfish.errors import UsageError

HUB, OLLAMA, LLAMA_CPP = "hf:", "ollama:", "llama.cpp:"
"""The prefixes."""

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class HubName:
    """A model of the Hugging Face hub.

    Attributes
    ----------
    repo
        `organisation/name`.
    quant
        A quantization such as `Q4_K_M`, or the name of a file in the repository; None leaves the choice open.
    """

    repo: str
    quant: str | None = None

    def __str__(self) -> str:
        return f"{HUB}{self.repo}" + ("" if self.quant is None else f":{self.quant}")


def read_hub_name(text: str) -> HubName:
    """Read `hf:org/repo` or `hf:org/repo:quant`.

    Raises
    ------
    UsageError
        It is not of that form.
    """
    repo, colon, quant = text.removeprefix(HUB).partition(":")
    if not is_repo(repo):
        raise UsageError(
            f"{text[:100]!r} names no repository of the hub", "write hf:org/repo or hf:org/repo:quant"
        )
    if colon and not is_plain(quant):
        raise UsageError(
            f"{text[:100]!r} names no quantization",
            "write hf:org/repo:Q4_K_M, for example, or hf:org/repo:FILE.gguf",
        )
    return HubName(repo, quant or None)


def is_repo(text: str) -> bool:
    """Tell whether this can be the name of a repository, and so of a folder and a part of an address."""
    return bool(_REPO.fullmatch(text)) and ".." not in text and "--" not in text


def is_plain(path: str) -> bool:
    """Tell whether a path in a repository is harmless as a name of a file once its slashes are replaced.

    Names in listings and manifests come from outside: no empty, hidden or parent folder, nothing unprintable,
    no longer than file systems take.
    """
    return (
        0 < len(path.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME
        and path.isprintable()
        and not any(letter in path for letter in '\\:"<>|?*')
        and all(part and not part.startswith((".", "-", " ")) for part in path.split("/"))
    )
