"""Caches of prompts that were read, for others that begin alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.engines.base import Engine

PAGE = 64
"""Tokens of a page: whole pages are shared, as the native engine keeps them."""

MOST_TOKENS = 1 << 15
"""Tokens kept by default; in a model with 28 kB a token this is 0.9 GB."""


class Page:
    """A page of some text, at its place in the tree: what stands before it is its parent's.

    `handle` is the engine's sequence that holds everything up to here, of a page that none follows; -1 of
    others, which are in the caches of those below them.
    """

    __slots__ = ("children", "depth", "handle", "parent", "tokens", "used")

    def __init__(self, parent: Page | None, tokens: tuple[int, ...]) -> None:
        self.parent = parent
        self.tokens = tokens
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[tuple[int, ...], Page] = {}
        self.handle = -1
        self.used = 0

    def up(self) -> Iterator[Page]:
        """Yield the page and those before it; the last one is a root, which has no tokens."""
        page: Page | None = self
        while page is not None:
            yield page
            page = page.parent


class PrefixCache:
    """A tree of pages over forks of sequences, bounded in tokens; the least recently used ones go first.

    What is kept is what the engine computed, page by page, so a text that is gone on with has the same bits
    as one that is read anew, on an engine whose bits don't depend on how a text was split into passes.
    Partitioned by *salt*: a text is only found with the one that it was kept with, so nobody can tell from
    the time an answer takes what others have asked.

    Parameters
    ----------
    most_tokens
        Tokens kept at most; pages that several texts have in common count once, and take memory once.
    page
        Tokens of a page.
    """

    def __init__(self, engine: Engine, most_tokens: int = MOST_TOKENS, page: int = PAGE) -> None:
        self.engine = engine
        self.most_tokens = most_tokens
        self.page = page
        self._roots: dict[str, Page] = {}
        self._ends: set[Page] = set()  # those that none follows: each has a handle
        self._pages = 0
        self._now = 0

    @property
    def tokens(self) -> int:
        """Tokens kept."""
        return self._pages * self.page

    def start(self, salt: str, tokens: Sequence[int]) -> tuple[int, Page | None]:
        """Return a handle that holds the longest known beginning of a text, but for its last token.

        Returns
        -------
            The handle, which is the caller's own, and the place to pass to `keep`; -1 and None if nothing is
            known.
        """
        page = self._walk(salt, tokens[: len(tokens) - 1])
        if page is None or not page.depth:
            return -1, None
        end = page
        while end.handle < 0:
            end = next(iter(end.children.values()))
        handle = self.engine.fork(end.handle)
        self.engine.truncate(handle, page.depth * self.page)
        return handle, page

    def keep(self, salt: str, tokens: Sequence[int], handle: int, place: Page | None) -> Page | None:
        """Keep the whole pages of a text that a handle holds; the handle stays the caller's.

        Parameters
        ----------
        tokens
            All that the handle holds.
        place
            What `start`, or an earlier `keep`, returned for this handle: pages up to there are shared with
            it. Where another sequence has kept the same text meanwhile, nothing more is kept: its pages are
            others, and would be held twice.

        Returns
        -------
            The place for the next `keep`.
        """
        count = min(len(tokens), self.most_tokens) // self.page
        found = self._walk(salt, tokens[: count * self.page])
        depth = 0 if found is None else found.depth
        if depth == count or (depth and not _is_within(found, place)):
            return place
        self.shrink(self.most_tokens - (count - depth) * self.page)
        if found is None or not depth:  # a root that lost its last page is gone
            found = self._roots.setdefault(salt, Page(None, ()))
        if found.handle >= 0:
            self._ends.remove(found)
            self.engine.close(found.handle)
            found.handle = -1
        for i in range(depth, count):
            child = Page(found, tuple(tokens[i * self.page : (i + 1) * self.page]))
            found.children[child.tokens] = child
            child.used = self._now
            found = child
        self._pages += count - depth
        found.handle = self.engine.fork(handle)
        self.engine.truncate(found.handle, count * self.page)
        self._ends.add(found)
        return found

    def within(self, place: Page | None, count: int) -> Page | None:
        """Return the place of a handle that shares the first `count` tokens with one at `place`."""
        while place is not None and place.depth * self.page > count:
            place = place.parent
        return place

    def shrink(self, most_tokens: int) -> None:
        """Drop what was used least recently until no more than so many tokens are kept."""
        while self.tokens > max(most_tokens, 0):
            self._trim(min(self._ends, key=lambda page: page.used), most_tokens)

    def clear(self) -> None:
        """Drop everything."""
        self.shrink(0)

    def _walk(self, salt: str, tokens: Sequence[int]) -> Page | None:
        """Return the last page that a text has in common with what is kept, and count them all as used."""
        page = self._roots.get(salt)
        if page is None:
            return None
        for begin in range(0, len(tokens) - self.page + 1, self.page):
            child = page.children.get(tuple(tokens[begin : begin + self.page]))
            if child is None:
                break
            page = child
        self._now += 1
        for one in page.up():
            one.used = self._now
        return page

    def _trim(self, end: Page, most_tokens: int) -> None:
        """Drop the last pages of one text, up to one that others need or that was used later."""
        page, handle = end, end.handle
        self._ends.remove(end)
        while (parent := page.parent) is not None:
            del parent.children[page.tokens]
            self._pages -= 1
            page = parent
            if page.children or page.used > end.used or self.tokens <= most_tokens:
                break
        end.handle = -1
        if page.depth and not page.children:
            self.engine.truncate(handle, page.depth * self.page)
            page.handle = handle
            self._ends.add(page)
            return
        self.engine.close(handle)
        if not page.depth and not page.children:
            self._roots = {salt: root for salt, root in self._roots.items() if root is not page}


def _is_within(page: Page | None, place: Page | None) -> bool:
    """Whether a place is a page, or somewhere below it."""
    return place is not None and any(one is page for one in place.up())
