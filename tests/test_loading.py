"""From names to models: what is refused before anything large is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import pilotfish
from pilotfish import hub
from pilotfish.drafting import Wish
from pilotfish.engines import native
from pilotfish.engines.native.container import Container
from pilotfish.engines.native.slim import Slim
from pilotfish.errors import FormatError, HubError, OutOfMemory, UsageError, VocabularyMismatch
from pilotfish.loading import TOKENIZER_BYTES, Plan, load_models, memory_bytes
from pilotfish.serving.reserves import reserves
from tiny import VOCAB_SIZE, metadata, tiny_engine, write_header

if TYPE_CHECKING:
    from pathlib import Path


class FakeNative:
    """Stands in for the native engine: remembers what was loaded, computes by script."""

    loaded: tuple[dict[str, Any], ...] = ()

    @classmethod
    def load(cls, file: Container, *, progress: Any = None, **options: Any) -> Any:
        """Stand in for `NativeEngine.load`."""
        cls.loaded = (*cls.loaded, {"path": file.path, **options})
        if progress is not None:
            progress(1.0)
        engine: Any = tiny_engine(context=options["context"])
        engine.isa, engine.threads, engine.disposed = "fake", options["threads"] or 2, False
        engine.dispose = lambda: setattr(engine, "disposed", True)
        return engine


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeNative]:
    monkeypatch.setattr(native, "NativeEngine", FakeNative, raising=False)
    monkeypatch.setattr(FakeNative, "loaded", ())
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    return FakeNative


def test_the_context_is_the_models_at_most_8192(tmp_path: Path, fake: type[FakeNative]) -> None:
    with pilotfish.load(write_header(tmp_path)) as llm:
        assert llm.context == 8192
    assert pilotfish.load(write_header(tmp_path, llama__context_length=99)).context == 99
    assert pilotfish.load(write_header(tmp_path), context=20_000, threads=3).context == 20_000
    assert [(done["context"], done["threads"]) for done in fake.loaded] == [
        (8192, None), (99, None), (20_000, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"context": 0}, "context is 0"),
        ({"context": 20_001}, "context is 20001.*from 1 to 20000"),
        ({"threads": 0}, "threads is 0"),
        ({"draft": []}, "draft is"),
        ({"draft_slim": "on"}, "draft_slim is 'on'.*auto or off"),
    ],
)
def test_options_are_checked_before_loading(
    tmp_path: Path, fake: type[FakeNative], options: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        pilotfish.load(write_header(tmp_path), **options)
    assert fake.loaded == ()


def test_what_does_not_fit_into_memory_is_refused_with_both_numbers(
    tmp_path: Path, fake: type[FakeNative], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Target, draft model and the caches of both count."""
    target, draft = write_header(tmp_path), write_header(tmp_path, "draft.gguf")
    need = need_of(target)
    both = 2 * need - TOKENIZER_BYTES * VOCAB_SIZE  # there is one tokenizer
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: both - 1_000_000)
    said = f"target .* 8192 with draft .* 8192 needs {both / 1e6:.0f} MB .* {both / 1e6 - 1:.0f} MB are free"
    with pytest.raises(OutOfMemory, match=said):
        pilotfish.load(target, draft=draft)
    assert fake.loaded == ()
    pilotfish.load(target)


def test_what_a_server_will_reserve_counts_and_the_hint_is_to_let_fewer_run(
    tmp_path: Path, fake: type[FakeNative], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library, which reserves nothing, and a server of fewer find room where one of many does not."""
    path = write_header(tmp_path)
    wishes, few, many = [Wish()], reserves(2), reserves(64)
    plans = [Plan.make(hub.resolve(path), None, reserve=reserve) for reserve in (few[0], many[0])]
    for plan in plans:
        plan.file.close()
    assert need_of(path) < memory_bytes(plans[0]) < memory_bytes(plans[1])
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: memory_bytes(plans[0]))
    with pytest.raises(OutOfMemory) as refused:
        load_models(path, wishes, reserves=many)
    assert refused.value.hint.startswith("let fewer answers be made at once (--running) and hold a shorter")
    assert fake.loaded == ()
    load_models(path, wishes, reserves=few)
    load_models(path, wishes)


def test_a_server_of_few_is_told_the_context_that_fits(
    tmp_path: Path, fake: type[FakeNative], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as that is more than is reserved: fewer answers would not help."""
    path = write_header(tmp_path)
    few = reserves(1)
    plan = Plan.make(hub.resolve(path), 4096, reserve=few[0])
    plan.file.close()
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: memory_bytes(plan))
    with pytest.raises(OutOfMemory) as refused:
        load_models(path, [Wish()], 8192, reserves=few)
    assert fake.loaded == ()
    words = refused.value.hint.removeprefix("a context of ").split()
    assert few[0].tokens <= int(words[0]) < 8192
    assert words[1].startswith("fits")
    load_models(path, [Wish()], int(words[0]), reserves=few)


def need_of(path: str, context: int | None = None) -> int:
    plan = Plan.make(hub.resolve(path), context)
    plan.file.close()
    return memory_bytes(plan)


def test_the_memory_of_a_full_context_follows_from_the_header(tmp_path: Path) -> None:
    """Keys and values, layers, heads times their size, two bytes each; whole pages of 64 tokens."""

    def kv_bytes(**changes: Any) -> int:
        plan = Plan.make(hub.resolve(write_header(tmp_path, **changes)), 65)
        plan.file.close()
        return plan.footprint.kv

    assert kv_bytes() == 128 * 2 * 2 * (2 * 8) * 2
    longer = {"llama__attention__key_length": 16, "llama__attention__value_length": 16}
    assert kv_bytes(**longer) == 128 * 2 * 2 * (2 * 16) * 2


def test_a_context_that_would_fit_is_named_and_fits(
    tmp_path: Path, fake: type[FakeNative], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_header(tmp_path, llama__block_count=32)  # so that most of the need is the cache's
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: need_of(path, 5000))
    with pytest.raises(OutOfMemory) as refused:
        pilotfish.load(path)
    fits = re.match(r"a context of (\d+) fits; or take a smaller model", refused.value.hint)
    assert fits is not None
    assert 4000 < int(fits[1]) <= 5000
    assert pilotfish.load(path, context=int(fits[1])).context == int(fits[1])
    assert len(fake.loaded) == 1


def test_a_model_that_fits_with_no_context_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: 1000)
    with pytest.raises(OutOfMemory) as refused:
        pilotfish.load(write_header(tmp_path))
    assert refused.value.hint.startswith("take a smaller model")


@pytest.mark.parametrize("value", [0, "many", 1.5])
def test_a_size_that_is_none_is_named(tmp_path: Path, value: Any) -> None:
    with pytest.raises(FormatError, match=r"llama\.block_count is"):
        pilotfish.load(write_header(tmp_path, llama__block_count=value))


def test_a_draft_with_another_vocabulary_is_refused_naming_the_first_difference(
    tmp_path: Path, fake: type[FakeNative]
) -> None:
    tokens = metadata()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    draft = write_header(
        tmp_path, "draft.gguf", tokenizer__ggml__tokens=[*tokens[:256], "<|other|>", *tokens[257:]]
    )
    with pytest.raises(VocabularyMismatch, match=r"at id 256.*<\|other\|>"):
        pilotfish.load(write_header(tmp_path), draft=draft)
    assert fake.loaded == ()


def test_a_target_that_drafts_for_itself_is_loaded_once(tmp_path: Path, fake: type[FakeNative]) -> None:
    path = write_header(tmp_path)
    llm = pilotfish.load(path, draft=path)
    assert len(fake.loaded) == 1
    assert llm.generate("once", max_tokens=20, draft_length=3).stats.acceptance == 1.0
    llm.close()
    assert llm.target.engine.disposed  # type: ignore[attr-defined]


@pytest.fixture
def slim(monkeypatch: pytest.MonkeyPatch) -> Slim:
    """What every draft model is worth slimming to."""
    found = Slim({}, frozenset({1}))
    monkeypatch.setattr("pilotfish.loading.slim_for", lambda _tensors, _vocabulary: found)
    return found


def test_a_draft_model_is_slimmed_and_a_target_never(
    tmp_path: Path, fake: type[FakeNative], slim: Slim
) -> None:
    target, draft = write_header(tmp_path), write_header(tmp_path, "draft.gguf")
    pilotfish.load(target, draft=draft).close()
    assert [(done["path"].name, done["slim"]) for done in fake.loaded] == [
        ("target.gguf", None), ("draft.gguf", slim),
    ]  # fmt: skip


def test_with_draft_slim_off_a_draft_model_stays_as_filed(
    tmp_path: Path, fake: type[FakeNative], slim: Slim
) -> None:
    del slim
    pilotfish.load(write_header(tmp_path), write_header(tmp_path, "d.gguf"), draft_slim="off").close()
    assert [done["slim"] for done in fake.loaded] == [None, None]


def test_a_target_that_drafts_for_itself_is_not_slimmed(
    tmp_path: Path, fake: type[FakeNative], slim: Slim
) -> None:
    del slim
    path = write_header(tmp_path)
    pilotfish.load(path, draft=path).close()
    assert [done["slim"] for done in fake.loaded] == [None]


def test_a_small_vocabulary_is_not_worth_slimming(tmp_path: Path, fake: type[FakeNative]) -> None:
    pilotfish.load(write_header(tmp_path), write_header(tmp_path, "d.gguf")).close()
    assert [done["slim"] for done in fake.loaded] == [None, None]


def test_a_failed_draft_frees_the_target(
    tmp_path: Path, fake: type[FakeNative], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[Any] = []
    load = fake.load

    def fail_second(file: Container, **options: Any) -> Any:
        if engines:
            raise FormatError("broken")
        engines.append(load(file, **options))
        return engines[0]

    monkeypatch.setattr(fake, "load", fail_second)
    with pytest.raises(FormatError, match="broken"):
        pilotfish.load(write_header(tmp_path), draft=write_header(tmp_path, "draft.gguf"))
    assert engines[0].disposed


def test_progress_is_told_by_name(tmp_path: Path) -> None:
    heard: list[tuple[str, float]] = []
    pilotfish.load(
        write_header(tmp_path),
        draft=write_header(tmp_path, "draft.gguf"),
        progress=lambda name, share: heard.append((name, share)),
    )
    assert heard == [("target", 1.0), ("draft", 1.0)]


def test_a_broken_chat_template_is_said_and_text_can_still_be_continued(tmp_path: Path) -> None:
    path = write_header(tmp_path, tokenizer__chat_template="{% for %}")
    with pytest.warns(UserWarning, match="target can't chat") as caught:
        llm = pilotfish.load(path)
    assert caught[0].filename == __file__
    assert not llm.has_template
    assert llm.generate("once", max_tokens=3).tokens


def test_a_missing_draft_model_of_the_registry_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pilotfish import hub

    entry = hub.REGISTRY[hub.DEFAULT_MODEL]
    ref = hub.ModelRef(tmp_path / "target.gguf", entry.name, entry)
    write_header(tmp_path)
    monkeypatch.setattr(hub, "resolve", lambda *_args, **_options: ref)
    said: list[str] = []
    llm = pilotfish.load(entry.name, notice=said.append)
    assert [f"pilotfish pull {entry.draft}" in line for line in said] == [True]
    assert llm.generate("once", max_tokens=30).stats.tokens > 0
    said.clear()
    pilotfish.load(entry.name, draft="suffix", notice=said.append)
    assert said == []


def test_a_model_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HubError, match="no file"):
        pilotfish.load(str(tmp_path / "none.gguf"))
    with pytest.raises(HubError, match="pilotfish pull smollm2-135m"):
        pilotfish.load(write_header(tmp_path), draft="smollm2-135m")


def test_a_draft_model_with_a_shorter_context_is_said_and_works(tmp_path: Path) -> None:
    draft = write_header(tmp_path, "draft.gguf", llama__context_length=50)
    said: list[str] = []
    llm = pilotfish.load(write_header(tmp_path), draft=draft, notice=said.append)
    assert [("draft holds 50 tokens" in line) for line in said] == [True]
    result = llm.generate("once", max_tokens=100, draft_length=4)
    assert result.tokens == llm.generate("once", max_tokens=100, speculate=False).tokens
    assert 0 < result.stats.drafted < 60
