"""The options of what is loaded: every command that drafts passes each of them on."""

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
    "demo": ("demo", "--raw", "hi", "--max-tokens", "4"),
    "verify": ("verify", "--raw", "--max-tokens", "4", "--limit", "1"),
    "bench speed": ("bench", "--raw", "--max-tokens", "4", "--limit", "1"),
}
# Option -> value, as it is passed on, and the default.
OPTIONS: dict[str, tuple[str, object, object]] = {
    "threads": ("3", 3, None),
    "context": ("200", 200, None),
    "draft_corpus": ("texts", "texts", None),
    "draft_slim": ("off", "off", "auto"),
}


@pytest.fixture
def asked(tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What each call that loads models was given, by name."""
    tiny()
    found: list[dict[str, object]] = []

    def watch(place: Any, name: str) -> None:
        load = getattr(place, name)

        def watched(model: str, draft: Any, context: Any, threads: Any, **options: Any) -> Any:
            found.append({"model": model, "context": context, "threads": threads, **options})
            return load(model, draft, context, threads, **options)

        monkeypatch.setattr(place, name, watched)

    watch(pilotfish.llm, "load")
    watch(pilotfish.loading, "load_models")
    return found


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_the_option_reaches_loading(asked: list[dict[str, object]], command: str, name: str) -> None:
    arguments = (*COMMANDS[command], "-m", "x")
    said, passed_on, default = OPTIONS[name]
    call(*arguments)
    call(*arguments, "--" + name.replace("_", "-"), said)
    call(*arguments, **{f"PILOTFISH_{name.upper()}": said})
    assert [given[name] for given in asked] == [default, passed_on, passed_on]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_offline_reaches_loading(asked: list[dict[str, object]], command: str) -> None:
    call(*COMMANDS[command], "-m", "x")
    call(*COMMANDS[command], "-m", "x", "--offline")
    assert [given["offline"] for given in asked] == [False, True]


def test_another_value_is_refused_with_those_there_are(asked: list[dict[str, object]]) -> None:
    done = call("run", "-m", "x", "hi", "--draft-slim", "on")
    assert done.code == 2
    assert "auto" in done.err
    assert asked == []


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("verify", "-d", "some-model"), "add -d suffix or -d auto"),
        (("bench", "--modes", "model"), "add suffix or auto to modes"),
    ],
)
def test_a_corpus_that_nothing_would_look_into_is_refused(
    asked: list[dict[str, object]], args: tuple[str, ...], hint: str
) -> None:
    """A draft model at a fixed length drafts alone, as the mode `model` does."""
    assert hint in call(*args, "-m", "x", "--draft-corpus", "texts").error
    assert asked == []
