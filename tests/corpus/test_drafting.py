"""`draft_corpus`: from the option to tokens that were drafted from a folder."""

from __future__ import annotations

import json
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


def test_a_model_at_a_length_of_its_own_is_alone(folder: Path) -> None:
    assert "corpus" not in drafted_by("model", folder, 4)


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
