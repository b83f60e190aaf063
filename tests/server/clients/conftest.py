"""A server for each file of tests; whoever changes its settings or breaks it starts their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("openai", reason="the extra `dev` has the openai client")

from loopback import WAVERING, Server, reciting, served  # noqa: E402

from tiny import tiny_model  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Says the same text whatever it is asked."""
    with served(tiny_model(reciting())) as one:
        yield one


@pytest.fixture(scope="module")
def wavering() -> Iterator[Server]:
    """Says what the seed decides."""
    with served(tiny_model(WAVERING)) as one:
        yield one
