"""A GGUF file: its metadata, and the bytes of its tensors."""

from __future__ import annotations

import contextlib
import mmap
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pilotfish.engines.native.header import Header, TensorInfo, Value
from pilotfish.errors import FormatError, ModelError, UsageError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Container", "TensorInfo", "Value"]

_AHEAD = 64 << 20
"""Bytes that the system is asked to read before they are needed."""


class Container:
    """A memory-mapped GGUF file; a context manager.

    Attributes
    ----------
    path
        The file.
    size_bytes
        Its size.
    metadata
        Key to number, bool, str or (nested) list. In lists, which hold the vocabulary, bytes that are not
        UTF-8 stand as surrogate escapes, so `.encode("utf-8", "surrogateescape")` gives the bytes in the
        file; in a single string they are replaced by U+FFFD.
    tensors
        Name to `TensorInfo`, in file order.
    """

    def __init__(self, path: Path, mapped: mmap.mmap) -> None:
        """Use `Container.open`."""
        self.path = path
        self.size_bytes = len(mapped)
        self._mapped: mmap.mmap | None = mapped
        self._asked_from = self._asked_to = 0  # bytes of the file that the system was last asked to read
        header = Header(path, mapped)
        self.metadata = header.metadata
        self.tensors = header.tensors

    @classmethod
    def open(cls, path: str | Path) -> Container:
        """Map a file and read its header.

        Raises
        ------
        ModelError
            No such file, a directory, or unreadable.
        FormatError
            Not GGUF, truncated, or inconsistent; names the value and its offset.
        UnsupportedError
            A tensor type that is not known, or one shard of a split model.
        """
        path = Path(path)
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
            raise ModelError(
                f"no such file: {path}", "check the path; `pilotfish models` lists names"
            ) from None
        except (OSError, ValueError) as error:
            raise ModelError(f"can't read {path}: {error}", "check the file's permissions") from error
        try:
            return cls(path, mapped)
        except BaseException:
            mapped.close()
            raise

    def data(self, name: str) -> memoryview:
        """Return the bytes of a tensor: a read-only view of the mapped file, shape (nbytes,)."""
        if self._mapped is None:
            raise UsageError(f"{self.path} is closed", "read tensors before `close`")
        info = self.tensors[name]
        return memoryview(self._mapped)[info.offset : info.offset + info.nbytes]

    def read_ahead(self, name: str | None = None, begin: int = 0) -> None:
        """Ask the system to read the file on from byte `begin` of a tensor (default: of the file).

        Otherwise pages that aren't in memory would be read one by one, each when it is touched.
        """
        if self._mapped is None or not hasattr(mmap, "MADV_WILLNEED"):
            return
        start = begin if name is None else self.tensors[name].offset + begin
        end = min(start + _AHEAD, self.size_bytes)
        if self._asked_from <= start <= self._asked_to:
            if self._asked_to >= min(start + _AHEAD // 2, end):
                return  # enough is on its way
            start = self._asked_to
        else:
            self._asked_from = start
        self._asked_to = end
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        self._mapped.madvise(mmap.MADV_WILLNEED, start, end - start)

    def release(self, name: str, begin: int = 0, end: int | None = None) -> None:
        """Tell the system that bytes of a tensor won't be read again soon; reading them stays possible."""
        if self._mapped is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        info = self.tensors[name]
        first = -(-(info.offset + begin) // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (info.offset + (info.nbytes if end is None else end)) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            self._mapped.madvise(mmap.MADV_DONTNEED, first, last - first)

    def close(self) -> None:
        """Give the mapping up; views handed out stay valid, and the last of them to go unmaps the file."""
        if self._mapped is not None:
            with contextlib.suppress(BufferError):
                self._mapped.close()
            self._mapped = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
