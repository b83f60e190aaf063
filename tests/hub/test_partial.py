"""A partial: only what was noted counts, and only what was checked gets the name."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING

import pytest

from pilotfish.errors import CacheError, ChecksumError
from pilotfish.hub import SilentProgress, cached_path
from pilotfish.hub.cache import make_cache_dir
from pilotfish.hub.partial import Partial

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.hub import Entry


@pytest.fixture(autouse=True)
def _folder(cache: Path) -> None:
    del cache
    make_cache_dir()


def test_bytes_after_the_last_commit_are_forgotten(entry: Entry, content: bytes) -> None:
    with Partial(entry) as partial:
        partial.append(content[:300])
        partial.commit()
        partial.append(content[300:400])
    with Partial(entry) as partial:
        assert partial.size == 300
        assert partial.path.stat().st_size == 300


@pytest.mark.parametrize(
    "note",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"sha256": "HERE"}',
        '{"sha256": "HERE", "good_bytes": -1}',
        '{"sha256": "HERE", "good_bytes": 301}',
        '{"sha256": "HERE", "good_bytes": true}',
        '{"sha256": "HERE", "good_bytes": "300"}',
        '{"sha256": "HERE", "good_bytes": 1e2}',
        '{"sha256": "of another file", "good_bytes": 300}',
        "\ufffd",
    ],
)
def test_a_note_that_makes_no_sense_starts_from_nothing(
    entry: Entry, content: bytes, cache: Path, note: str
) -> None:
    (cache / "tiny.gguf.part").write_bytes(content[:300])
    (cache / "tiny.gguf.part.json").write_text(note.replace("HERE", entry.sha256))
    with Partial(entry) as partial:
        assert partial.size == 0


def test_a_note_without_its_file_starts_from_nothing(entry: Entry, content: bytes) -> None:
    with Partial(entry) as partial:
        partial.append(content)
        partial.commit()
        partial.path.unlink()
    with Partial(entry) as partial:
        assert partial.size == 0


def test_the_final_name_never_has_other_bytes(
    entry: Entry, content: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rename to the final name is watched: at that moment the bytes are right and on the disk."""
    renames: list[tuple[str, bytes]] = []
    synced: list[int] = []
    plain_fsync = os.fsync
    plain_replace = type(cache).replace

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        plain_fsync(handle)

    def watched(path: Path, target: Path) -> Path:
        if target == cache / entry.file:
            assert path.stat().st_ino in synced
            renames.append((path.name, path.read_bytes()))
        return plain_replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(type(cache), "replace", watched)
    with Partial(entry) as partial:
        partial.append(bytes(1000))
        with pytest.raises(ChecksumError):
            partial.finish(SilentProgress())
    assert not (cache / entry.file).exists()
    assert list(cache.iterdir()) == []
    with Partial(entry) as partial:
        for start in range(0, 1000, 100):
            partial.append(content[start : start + 100])
            assert cached_path(entry.name) is None
        partial.finish(SilentProgress())
    assert renames == [("tiny.gguf.part", content)]


class _FullDisk(io.BytesIO):
    """A file on a disk that has room for 250 bytes more."""

    def __init__(self, inner: io.BufferedRandom, room: int) -> None:
        super().__init__()
        self.inner = inner
        self.room = room

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(data)
        return self.inner.write(data)

    def flush(self) -> None:
        self.inner.flush()

    def fileno(self) -> int:
        return self.inner.fileno()


def test_a_disk_that_fills_up_names_the_file_and_keeps_what_was_noted(
    entry: Entry, content: bytes, cache: Path
) -> None:
    with Partial(entry) as partial:
        partial._file = _FullDisk(partial._file, 250)  # type: ignore[arg-type]
        partial.append(content[:200])
        partial.commit()
        with pytest.raises(CacheError, match="disk is full") as error:
            partial.append(content[200:300])
        assert str(cache / "tiny.gguf.part") in error.value.message
    with Partial(entry) as partial:
        assert partial.size == 200


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_found_full_when_flushing_is_the_same(
    entry: Entry, content: bytes, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(code, os.strerror(code), handle)

    monkeypatch.setattr(os, "fsync", refuse)
    with Partial(entry) as partial:
        partial.append(content)
        with pytest.raises(CacheError, match="disk is full"):
            partial.commit()
    assert cached_path(entry.name) is None
    with Partial(entry) as partial:
        assert partial.size == 0
