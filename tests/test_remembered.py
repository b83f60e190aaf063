"""The store of costs: other machines' and damaged entries are not used, and writers don't tear it."""

from __future__ import annotations

import json
import multiprocessing
from typing import TYPE_CHECKING

import pytest

from pilotfish.costs import Costs
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafting import Drafting, Wish
from pilotfish.llm import LLM
from pilotfish.remembered import FILE, MOST, Remembered
from tiny import tiny_draft, tiny_model

if TYPE_CHECKING:
    from pathlib import Path


def learned(seconds: float = 0.05) -> Costs:
    costs = Costs()
    for rows in (1, 2, 4):
        costs.target.learn(rows, 0, seconds * (1 + rows / 10))
    return costs


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_one_process_learned_the_next_one_knows(cache: Path) -> None:
    Remembered.of(tiny_model(), tiny_draft()).save(learned(), Beliefs())
    again = Costs()
    assert Remembered.of(tiny_model(), tiny_draft()).load(again, Beliefs())
    assert again.pass_s(3) == pytest.approx(learned().pass_s(3), rel=0.02)
    assert [path.name for path in cache.iterdir()] == [FILE]


def taught() -> Beliefs:
    beliefs = Beliefs()
    for _ in range(40):
        beliefs.usual[2].learn(0, 0.9, right=False)
        beliefs.usual[0].learn(1, None, right=False)
    return beliefs


def test_what_guesses_were_worth_is_known_too(cache: Path) -> None:
    Remembered.of(tiny_model(), tiny_draft()).save(learned(), taught())
    again = Beliefs()
    assert Remembered.of(tiny_model(), tiny_draft()).load(Costs(), again)
    for known, expected in zip(again.usual, taught().usual, strict=True):
        for certainty in (None, 0.3, 0.92):
            assert known.expected(0.0, certainty) == pytest.approx(
                expected.expected(0.0, certainty), abs=1e-3
            )
    assert json.loads((cache / FILE).read_text())


def test_costs_are_used_where_beliefs_make_no_sense(cache: Path) -> None:
    store = Remembered.of(tiny_model(), None)
    store.save(learned(), Beliefs())
    entries = json.loads((cache / FILE).read_text())
    entries[store.key]["beliefs"] = {"calibrations": [{}, {}, {"99": [1, 1, 1]}]}
    (cache / FILE).write_text(json.dumps(entries))
    beliefs = Beliefs()
    assert store.load(Costs(), beliefs)
    assert beliefs.as_dict() == Beliefs().as_dict()


def test_another_pair_has_an_entry_of_its_own(cache: Path) -> None:
    Remembered.of(tiny_model(), tiny_draft()).save(learned(), Beliefs())
    assert not Remembered.of(tiny_model(), None).load(Costs(), Beliefs())
    assert (cache / FILE).exists()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"\xff\x00", b"[" * 100_000, b'{"%s": 5}', b'{"%s": {"read": -1}}']
)
def test_a_damaged_file_is_ignored_and_replaced(cache: Path, data: bytes) -> None:
    store, costs = Remembered.of(tiny_model(), None), Costs()
    cache.mkdir()
    (cache / FILE).write_bytes(data.replace(b"%s", store.key.encode()))
    assert not store.load(costs, Beliefs())
    assert not costs.target.measured
    store.save(learned(), Beliefs())
    assert store.load(costs, Beliefs())


def test_a_folder_that_can_not_be_written_is_no_error(cache: Path) -> None:
    cache.write_text("not a folder")
    store = Remembered.of(tiny_model(), None)
    store.save(learned(), Beliefs())
    assert not store.load(Costs(), Beliefs())


def test_nothing_learned_is_not_kept(cache: Path) -> None:
    Remembered.of(tiny_model(), None).save(Costs(), Beliefs())
    assert not cache.exists()


def test_the_oldest_entries_go_first(cache: Path) -> None:
    for number in range(MOST + 3):
        Remembered(str(number), cache / FILE).save(learned(), Beliefs())
    kept = list(json.loads((cache / FILE).read_text()))
    assert kept == [str(number) for number in range(3, MOST + 3)]


def write_often(path: Path, key: str) -> None:
    for _ in range(30):
        Remembered(key, path).save(learned(), Beliefs())


def test_processes_that_write_at_once_leave_a_whole_file(cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_often, args=(cache / FILE, key)) for key in "ab"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        if (cache / FILE).exists():
            assert json.loads((cache / FILE).read_text())
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [path.name for path in cache.iterdir()] == [FILE]


def test_closing_a_model_keeps_what_was_learned(cache: Path) -> None:
    target = tiny_model()
    llm = LLM(target, Drafting(Wish(suffix=True)))
    llm.remember()
    llm.generate("hello", max_tokens=20)
    llm.close()
    assert (cache / FILE).exists()
    again = LLM(target, Drafting(Wish(suffix=True)))
    again.remember()
    assert again.drafting.costs.target.measured
