"""`rm` frees our own cache, by name, and touches nothing else."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from hub.doubles import Recorder
from hub.repositories import FakeApi, Repository
from pilotfish.errors import CacheError, HubError, UnknownModel, UsageError
from pilotfish.hub import cached_path, models_here, pull, removal
from pilotfish.hub.cache import locked
from pilotfish.hub.pulled import pulled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hub.doubles import FakeHub
    from pilotfish.hub import Entry


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """Two models, one of them in two files."""
    api = FakeApi()
    monkeypatch.setenv("HF_ENDPOINT", api.address)
    names = ("m-Q8_0.gguf", "m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf")
    api.repositories["org/m"] = Repository({name: name.encode() * 9 for name in names})
    yield api
    api.close()


def files(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_a_model_of_the_registry_is_removed(entry: Entry, fake_hub: FakeHub, cache: Path) -> None:
    del fake_hub
    pull(entry.name)
    (cache / "other").write_bytes(b"x")
    plan = removal(entry.name)
    assert (plan.name, plan.size, cached_path(entry.name) is not None) == (entry.name, 1000, True)
    assert plan.carry_out() == 1000
    assert files(cache) == ["other"]
    assert plan.carry_out() == 0
    with pytest.raises(HubError, match="tiny is not in the cache"):
        removal(entry.name)


def test_what_a_pull_that_broke_off_left_is_removed(entry: Entry, fake_hub: FakeHub, cache: Path) -> None:
    fake_hub.breaks = [600, 0, 0, 0]
    with pytest.raises(HubError):
        pull(entry.name, source="hub")
    assert removal(entry.name).carry_out() > 600
    assert files(cache) == []


@pytest.mark.usefixtures("repository")
def test_of_a_repository_the_model_named_is_removed(cache: Path) -> None:
    pull("hf:org/m")
    pull("hf:org/m:Q8_0")
    with pytest.raises(HubError, match=r"several models .*name one of: Q4_K_M, Q8_0"):
        removal("hf:org/m")
    removal("hf:org/m:q4_k_m").carry_out()
    assert files(cache) == ["m-Q8_0.gguf", "m-Q8_0.gguf.json"]
    assert [model.name for model in pulled()] == ["hf:org/m:Q8_0"]
    with pytest.raises(HubError, match=r"not in the cache .there: Q8_0"):
        removal("hf:org/m:Q4_K_M")
    removal("hf:org/m").carry_out()
    assert files(cache) == []


@pytest.mark.parametrize("name", ["hf:org/m", "hf:org/m:Q4_K_M"])
def test_of_a_repository_what_a_broken_pull_left_is_removed(
    repository: FakeApi, cache: Path, name: str
) -> None:
    repository.breaks = [1 << 20, 1 << 20, 10, 0, 0, 0]
    with pytest.raises(HubError):
        pull("hf:org/m")
    assert len(files(cache)) == 3  # the first file, the beginning of the second, and its note
    removal(name).carry_out()
    assert files(cache) == []


def test_nothing_is_removed_while_a_pull_runs(entry: Entry, repository: FakeApi, cache: Path) -> None:
    del repository
    (cache / "x").mkdir(parents=True)
    (cache / entry.file).write_bytes(b"x")
    with locked(entry, Recorder()), pytest.raises(CacheError, match="a pull of tiny is running"):
        removal(entry.name).carry_out()
    assert files(cache) == [entry.file]


@pytest.mark.usefixtures("entry")
def test_a_name_goes_before_a_file_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").write_bytes(b"mine")
    with pytest.raises(HubError, match="tiny is not in the cache"):
        removal("tiny")


def test_files_of_others_are_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "my.gguf"
    path.write_bytes(b"mine")
    snapshot = tmp_path / "hf" / "models--org--m" / "snapshots" / "a"
    snapshot.mkdir(parents=True)
    shutil.copy(path, snapshot / "m-Q8_0.gguf")
    assert [model.name for model in models_here()] == ["hf:org/m:Q8_0"]
    for name, words in {
        str(path): "is a path",
        str(tmp_path): "is a path",
        "ollama:m": "another program",
        "llama.cpp:m": "another program",
        "hf:org/m:Q8_0": "not in our cache but in Hugging Face's own",
        "hf:../m": "names no repository",
    }.items():
        with pytest.raises((UsageError, HubError), match=words):
            removal(name)
    for name in ("none-such", "", "x" * 5000, "a\0b"):
        with pytest.raises(UnknownModel):
            removal(name)
    assert path.read_bytes() == b"mine"
