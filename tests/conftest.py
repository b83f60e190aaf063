"""Fixtures that several folders share."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# What a shell starts in the background ignores Ctrl-C, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the settings of whoever runs it."""
    monkeypatch.setenv("PILOTFISH_CONFIG", os.devnull)


def _cached(name: str) -> Path:
    from pilotfish.hub import cached_path

    path = cached_path(name)
    if path is None:
        pytest.skip(f"{name} is not in the cache; `make test` fetches it, or `pilotfish pull {name}`")
    return path


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return _cached("smollm2-135m")


@pytest.fixture(scope="session")
def gemma() -> Path:
    return _cached("gemma-3-270m")


@pytest.fixture(scope="session")
def qwen05() -> Path:
    return _cached("qwen2.5-coder-0.5b")


@pytest.fixture(scope="session")
def qwen15() -> Path:
    return _cached("qwen2.5-coder-1.5b")
