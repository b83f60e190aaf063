"""`draft_corpus`: from the option to tokens that were drafted from a folder."""

from __future__ import annotations

import dataclasses
import itertools
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import pilotfish
from cli_calls import call
from pilotfish.corpus.store import open_index
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines import native
from pilotfish.errors import CacheError, UsageError
from pilotfish.llm import LLM
from test_loading import FakeNative
from tiny import says, tiny_draft, tiny_model, write_header

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "def cat(): return 'sat'"


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeNative]:
    monkeypatch.setattr(native, "NativeEngine", FakeNative, raising=False)
    monkeypatch.setattr(FakeNative, "loaded", ())
    return FakeNative


def drafted_by(draft: str, folder: Path | None, length: Any = "auto") -> list[str | None]:
    """Return what drafted the tokens of an answer that stands in a file of the folder."""
    target = tiny_model(says({"hi": TEXT}))
    index = None if folder is None else open_index(folder, target.tokenizer)
    llm = LLM(target, Drafting(Wish.read(draft), tiny_draft() if draft == "model" else None, index))
    events = list(llm.stream("hi", draft_length=length))
    assert "".join(event.text for event in events) == TEXT
    return [event.drafted_by for event in events]


@pytest.mark.parametrize("draft", ["auto", "suffix"])
@pytest.mark.parametrize("length", ["auto", 4])
def test_an_answer_that_stands_in_the_corpus_is_drafted_from_it(
    folder: Path, draft: str, length: Any
) -> None:
    assert drafted_by(draft, folder, length).count("corpus") > 10
    assert "corpus" not in drafted_by(draft, None, length)


def test_with_a_draft_model_the_corpus_is_asked_too(folder: Path) -> None:
    assert "corpus" in drafted_by("model", folder)
    index = open_index(folder, tiny_model().tokenizer)
    assert isinstance(Drafting(Wish(model="m"), tiny_draft(), index).choose("auto")[0], AutoDrafter)


def test_a_corpus_that_would_be_ignored_is_refused(folder: Path) -> None:
    """At a length of its own the model alone drafts."""
    with pytest.raises(UsageError, match="only the draft model drafts"):
        drafted_by("model", folder, 4)


def test_loading_indexes_the_folder_and_says_what_drafts(
    tmp_path: Path, folder: Path, fake: type[FakeNative]
) -> None:
    said: list[str] = []
    with pilotfish.load(write_header(tmp_path), draft_corpus=folder, notice=said.append) as llm:
        assert llm.drafts == ["suffix", "corpus"]
        assert llm.drafting.corpus is not None
    assert len(fake.loaded) == len(said) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"draft_corpus": "nowhere"}, "'nowhere' is no folder"),
        ({"draft_corpus": "~nobody-of-this-name/x"}, "is no folder"),
        ({"draft_corpus": ".", "draft": "off"}, "draft_corpus is given, but draft is off"),
    ],
)
def test_a_corpus_that_makes_no_sense_is_refused_before_loading(
    tmp_path: Path, fake: type[FakeNative], options: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        pilotfish.load(write_header(tmp_path), **options)
    assert fake.loaded == ()


def test_models_are_freed_if_the_corpus_can_t_be_indexed(
    tmp_path: Path, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed = []
    load = FakeNative.load

    def watched(file: Any, **options: Any) -> Any:
        engine = load(file, **options)
        engine.dispose = lambda: freed.append(file.path)
        return engine

    monkeypatch.setattr(FakeNative, "load", watched)
    cache.write_text("no folder")
    with pytest.raises(CacheError):
        pilotfish.load(write_header(tmp_path), write_header(tmp_path, "d.gguf"), draft_corpus=folder)
    assert len(freed) == 2


def test_the_option_of_run_reaches_the_answer(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PILOTFISH_DRAFT_CORPUS", raising=False)
    arguments = ("run", "-m", write_header(tmp_path), "--raw", "hi", "--json", "--max-tokens", "2")
    done = call(*arguments, "--draft-corpus", str(folder))
    assert [draft["name"] for draft in json.loads(done.out)["drafts"]] == ["suffix", "corpus"]
    assert "indexing" in done.err
    assert call(*arguments, "--draft-corpus", str(folder / "nowhere")).code == 2
    monkeypatch.setenv("PILOTFISH_DRAFT_CORPUS", str(folder))
    assert [draft["name"] for draft in call(*arguments).json["drafts"]] == ["suffix", "corpus"]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Load a target whose answer to "hi" stands in the folder; says whether it was freed."""
    freed: list[bool] = []

    def load_models(_name: str, wishes: list[Wish], *_: Any, draft_corpus: str | None, **_rest: Any) -> Any:
        target = dataclasses.replace(tiny_model(says({"hi": TEXT})), dispose=lambda: freed.append(True))
        index = None if draft_corpus is None else open_index(draft_corpus, target.tokenizer)
        return target, [Drafting(wish, corpus=index) for wish in wishes]

    monkeypatch.setattr("pilotfish.loading.load_models", load_models)
    return freed


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts"
    file.write_text('{"prompt": "hi"}')
    return str(file)


def test_verify_checks_drafts_from_the_corpus(folder: Path, prompts: str, loaded: list[bool]) -> None:
    asked = ("verify", "-m", "x", "-d", "suffix", "--raw", "--prompts", prompts, "--json")
    arguments = (*asked, "--temperatures", "0", "--draft-lengths", "4")
    alone, joined = call(*arguments), call(*arguments, "--draft-corpus", str(folder))
    assert (joined.code, joined.json["ok"]) == (0, True)
    assert [draft["name"] for draft in joined.json["drafts"]] == ["suffix", "corpus"]
    assert joined.json["totals"]["accepted"] > 10 > alone.json["totals"]["accepted"]
    assert joined.json["settings"]["draft_corpus"] == str(folder)
    assert loaded == [True, True]


def test_bench_speed_drafts_from_the_corpus_where_it_looks_things_up(
    folder: Path, prompts: str, loaded: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock ticks once whenever it is looked at: a pass over many rows costs what one over one does."""
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("pilotfish.cli.bench_speed.time", clock)
    arguments = ("bench", "-m", "x", "--modes", "suffix,auto", "--raw", "--prompts", prompts, "--json")
    alone, joined = call(*arguments).json, call(*arguments, "--draft-corpus", str(folder)).json
    assert [draft["name"] for draft in joined["drafts"]] == ["suffix", "corpus"]
    assert joined["identical"] is True
    for mode in ("suffix", "auto"):
        (one,), (other,) = ([p["modes"][mode] for p in report["prompts"]] for report in (joined, alone))
        assert one["accepted"] > other["accepted"]
    assert loaded == [True, True]
