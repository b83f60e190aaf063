"""The command line on models without weights."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.drafting import Drafting, Wish
from pilotfish.llm import LLM
from tiny import tiny_draft, tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pilotfish.engines.scripted import Rule
    from pilotfish.model import TextModel


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test here depends on what is cached on this machine, nor on the caller's options."""
    for name in list(os.environ):
        if name.startswith("PILOTFISH_"):
            monkeypatch.delenv(name)
    cache = tmp_path / "cache"
    monkeypatch.setenv("PILOTFISH_CACHE", str(cache))
    monkeypatch.setenv("PILOTFISH_CONFIG", os.devnull)
    for name in ("HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return cache


@dataclass
class Loaded:
    """The models that commands load, and what they asked for."""

    target: TextModel
    draft_rule: Rule | None = None
    asked: tuple[Any, ...] = ()

    def drafting(self, draft: str | Sequence[str]) -> Drafting:
        """Return what a wish gives; `auto` has a draft model too."""
        wish = Wish.read(draft)
        model = tiny_draft(self.draft_rule or self.target.engine.rule)  # type: ignore[attr-defined]
        return Drafting(wish, model if wish.model or wish.auto else None)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Loaded]:
    """Make every command load a tiny model that says what the rule says."""

    def use(rule: Rule | None = None, draft_rule: Rule | None = None, **model: Any) -> Loaded:
        loaded = Loaded(tiny_model(rule, **model), draft_rule)

        def load(name: str, draft: Any, context: Any, threads: Any, **_rest: Any) -> LLM:
            loaded.asked = (name, draft, context, threads)
            return LLM(loaded.target, loaded.drafting(draft))

        def load_models(name: str, wishes: list[Wish], context: Any, threads: Any, **_rest: Any) -> Any:
            loaded.asked = (name, wishes, context, threads)
            names = ["auto" if w.auto else w.model or "suffix" for w in wishes]
            return loaded.target, [loaded.drafting(n) for n in names]

        monkeypatch.setattr("pilotfish.llm.load", load)
        monkeypatch.setattr("pilotfish.loading.load_models", load_models)
        return loaded

    return use
