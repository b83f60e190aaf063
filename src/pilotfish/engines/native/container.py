"""A GGUF model: its metadata, and the bytes of its tensors, in one file or split into several."""

from __future__ import annotations

import contextlib
import mmap
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pilotfish.engines.native.header import Header, TensorInfo, Value
from pilotfish.errors import FormatError, ModelError, UnsupportedError, UsageError
from pilotfish.shards import shard_of

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Container", "TensorInfo", "Value"]

_AHEAD = 64 << 20
"""Bytes that the system is asked to read before they are needed."""


@dataclass(slots=True)
class _File:
    """A mapped file, its header, and which of its bytes the system was last asked to read."""

    path: Path
    mapped: mmap.mmap
    header: Header
    asked_from: int = 0
    asked_to: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.mapped)

    def read_ahead(self, start: int) -> None:
        end = min(start + _AHEAD, self.size_bytes)
        if self.asked_from <= start <= self.asked_to:
            if self.asked_to >= min(start + _AHEAD // 2, end):
                return  # enough is on its way
            start = self.asked_to
        else:
            self.asked_from = start
        self.asked_to = end
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        self.mapped.madvise(mmap.MADV_WILLNEED, start, end - start)


class Container:
    """The memory-mapped file, or files, of a model; a context manager.

    Attributes
    ----------
    path
        The file, of several the first.
    size_bytes
        Its size, of several the sum.
    metadata
        Key to number, bool, str or (nested) list. In lists, which hold the vocabulary, bytes that are not
        UTF-8 stand as surrogate escapes, so `.encode("utf-8", "surrogateescape")` gives the bytes in the
        file; in a single string they are replaced by U+FFFD.
    tensors
        Name to `TensorInfo`, in file order; offsets are within the file that has the tensor.
    """

    def __init__(self, files: list[_File]) -> None:
        """Use `Container.open`."""
        self.path = files[0].path
        self.size_bytes = sum(file.size_bytes for file in files)
        self.metadata = files[0].header.metadata
        self.tensors: dict[str, TensorInfo] = {}
        self._files = files
        self._file_of: dict[str, int] = {}
        for index, file in enumerate(files):
            for name, info in file.header.tensors.items():
                if name in self.tensors:
                    raise FormatError(f"{file.path} has the tensor {name!r}, and so has an earlier file")
                self.tensors[name] = info
                self._file_of[name] = index

    @classmethod
    def open(cls, path: str | Path) -> Container:
        """Map a file and read its header; of a split model, those of all its files.

        Parameters
        ----------
        path
            The file; of a split model any of its files, the others are beside it.

        Raises
        ------
        ModelError
            No such file, a directory, or unreadable.
        FormatError
            Not GGUF, truncated, or inconsistent; names the value and its offset.
        UnsupportedError
            A tensor type that is not known, or a split model whose files are not named as such.
        """
        path = Path(path)
        with contextlib.ExitStack() as opened:
            files = [_mapped(path, opened)]
            count = _split(files[0], "split.count", 1)
            if count > 1:
                shard = shard_of(path.name)
                if shard is None or shard.count != count:
                    raise UnsupportedError(
                        f"{path} is one of the {count} files of a split model, and not named as such",
                        f"name the files ...-00001-of-{count:05d}.gguf and so on",
                    )
                names = [path.with_name(shard.name(number)) for number in range(1, min(count, 9_999) + 1)]
                files = [files[0] if one == path else _mapped(one, opened) for one in names]
                _check_split(files)
            container = cls(files)
            opened.pop_all()
        return container

    def data(self, name: str) -> memoryview:
        """Return the bytes of a tensor: a read-only view of the mapped file, shape (nbytes,)."""
        if not self._files:
            raise UsageError(f"{self.path} is closed", "read tensors before `close`")
        info = self.tensors[name]
        return memoryview(self._files[self._file_of[name]].mapped)[info.offset : info.offset + info.nbytes]

    def read_ahead(self, name: str | None = None, begin: int = 0) -> None:
        """Ask the system to read the file on from byte `begin` of a tensor (default: of the first file).

        Otherwise pages that aren't in memory would be read one by one, each when it is touched.
        """
        if not self._files or not hasattr(mmap, "MADV_WILLNEED"):
            return
        if name is None:
            self._files[0].read_ahead(begin)
        else:
            self._files[self._file_of[name]].read_ahead(self.tensors[name].offset + begin)

    def release(self, name: str, begin: int = 0, end: int | None = None) -> None:
        """Tell the system that bytes of a tensor won't be read again soon; reading them stays possible."""
        if not self._files or not hasattr(mmap, "MADV_DONTNEED"):
            return
        info = self.tensors[name]
        first = -(-(info.offset + begin) // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (info.offset + (info.nbytes if end is None else end)) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            self._files[self._file_of[name]].mapped.madvise(mmap.MADV_DONTNEED, first, last - first)

    def close(self) -> None:
        """Give the mapping up; views handed out stay valid, and the last of them to go unmaps the file."""
        for file in self._files:
            with contextlib.suppress(BufferError):
                file.mapped.close()
        self._files = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _mapped(path: Path, opened: contextlib.ExitStack) -> _File:
    """Map a file and read its header; `opened` closes it unless all goes well."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise ModelError(f"{path} is {kind}", "name the .gguf file itself")
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise FormatError(f"{path} is not a GGUF file: it is empty", "fetch it again")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelError(f"no such file: {path}", "check the path; `pilotfish models` lists names") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"can't read {path}: {error}", "check the file's permissions") from error
    opened.callback(mapped.close)
    return _File(path, mapped, Header(path, mapped))


def _split(file: _File, key: str, default: int) -> int:
    value = file.header.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FormatError(f"{file.path}: {key} is {value!r}, not a number", "fetch the file again")
    return value


def _check_split(files: list[_File]) -> None:
    """Check that each file says it is the one that its name says, and that no tensor is missing."""
    for number, file in enumerate(files):
        says = _split(file, "split.no", -1) if "split.no" in file.header.metadata else "no"
        count = _split(file, "split.count", 1)
        if (says, count) != (number, len(files)):
            raise FormatError(
                f"{file.path} says it is file {says} (from 0) of {count}, not {number} of {len(files)}",
                "fetch the model's files again",
            )
    there = sum(len(file.header.tensors) for file in files)
    promised = _split(files[0], "split.tensors.count", there)
    if promised != there:
        raise FormatError(
            f"{files[0].path} promises {promised} tensors, its {len(files)} files have {there}",
            "the files are not of one model; fetch them again",
        )
