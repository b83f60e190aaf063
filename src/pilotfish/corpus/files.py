"""Which files of a folder are text worth indexing.

Hidden files and folders, links and what is not a plain file are passed over; so are files that are too large,
or that turn out not to be UTF-8 or to hold a NUL, as binary files do.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MOST_FILE_BYTES = 1 << 20
"""A larger file is data, or made by a program."""

MOST_BYTES = 32 << 20
"""Text of a whole folder: about 10 million tokens, whose index takes half a GB to build."""

MOST_FILES = 50_000


class File(NamedTuple):
    """A file that may be text: path below the folder, size in bytes, time of the last change in ns."""

    path: str
    size: int
    changed_ns: int


def list_files(folder: Path) -> list[File]:
    """Return the files of a folder and those below, sorted by path; none is opened.

    Raises
    ------
    UsageError
        Not a folder that can be read, or one with too many files.
    """
    found: list[File] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = None if name.startswith(".") else _examine(os.path.join(parent, name), folder)  # noqa: PTH118 - Path is 10 times slower
            if file is not None:
                found.append(file)
        if len(found) > MOST_FILES:
            raise UsageError(
                f"the corpus {folder} has more than {MOST_FILES:,} files", "name a smaller folder"
            )
    return sorted(found)


def read_texts(folder: Path, files: list[File]) -> list[str]:
    """Return the text of those files that are text.

    Raises
    ------
    UsageError
        More text than an index holds.
    """
    texts: list[str] = []
    total = 0
    for file in files:
        text = _read(folder / file.path)
        if text:
            texts.append(text)
            total += file.size
        if total > MOST_BYTES:
            raise UsageError(
                f"the corpus {folder} has more than {MOST_BYTES >> 20} MiB of text", "name a smaller folder"
            )
    return texts


def _refuse(error: OSError) -> None:
    raise UsageError(f"the corpus {error.filename} can't be read: {error.strerror}", "name a folder of text")


def _examine(path: str, folder: Path) -> File | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MOST_FILE_BYTES:
        return None
    return File(os.path.relpath(path, folder), status.st_size, status.st_mtime_ns)


def _read(path: Path) -> str:
    """Return the file's text; empty if it is none, or is gone by now."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
        return "" if b"\0" in data or len(data) > MOST_FILE_BYTES else data.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
