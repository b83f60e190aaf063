"""Which pages of the KV cache belong to which sequence.

Pages hold 64 positions and are counted: sequences forked from each other share them until one writes. Only
numbers are kept here; the bytes are in C++ (`_kernels.Pages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish import memory
from pilotfish.errors import EngineError, OutOfMemory
from pilotfish.kernels import _kernels

PAGE = 64
"""Positions of a page."""


@dataclass(slots=True)
class Cached:
    """One sequence: its pages in order, and how many tokens it holds."""

    table: list[int] = field(default_factory=list)
    length: int = 0


class PageTables:
    """Sequences by handle; pages that nobody uses are used again.

    Memory is taken when pages are first needed, in slabs.

    Parameters
    ----------
    pages
        Where the bytes are.
    usual
        Pages that a full sequence needs: while there are fewer, room for no more is asked of the system.

    Attributes
    ----------
    most
        Most pages that there may be; None for as many as there is memory for.
    """

    def __init__(self, pages: _kernels.Pages, usual: int) -> None:
        self._pages = pages
        self._usual = usual
        self._sequences: dict[int, Cached] = {}
        self._users: list[int] = []
        self._free: list[int] = []
        self._next = 0
        self.most: int | None = None

    @property
    def pages_in_use(self) -> int:
        """Pages that some sequence holds."""
        return len(self._users) - len(self._free)

    @property
    def reserved(self) -> int:
        """Pages whose memory is taken."""
        return self._pages.reserved

    def reserve_pages(self, count: int) -> None:
        """Take the memory of so many pages in all now; of no more than there may be.

        Raises
        ------
        OutOfMemory
            There is none.
        """
        count = count if self.most is None else min(count, self.most)
        what, hint = (
            f"a KV cache of {count * PAGE} tokens",
            "end other programs, or let a server make fewer answers at once",
        )
        # Whole slabs are asked for: nobody looks again before one ends.
        slab = self._pages.slab_pages
        slabs = max(-(-count // slab) + -self._pages.reserved // slab, 0)
        try:
            memory.check_room(what, slabs * slab * self._pages.page_bytes, memory.free_bytes(), hint)
            self._pages.reserve(count)
        except MemoryError:
            raise OutOfMemory(f"{what} failed: the system has no memory for it", hint) from None

    def open(self) -> int:
        """Return the handle of a new, empty sequence."""
        return self._add(Cached())

    def fork(self, handle: int) -> int:
        """Return a new sequence that shares all pages of another."""
        source = self[handle]
        for page in source.table:
            self._users[page] += 1
        return self._add(Cached(list(source.table), source.length))

    def close(self, handle: int) -> None:
        """Give a sequence's pages back."""
        self.truncate(handle, 0)
        del self._sequences[handle]

    def truncate(self, handle: int, length: int) -> None:
        """Keep the first `length` tokens, and the pages they need."""
        sequence = self[handle]
        if not 0 <= length <= sequence.length:
            raise EngineError(
                f"sequence {handle} holds {sequence.length} tokens and can't be cut to {length}"
            )
        sequence.length = length
        self._keep_pages(sequence, length)

    def reserve(self, handle: int, count: int) -> Cached:
        """Make room for `count` more tokens in pages that are this sequence's own; the length stays.

        Raises
        ------
        OutOfMemory
            There is no memory for more pages; `undo_reserve` gives back what was taken.
        """
        sequence = self[handle]
        partial = sequence.length // PAGE
        if sequence.length % PAGE and self._users[sequence.table[partial]] > 1:
            shared = sequence.table[partial]
            own = self._take()
            self._pages.copy(shared, own)
            sequence.table[partial] = own
            self._users[shared] -= 1
        while len(sequence.table) * PAGE < sequence.length + count:
            sequence.table.append(self._take())
        return sequence

    def undo_reserve(self, handle: int) -> None:
        """Give back pages beyond the tokens held."""
        sequence = self[handle]
        self._keep_pages(sequence, sequence.length)

    def __getitem__(self, handle: int) -> Cached:
        try:
            return self._sequences[handle]
        except KeyError:
            raise EngineError(
                f"no open sequence {handle}", "it was closed, or belongs to another engine"
            ) from None

    def _add(self, sequence: Cached) -> int:
        self._next += 1
        self._sequences[self._next] = sequence
        return self._next

    def _keep_pages(self, sequence: Cached, length: int) -> None:
        keep = -(-length // PAGE)
        for page in sequence.table[keep:]:
            self._users[page] -= 1
            if not self._users[page]:
                self._free.append(page)
        del sequence.table[keep:]

    def _take(self) -> int:
        if self.most is not None and self.pages_in_use >= self.most:
            raise OutOfMemory(
                f"all of the {self.most} pages that the KV cache may have are in use",
                "allow more, or shorten the text",
            )
        if self._free:
            page = self._free.pop()
        else:
            page = self._allocate()
            self._users.append(0)
        self._users[page] = 1
        return page

    def _allocate(self) -> int:
        """Take a new page, after a look at whether the slab that it may begin fits.

        The system hands out memory that it does not have, and ends the process when it is used. The whole
        slab is asked for, so that its later pages come as no surprise.
        """
        held = self._pages.count
        what = f"growing the KV cache beyond {held * PAGE} tokens"
        hint = "shorten the text, or end other programs"
        try:
            if self._pages.full:
                pages = min(self._pages.slab_pages, max(self._usual - held, 1))
                memory.check_room(what, pages * self._pages.page_bytes, memory.free_bytes(), hint)
            return self._pages.allocate()
        except MemoryError:
            raise OutOfMemory(f"{what} failed: the system has no memory for it", hint) from None


def tables_of(sequences: Sequence[Cached], counts: Sequence[int]) -> list[int]:
    """Return the page tables of a pass one after another, each as long as its tokens after the pass need."""
    tables: list[int] = []
    for sequence, count in zip(sequences, counts, strict=True):
        tables.extend(sequence.table[: -(-(sequence.length + count) // PAGE)])
    return tables
