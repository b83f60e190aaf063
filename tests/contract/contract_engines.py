"""The engines that must keep the contract.

An entry makes an engine with a context of 64..512 tokens, at least 8 known ids and no sequence open; it may get
fixtures by name from the request. One engine serves all tests of the suite.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.engines.base import Engine
from pilotfish.engines.scripted import ScriptedEngine, ngrams

MakeEngine = Callable[[pytest.FixtureRequest], Engine]


def scripted(_request: pytest.FixtureRequest) -> Engine:
    return ScriptedEngine(ngrams(24, order=64, seed=5), vocab_size=24, context=96)


ENGINES = [pytest.param(scripted, id="scripted")]
