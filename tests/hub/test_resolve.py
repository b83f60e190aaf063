"""What a user may call a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pilotfish.errors import HubError, OfflineError, UnknownModel, UsageError
from pilotfish.hub import Entry, ModelRef, resolve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cached(entry: Entry, cache: Path, content: bytes) -> Path:
    cache.mkdir()
    (cache / entry.file).write_bytes(content)
    return cache / entry.file


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "my.model.gguf").write_bytes(b"x")
    path = tmp_path / "my.model.gguf"
    assert resolve(str(path)) == ModelRef(path, "my.model", None)


def test_any_file_of_a_split_model_is_the_model_and_its_name_has_no_number(tmp_path: Path) -> None:
    first, second = (tmp_path / f"my-0000{n}-of-00002.gguf" for n in (1, 2))
    second.write_bytes(b"x")
    assert resolve(str(second)) == ModelRef(second, "my-00002-of-00002", None)
    first.write_bytes(b"x")
    assert resolve(str(first)) == resolve(str(second)) == ModelRef(first, "my", None)


def test_a_cached_name_is_its_file(entry: Entry, cached: Path) -> None:
    assert resolve("tiny") == ModelRef(cached, "tiny", entry)


def test_the_path_of_a_cached_file_is_known_by_its_name(entry: Entry, cached: Path, tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to(cached)
    assert resolve(str(cached)) == ModelRef(cached, "tiny", entry)
    assert resolve(str(tmp_path / "link.gguf")).entry == entry


def test_a_file_goes_before_a_name_but_a_folder_does_not(
    entry: Entry, cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert resolve("tiny").path == cached
    (tmp_path / "tiny").rmdir()
    (tmp_path / "tiny").write_bytes(b"x")
    assert resolve("tiny").entry is None
    assert entry.name == "tiny"


@pytest.mark.parametrize("offline", [False, True])
def test_a_name_not_in_the_cache_says_what_to_type(entry: Entry, offline: bool) -> None:
    with pytest.raises(OfflineError if offline else HubError, match="pilotfish pull tiny"):
        resolve(entry.name, offline=offline)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ("", UsageError, "empty"),
        ("/none/such.gguf", HubError, "no file /none/such.gguf"),
        ("~nobody-here/such.gguf", HubError, "no file ~nobody-here"),
        ("such.gguf", HubError, "no file such.gguf"),
        ("/", UsageError, "folder"),
        ("hf:org/repo:Q4_K_M", HubError, "hf:org/repo:Q4_K_M"),
        ("smollm", UnknownModel, "did you mean smollm2-135m"),
        ("x" * 5000 + ".gguf", HubError, "no file xxx"),
        ("x" * 5000, UnknownModel, "no model is named"),
        ("a\0b", UnknownModel, "no model is named"),
    ],
)
def test_anything_else_is_one_clear_line(model: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve(model)
