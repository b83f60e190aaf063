"""The real tokenizers, built once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.engines.native.container import Container
from pilotfish.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {
    "smollm2-135m": "smollm2",
    "qwen2.5-coder-0.5b": "qwen05",
    "qwen2.5-coder-1.5b": "qwen15",
    "gemma-3-270m": "gemma",
}


class Real:
    """A real model's metadata and tokenizer, and the processor time it took to build."""

    def __init__(self, name: str, path: Path) -> None:
        with Container.open(path) as container:
            self.metadata: dict[str, Any] = dict(container.metadata)
        self.name = name
        start = time.process_time()
        self.tokenizer = Tokenizer.from_metadata(self.metadata)
        self.build_s = time.process_time() - start


_BUILT: dict[str, Real] = {}


def _real(name: str, request: pytest.FixtureRequest) -> Real:
    if name not in _BUILT:
        _BUILT[name] = Real(name, request.getfixturevalue(NAMES[name]))
    return _BUILT[name]


@pytest.fixture(scope="session", params=NAMES)
def real(request: pytest.FixtureRequest) -> Real:
    return _real(request.param, request)


@pytest.fixture(scope="session", params=[name for name in NAMES if name != "gemma-3-270m"])
def chatting(request: pytest.FixtureRequest) -> Real:
    """Return one that has a chat template; a base model has none."""
    return _real(request.param, request)
