"""A server for each file of tests; whoever changes its settings or breaks it starts their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("openai", reason="the extra `dev` has the openai client")

from server.clients.loopback import WAVERING, Server, reciting, served
from tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pilotfish.answer import Choice
    from pilotfish.server.service import Reply


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


@pytest.fixture
def prompts(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return where the prompts of the server's requests are noted, as ids."""
    noted: list[list[int]] = []
    submit = server.service.submit

    def noting(choices: Sequence[Choice], **options: Any) -> Reply:
        noted.append(list(choices[0].sequence.tokens))
        return submit(choices, **options)

    monkeypatch.setattr(server.service, "submit", noting)
    return noted
