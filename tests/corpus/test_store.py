"""The index in the cache: built once, built anew whenever it can't be trusted."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.corpus import store
from pilotfish.corpus.index import Index
from pilotfish.corpus.store import open_index, tokenizer_checksum
from pilotfish.errors import CacheError, UsageError
from pilotfish.text.tokenizer import Tokenizer
from text.small_vocabulary import tokenizer as merging
from tiny import metadata

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BYTES = Tokenizer.from_metadata(metadata())


def follows(index: Index, text: str) -> str:
    """Return what follows a text in the corpus at the first of its places, 4 bytes."""
    matched, places = index.longest(list(text.encode()))
    assert matched == len(text)
    return bytes(index.following(matched, places, 4)[0]).decode()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One item for each time an index is built."""
    times: list[str] = []
    build = store._build
    monkeypatch.setattr(store, "_build", lambda *args: times.append("built") or build(*args))  # type: ignore[func-returns-value]
    return times


def only(cache: Path, name: str) -> Path:
    (found,) = cache.glob(f"corpus/*/{name}")
    return found


def test_an_index_knows_the_texts_of_its_folder(folder: Path) -> None:
    index = open_index(folder, BYTES)
    assert follows(index, "the cat") == " sat"
    assert follows(index, "def cat()") == ": re"


def test_an_index_is_built_once_and_says_so(folder: Path, built: list[str]) -> None:
    said: list[str] = []
    for _ in range(3):
        assert follows(open_index(folder, BYTES, said.append), "the cat") == " sat"
    assert built == ["built"]
    assert len(said) == 1
    assert str(folder) in said[0]


def _edit(folder: Path) -> None:
    (folder / "a.txt").write_text("the cat ate it")


def _touch(folder: Path) -> None:
    os.utime(folder / "a.txt", ns=(1, 1))


def _add(folder: Path) -> None:
    (folder / "c.txt").write_text("more")


def _remove(folder: Path) -> None:
    (folder / "below" / "b.py").unlink()


@pytest.mark.parametrize("change", [_edit, _touch, _add, _remove])
def test_a_folder_that_has_changed_is_indexed_anew(
    folder: Path, built: list[str], change: Callable[[Path], None]
) -> None:
    open_index(folder, BYTES)
    change(folder)
    open_index(folder, BYTES)
    open_index(folder, BYTES)
    assert len(built) == 2


def test_each_tokenizer_has_an_index_of_its_own(folder: Path, built: list[str]) -> None:
    other = merging()
    for _ in range(2):
        open_index(folder, BYTES)
        assert open_index(folder, other).size != open_index(folder, BYTES).size or len(built) == 2
    assert len(built) == 2


def test_tokenizers_that_cut_text_differently_have_different_checksums() -> None:
    assert tokenizer_checksum(BYTES) == tokenizer_checksum(Tokenizer.from_metadata(metadata()))
    assert tokenizer_checksum(merging()) != tokenizer_checksum(merging(merges=["h e", "l l"]))
    assert tokenizer_checksum(merging()) != tokenizer_checksum(BYTES)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _delete(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    np.save(path.with_suffix(".npy"), np.zeros(3)) if path.suffix == ".npy" else path.write_text("[]")


@pytest.mark.parametrize("name", ["tokens.npy", "suffixes.npy", "manifest.json"])
@pytest.mark.parametrize("damage", [_truncate, _flip, _empty, _delete, _replace])
def test_a_damaged_index_is_built_anew(
    folder: Path, cache: Path, built: list[str], name: str, damage: Callable[[Path], None]
) -> None:
    open_index(folder, BYTES)
    damage(only(cache, name))
    assert follows(open_index(folder, BYTES), "the cat") == " sat"
    assert len(built) == 2


@pytest.mark.parametrize(
    "foreign", ["null", "{}", '{"fingerprint": 1}', "{", "\0", "[" * 100_000, '{"fingerprint": null}']
)
def test_a_foreign_manifest_is_not_trusted(folder: Path, cache: Path, built: list[str], foreign: str) -> None:
    open_index(folder, BYTES)
    only(cache, "manifest.json").write_text(foreign)
    open_index(folder, BYTES)
    assert len(built) == 2


def test_arrays_of_another_kind_are_not_mapped_though_their_checksums_fit(
    folder: Path, cache: Path, built: list[str]
) -> None:
    open_index(folder, BYTES)
    path, manifest = only(cache, "suffixes.npy"), only(cache, "manifest.json")
    np.save(path, np.array([{"any": "object"}]), allow_pickle=True)
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**said, "suffixes": store._sha256(path)}))
    assert follows(open_index(folder, BYTES), "the cat") == " sat"
    assert len(built) == 2


def test_an_index_of_another_format_is_built_anew(
    folder: Path, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_index(folder, BYTES)
    monkeypatch.setattr(store, "FORMAT", 0)
    open_index(folder, BYTES)
    assert len(built) == 2


def test_a_build_that_is_interrupted_leaves_nothing_that_is_trusted(
    folder: Path, cache: Path, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrays of the old index are replaced, its manifest not yet."""
    open_index(folder, BYTES)
    _edit(folder)
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", _interrupted_after(1, json.dumps))
        with pytest.raises(KeyboardInterrupt):
            open_index(folder, BYTES)
    assert len(built) == 2
    assert follows(open_index(folder, BYTES), "the cat") == " ate"
    assert len(built) == 3
    assert not list(cache.rglob("*.new"))


def _interrupted_after(calls: int, function: Callable[..., str]) -> Callable[..., str]:
    left = [calls]

    def interrupted(*args: object) -> str:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return function(*args)

    return interrupted


def test_an_index_in_use_outlives_its_replacement(folder: Path) -> None:
    index = open_index(folder, BYTES)
    _edit(folder)
    assert follows(open_index(folder, BYTES), "the cat") == " ate"
    assert follows(index, "the cat") == " sat"


def test_the_arrays_are_mapped_not_read(folder: Path) -> None:
    index = open_index(folder, BYTES)
    assert isinstance(index._suffixes.obj, np.memmap)


@pytest.mark.parametrize("missing", ["nowhere", "a.txt"])
def test_what_is_no_folder_is_an_error_that_names_it(folder: Path, missing: str) -> None:
    with pytest.raises(UsageError, match=f"{missing}' is no folder"):
        open_index(folder / missing, BYTES)


def test_a_folder_without_text_is_an_error_and_leaves_no_index(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="has no text"):
        open_index(tmp_path / "none", BYTES)
    assert not list(cache.rglob("*.npy"))


def test_a_cache_that_can_t_be_written_is_an_error_that_says_how_to_mend_it(
    folder: Path, cache: Path
) -> None:
    cache.write_text("a file")
    with pytest.raises(CacheError, match="PILOTFISH_CACHE"):
        open_index(folder, BYTES)
