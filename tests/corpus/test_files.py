"""Which files are taken for text, and where it is too much."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pilotfish.corpus import files
from pilotfish.corpus.files import list_files, read_texts
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def texts(folder: Path) -> list[str]:
    return read_texts(folder, list_files(folder))


def test_texts_are_found_in_folders_below_in_the_order_of_their_paths(folder: Path) -> None:
    assert texts(folder) == ["the cat sat on the mat", "def cat(): return 'sat'"]
    (folder / "A").mkdir()
    (folder / "A" / "z").write_text("first")
    assert texts(folder)[0] == "first"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("image.png", b"\x89PNG\r\n\x1a\n\0\0"),
        ("latin.txt", "café".encode("latin-1")),
        ("wide.txt", "text".encode("utf-16")),
        ("empty.txt", b""),
        (".hidden", b"secret"),
        (".git/config", b"secret"),
        ("below/.env", b"secret"),
    ],
)
def test_what_is_hidden_or_no_text_is_passed_over(folder: Path, name: str, content: bytes) -> None:
    before = texts(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    assert texts(folder) == before


def test_a_file_that_is_too_large_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILE_BYTES", 22)
    assert texts(folder) == ["the cat sat on the mat"]


def test_a_file_that_has_grown_since_or_is_gone_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_FILE_BYTES", 23)
    listed = list_files(folder)
    (folder / "a.txt").write_text("x" * 24)
    (folder / "below" / "b.py").unlink()
    assert read_texts(folder, listed) == []


def test_links_and_pipes_are_not_followed(folder: Path, tmp_path: Path) -> None:
    """A link could lead out of the folder, or around; to open a pipe would wait for ever."""
    (tmp_path / "outside.txt").write_text("outside")
    (folder / "link").symlink_to(tmp_path / "outside.txt")
    (folder / "around").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    assert [file.path for file in list_files(folder)] == ["a.txt", os.path.join("below", "b.py")]  # noqa: PTH118


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_FILES"])
def test_too_much_is_an_error_that_says_so(folder: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, limit, 1)
    with pytest.raises(UsageError, match=r"has more than .* \(name a smaller folder\)"):
        texts(folder)


def test_what_can_t_be_walked_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere can't be read"):
        list_files(tmp_path / "nowhere")
