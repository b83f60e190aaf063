"""Exact speculative decoding: the same answer, sooner.

::

    import pilotfish

    with pilotfish.load("qwen2.5-coder-1.5b") as llm:
        print(llm.chat([{"role": "user", "content": "Say hello in French."}]).text)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.answer import Answer, Event, Result
    from pilotfish.errors import PilotfishError
    from pilotfish.llm import LLM, load
    from pilotfish.stats import Stats

    __version__: str

__all__ = ["LLM", "Answer", "Event", "PilotfishError", "Result", "Stats", "load"]

# Imported when first asked for, so that `import pilotfish` takes milliseconds (PEP 562).
_HOMES = {
    "LLM": "pilotfish.llm",
    "Answer": "pilotfish.answer",
    "Event": "pilotfish.answer",
    "PilotfishError": "pilotfish.errors",
    "Result": "pilotfish.answer",
    "Stats": "pilotfish.stats",
    "load": "pilotfish.llm",
}


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def _version() -> str:
    import importlib.metadata  # noqa: PLC0415 - takes as long as all the rest

    try:
        return importlib.metadata.version("pilotfish")
    except importlib.metadata.PackageNotFoundError:  # run from a source folder
        return "0.0.0"


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
