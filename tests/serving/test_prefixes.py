"""Kept beginnings: the longest one is found, memory is bounded, the oldest go first, nothing leaks."""

# ruff: noqa: D102 - the rules of the machine say what they do

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.scripted import ScriptedEngine, uniform
from pilotfish.serving.prefixes import Page, PrefixCache

SIZE = 4
texts = st.lists(st.integers(0, 2), min_size=1, max_size=24)


def made(most: int = 1000) -> tuple[ScriptedEngine, PrefixCache]:
    engine = ScriptedEngine(uniform(4), 4)
    return engine, PrefixCache(engine, most, page=SIZE)


def read(engine: ScriptedEngine, prefixes: PrefixCache, text: list[int], salt: str = "") -> int:
    """Read a text, going on with what is kept, keep it, and return how much was found."""
    handle, place = prefixes.start(salt, text)
    if handle < 0:
        handle = engine.open()
    found = engine.length(handle)
    engine.forward([Chunk(handle, text[found:], 0)])
    prefixes.keep(salt, text, handle, place)
    engine.close(handle)
    return found


@given(st.lists(texts, max_size=8), texts)
def test_the_longest_known_beginning_is_found_in_whole_pages(
    before: list[list[int]], text: list[int]
) -> None:
    """But never the last token: its row is wanted."""
    engine, prefixes = made()
    for one in before:
        read(engine, prefixes, one)

    def common(other: list[int]) -> int:
        pages = range(0, min(len(text) - 1, len(other)) // SIZE * SIZE + 1, SIZE)
        return max(n for n in pages if text[:n] == other[:n])

    assert read(engine, prefixes, text) == max(map(common, before), default=0)


@given(st.lists(texts, max_size=8), st.integers(0, 40))
def test_what_is_kept_is_bounded_and_pages_in_common_count_once(before: list[list[int]], most: int) -> None:
    engine, prefixes = made(most)
    for one in before:
        read(engine, prefixes, one)
        assert prefixes.tokens <= most
    if most == 40 and sum(map(len, before)) <= 40:
        pages = {tuple(one[: n + SIZE]) for one in before for n in range(0, len(one) - SIZE + 1, SIZE)}
        assert prefixes.tokens == len(pages) * SIZE


def test_the_least_recently_used_end_goes_first() -> None:
    engine, prefixes = made(16)
    read(engine, prefixes, [0] * 8)
    read(engine, prefixes, [1] * 8)
    read(engine, prefixes, [0] * 8)  # used again
    read(engine, prefixes, [2] * 8)
    assert [prefixes.start("", [n] * 9)[0] >= 0 for n in range(3)] == [True, False, True]


def test_a_page_that_others_go_on_from_stays() -> None:
    engine, prefixes = made(12)
    read(engine, prefixes, [0, 0, 0, 0, 1, 1, 1, 1])
    read(engine, prefixes, [0, 0, 0, 0, 2, 2, 2, 2])
    assert prefixes.tokens == 12
    read(engine, prefixes, [0, 0, 0, 0, 3, 3, 3, 3])
    assert prefixes.tokens == 12
    handle, _ = prefixes.start("", [0, 0, 0, 0, 1, 1, 1, 1, 1])
    assert engine.length(handle) == 4
    handle, _ = prefixes.start("", [0, 0, 0, 0, 2, 2, 2, 2, 2])
    assert engine.length(handle) == 8


@given(st.lists(texts, max_size=6), texts)
def test_nothing_is_found_with_another_salt(before: list[list[int]], text: list[int]) -> None:
    engine, prefixes = made()
    for one in before:
        read(engine, prefixes, one, "mine")
    assert read(engine, prefixes, text, "yours") == 0


def test_a_text_read_twice_at_once_is_kept_once() -> None:
    """The second one's pages are others: keeping them too would take memory that is not counted."""
    engine, prefixes = made()
    handles = [engine.open(), engine.open()]
    for handle, text in zip(handles, [[1] * 8, [1] * 4 + [2] * 4], strict=True):
        engine.forward([Chunk(handle, text, 0)])
    assert prefixes.keep("", [1] * 8, handles[0], None) is not None
    assert prefixes.keep("", [1] * 4 + [2] * 4, handles[1], None) is None
    assert prefixes.tokens == 8


def test_pages_that_are_counted_are_the_ones_that_are_held(tmp_path: Path) -> None:
    """On the native engine: sharing is real, and dropping everything leaves no page."""
    engine = NativeEngine.load(write_tiny(tmp_path / "tiny.gguf", Tiny(kind="Q4_0")), threads=1, context=500)
    prefixes = PrefixCache(engine, 640)
    text = [3 + i % 5 for i in range(300)]
    for end in ([], [1] * 100, [2] * 200, [1] * 150, [4] * 70):
        whole = text[:200] + end
        handle, place = prefixes.start("", whole)
        if handle < 0:
            handle = engine.open()
        engine.forward([Chunk(handle, whole[engine.length(handle) :], 0)])
        prefixes.keep("", whole, handle, place)
        engine.close(handle)
        assert engine.pages_in_use * 64 == prefixes.tokens <= 640
    prefixes.clear()
    assert engine.pages_in_use == 0
    engine.dispose()


class Kept(RuleBasedStateMachine):
    """Several texts are read, gone on with and kept in any order, while others are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.engine, self.prefixes = made(24)
        self.open: list[tuple[int, list[int], Page | None, str]] = []

    @rule(text=texts, salt=st.sampled_from(["a", "b"]))
    def begin(self, text: list[int], salt: str) -> None:
        handle, place = self.prefixes.start(salt, text)
        if handle < 0:
            handle = self.engine.open()
        found = self.engine.length(handle)
        assert self.engine.sequences[handle] == tuple(text[:found])
        self.engine.forward([Chunk(handle, text[found:], 0)])
        self.open.append((handle, text, place, salt))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), more=texts)
    def keep(self, data: st.DataObject, more: list[int]) -> None:
        i = data.draw(st.integers(0, len(self.open) - 1))
        handle, text, place, salt = self.open[i]
        place = self.prefixes.keep(salt, text, handle, place)
        self.engine.forward([Chunk(handle, more, 0)])
        self.open[i] = handle, text + more, place, salt

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        handle, text, place, salt = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.prefixes.keep(salt, text, handle, place)
        self.engine.close(handle)

    @rule(most=st.integers(0, 24))
    def shrink(self, most: int) -> None:
        self.prefixes.shrink(most)
        assert self.prefixes.tokens <= most

    @invariant()
    def the_tree_is_whole(self) -> None:
        pages: list[Page] = []
        ends: set[Page] = set()
        for root in self.prefixes._roots.values():
            assert root.children
            below = list(root.children.values())
            while below:
                page = below.pop()
                pages.append(page)
                below += page.children.values()
                assert (page.handle >= 0) == (not page.children)
                if not page.children:
                    ends.add(page)
                    text = [token for one in reversed(list(page.up())) for token in one.tokens]
                    assert self.engine.sequences[page.handle] == tuple(text)
        assert ends == self.prefixes._ends
        assert len(pages) * SIZE == self.prefixes.tokens <= 24
        assert len(self.engine.sequences) == len(ends) + len(self.open)

    def teardown(self) -> None:
        self.prefixes.clear()
        assert not self.prefixes._roots
        assert len(self.engine.sequences) == len(self.open)


TestKept = Kept.TestCase
TestKept.settings = settings(max_examples=40, stateful_step_count=25)
