"""What was answered a moment ago is drafted from: with the same salt only, within bounds, latest first."""

# ruff: noqa: D102 - the rules of the machine say what they do

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pilotfish.corpus.index import SEPARATOR
from pilotfish.drafters import recent as recent_module
from pilotfish.drafters.recent import DEPTH, MATCH, PART, PLACES, RecentDrafter, RecentTexts
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

texts = st.lists(st.integers(0, 2), max_size=40)


def drafted(recent: RecentTexts, tokens: list[int], salt: str = "", limit: int = 6) -> tuple[int, ...]:
    view = Sequence(tokens, Sampling(), 100, salt=salt)
    return RecentDrafter(recent).propose([view], [limit])[0].tokens


def expected(known: list[list[int]], tokens: list[int]) -> int:
    """Return by trial how many of the last tokens stand in texts, with something behind them."""
    for count in range(min(DEPTH, len(tokens)), MATCH - 1, -1):
        end = tokens[len(tokens) - count :]
        if any(end == text[at - count : at] for text in known for at in range(count, len(text))):
            return count
    return 0


@given(st.lists(texts, max_size=3), texts)
def test_the_longest_match_is_found_and_what_follows_it_is_what_stood_there(
    before: list[list[int]], text: list[int]
) -> None:
    """As far as the latest places of its last tokens are remembered; here that is all there are, or some."""
    recent = RecentTexts()
    for one in before:
        recent.add("", one)
    matched, rows = recent.find("", text, 5)
    most = expected(before, text)
    places = sum(
        one[at - MATCH : at] == text[len(text) - MATCH :] for one in before for at in range(MATCH, len(one))
    )
    assert matched == most or (0 < matched < most and places > PLACES)
    assert bool(rows) == bool(matched)
    for row in rows:
        assert len(row) == 5
        said = [token for token in row if token != SEPARATOR]
        assert said
        assert any(
            text[len(text) - matched :] + said == one[at - matched : at + len(said)]
            for one in before
            for at in range(matched, len(one))
        )


@given(st.lists(texts, max_size=4), texts)
def test_nothing_is_drafted_from_texts_with_another_salt(before: list[list[int]], text: list[int]) -> None:
    recent = RecentTexts()
    for one in before:
        recent.add("mine", one)
    assert drafted(recent, text, "yours") == ()
    assert drafted(recent, text, "") == ()


def test_the_same_request_again_is_drafted_from_its_first_answer() -> None:
    recent = RecentTexts()
    recent.add("", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    assert drafted(recent, [1, 2, 3, 4]) == (5, 6, 7, 8, 9, 10)
    assert drafted(recent, [1, 2, 3, 4], limit=2) == (5, 6)
    assert drafted(recent, [1, 2, 3]) == ()


def test_what_most_of_the_matches_say_is_drafted_and_the_latest_on_a_tie() -> None:
    recent = RecentTexts()
    for first, then in ((20, 8), (21, 7), (22, 8), (23, 9)):
        recent.add("", [first, 1, 2, 3, 4, then, then])
    assert drafted(recent, [1, 2, 3, 4])[0] == 8
    recent = RecentTexts()
    for first, then in ((20, 7), (21, 9)):
        recent.add("", [first, 1, 2, 3, 4, then, then])
    assert drafted(recent, [1, 2, 3, 4])[0] == 9


def test_a_conversation_that_goes_on_is_remembered_once_and_others_from_where_they_differ() -> None:
    recent = RecentTexts()
    system = list(range(100, 200))
    talk = [*system, *range(40)]
    recent.add("", talk)
    assert recent.tokens == 140
    recent.add("", [*talk, *range(50, 80)])
    assert recent.tokens == 170
    recent.add("", [*system, *range(300, 310)])
    assert recent.tokens == 170 + DEPTH + 10
    recent.add("", [*system, *range(300, 330)])
    assert recent.tokens == 170 + DEPTH + 30
    recent.add("", talk)
    assert recent.tokens == 170 + DEPTH + 30
    assert drafted(recent, talk)[0] == 50
    assert drafted(recent, [*system, 300, 301])[0] == 302


def test_the_least_recently_used_text_is_forgotten_first() -> None:
    recent = RecentTexts(most_tokens=24)
    for n in (1, 2, 3):
        recent.add(str(n % 2), [n * 10 + i for i in range(8)])
    assert drafted(recent, [10, 11, 12, 13], "1")[0] == 14  # used again
    recent.add("1", [40 + i for i in range(8)])
    assert recent.tokens == 24
    assert drafted(recent, [20, 21, 22, 23], "0") == ()
    assert drafted(recent, [10, 11, 12, 13], "1")[0] == 14


def test_of_a_text_that_is_too_long_the_end_is_remembered() -> None:
    recent = RecentTexts(most_tokens=20)
    recent.add("", list(range(100)))
    assert recent.tokens == 20
    assert drafted(recent, [90, 91, 92, 93])[0] == 94
    assert drafted(recent, [70, 71, 72, 73]) == ()


@given(texts, st.lists(st.integers(0, 40), max_size=4))
def test_a_conversation_is_remembered_as_if_it_had_come_as_a_whole(text: list[int], cuts: list[int]) -> None:
    bit_by_bit, whole = RecentTexts(), RecentTexts()
    for cut in [*sorted(cuts), len(text)]:
        bit_by_bit.add("", text[:cut])
    whole.add("", text)
    assert bit_by_bit.tokens == whole.tokens
    for at in range(len(text)):
        assert bit_by_bit.find("", text[:at], 5) == whole.find("", text[:at], 5)


def test_a_long_text_is_made_findable_in_parts() -> None:
    """No call does more than one part; and the end of a conversation that went on comes behind the rest."""
    recent, places = RecentTexts(), [0]
    text = list(range(5 * PART))

    def done() -> int:
        places.append(sum(len(shelf.places) for shelf in recent._shelves.values()))
        return places[-1] - places[-2]

    recent.add("", text)
    assert done() == PART
    assert drafted(recent, text[:PART])[:1] == (PART,)
    assert drafted(recent, text[-10:-5]) == ()
    recent.add("", [*text, 7, 8, 9])
    while work := done():
        assert work <= PART
        recent.advance()
    assert places[-1] == len(text) + 3 - MATCH
    assert drafted(recent, text[-5:]) == (7, 8, 9)
    recent.add("", list(range(10**6, 10**6 + 5 * PART)))
    recent.clear()
    recent.advance()
    assert recent.tokens == 0


def test_a_conversation_that_goes_on_twice_before_it_can_be_found_is_found_once() -> None:
    recent = RecentTexts()
    text = list(range(3 * PART))
    for more in ([], [7, 8, 9, 10, 11], [12, 13, 14, 15]):
        text = [*text, *more]
        recent.add("", text)
    for _ in range(4):
        recent.advance()
    places = [place for shelf in recent._shelves.values() for kept in shelf.places.values() for place in kept]
    assert len(places) == len(set(places)) == len(text) - MATCH


def test_a_long_text_is_forgotten_in_parts() -> None:
    """It isn't found any more at once, and no call takes more than a part of it out."""
    recent = RecentTexts(most_tokens=12 * PART)
    old, new = list(range(3 * PART)), list(range(10**6, 10**6 + 10 * PART))
    recent.add("", old)
    while recent.advance():
        pass
    assert drafted(recent, old[-10:-5]) == tuple(old[-5:])
    places = recent._shelves[""].places

    def left() -> int:
        return sum(text.tokens[0] == 0 for kept in places.values() for text, _ in kept)

    before = left()
    assert before == 3 * PART - MATCH
    recent.add("", new)
    assert recent.tokens == 10 * PART
    while before:
        assert all(drafted(recent, old[at : at + 8]) == () for at in range(0, len(old), 16))
        assert before - PART <= left() < before
        before = left()
        recent.advance()
    assert recent.leaving == 0
    while recent.advance():
        pass
    assert len(places) == 10 * PART - MATCH


def test_what_is_being_forgotten_takes_no_place_of_what_is_remembered() -> None:
    """Of the same tokens `PLACES` places are remembered, and those in forgotten texts do not count."""
    recent = RecentTexts(most_tokens=20 * PART)
    old = [1, 2, 3, 4, 5, 6] * (PLACES - 1) + list(range(100, 100 + 4 * PART))
    for text in ([1, 2, 3, 4, 7, 7], old):
        recent.add("", text)
        while recent.advance():
            pass
    assert recent.find("", [1, 2, 3, 4, 7], 1) == (5, [[7]])  # used again
    recent.add("", [9, 1, 2, 3, 4, 8, *range(10**6, 10**6 + 17 * PART)])
    assert recent.leaving > PART
    assert recent.find("", [1, 2, 3, 4], 1) == (4, [[8], [7]])


class AtOnce(RecentTexts):
    """Takes out at once what is forgotten."""

    def _forget(self, text: recent_module._Text) -> None:
        super()._forget(text)
        self._take_out(10**6)
        assert self.leaving == 0


class Remembered(RuleBasedStateMachine):
    """Texts are added and looked up in any order, while others are forgotten, at once or in parts."""

    def __init__(self) -> None:
        super().__init__()
        recent_module.PART = 10
        self.recent, self.twin = RecentTexts(most_tokens=60), AtOnce(most_tokens=60)

    @rule(text=texts, salt=st.sampled_from(["a", "b"]))
    def add(self, text: list[int], salt: str) -> None:
        for recent in (self.recent, self.twin):
            recent.add(salt, text)

    @rule()
    def advance(self) -> None:
        self.recent.advance()
        self.twin.advance()

    @rule()
    def advance_to_the_end(self) -> None:
        for recent in (self.recent, self.twin):
            while recent.advance():
                pass
            assert recent.leaving == 0
            for shelf in recent._shelves.values():
                places = [place for kept in shelf.places.values() for place in kept]
                assert {text for text, _ in places} <= shelf.texts
                assert all(text.ready == len(text.tokens) for text in shelf.texts)
                assert len(places) == len(set(places))

    @rule(text=texts, salt=st.sampled_from(["a", "b", "c"]))
    def find(self, text: list[int], salt: str) -> None:
        matched, rows = self.recent.find(salt, text, 3)
        assert bool(matched) == bool(rows)
        assert (matched, rows) == self.twin.find(salt, text, 3)

    @invariant()
    def the_index_has_places_of_remembered_texts_and_a_few_that_leave(self) -> None:
        shelves = self.recent._shelves
        remembered = [text for shelf in shelves.values() for text in shelf.texts]
        leaving = self.recent._gone
        assert set(remembered) == set(self.recent._texts)
        assert sum(len(text.tokens) for text in remembered) == self.recent.tokens <= 60
        assert sum(len(text.tokens) for text in leaving) == self.recent.leaving <= 60 // 4
        for salt, shelf in shelves.items():
            assert shelf.texts or any(text.salt == salt for text in leaving)
            for places in shelf.places.values():
                assert 0 < len(places) <= PLACES
                for text, at in places:
                    assert text in (shelf.texts if text in self.recent._texts else leaving)
                    assert text.salt == salt
                    assert MATCH <= at < text.ready

    def teardown(self) -> None:
        recent_module.PART = PART
        self.recent.clear()
        assert (self.recent.tokens, self.recent.leaving, self.recent._shelves) == (0, 0, {})
        assert not self.recent.advance()


TestRemembered = Remembered.TestCase
TestRemembered.settings = settings(max_examples=40, stateful_step_count=25)


def test_its_memory_and_work_are_bounded_whatever_is_added() -> None:
    """Tokens that repeat for ever, and texts by the thousand."""
    recent, draw = RecentTexts(most_tokens=3000), random.Random(1)  # noqa: S311 - no secret
    for _ in range(300):
        recent.add("", [7] * draw.randint(1, 4000))
        recent.add(str(draw.randint(0, 50)), [draw.randint(0, 9) for _ in range(draw.randint(1, 60))])
        assert recent.tokens <= 3000
        assert recent.leaving <= 750
        assert sum(len(shelf.places) for shelf in recent._shelves.values()) <= 3750
