"""The example engine of docs/adding-an-engine.md keeps the contract."""

from __future__ import annotations

from typing import cast

import pytest

from contract.test_engine_contract import *  # noqa: F403 - the whole suite, for this engine
from pilotfish.engines.base import Engine
from test_docs import run_examples


@pytest.fixture(scope="module")  # type: ignore[no-redef]
def engine() -> Engine:
    make = run_examples("adding-an-engine.md", with_models=False)["RecurrentEngine"]
    return cast("Engine", make())  # type: ignore[operator]
