"""`--draft-slim`: every command that loads a draft model passes it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pilotfish.llm
import pilotfish.loading
from cli_calls import call

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS = {
    "run": ("run", "--raw", "hi"),
    "chat": ("chat",),
    "verify": ("verify", "--raw", "--max-tokens", "4", "--limit", "1"),
    "bench speed": ("bench", "--raw", "--max-tokens", "4", "--limit", "1"),
}


@pytest.fixture
def asked(tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `draft_slim` was at each call that loads models."""
    tiny()
    found: list[object] = []

    def watch(place: Any, name: str) -> None:
        load = getattr(place, name)

        def watched(*arguments: Any, draft_slim: object = "not given", **options: Any) -> Any:
            found.append(draft_slim)
            return load(*arguments, **options)

        monkeypatch.setattr(place, name, watched)

    watch(pilotfish.llm, "load")
    watch(pilotfish.loading, "load_models")
    return found


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_option_reaches_loading(asked: list[object], command: str) -> None:
    arguments = (*COMMANDS[command], "-m", "x")
    call(*arguments)
    call(*arguments, "--draft-slim", "off")
    call(*arguments, PILOTFISH_DRAFT_SLIM="off")
    assert asked == ["auto", "off", "off"]


def test_another_value_is_refused_with_those_there_are(asked: list[object]) -> None:
    done = call("run", "-m", "x", "hi", "--draft-slim", "on")
    assert done.code == 2
    assert "auto" in done.err
    assert asked == []
