"""From names to loaded models: found, checked against the memory that is free, then read."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pilotfish import hub, memory
from pilotfish.corpus.store import check_folder, open_index
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines import native
from pilotfish.engines.native.config import Config
from pilotfish.engines.native.container import Container, Value
from pilotfish.engines.native.families import family_named
from pilotfish.engines.native.footprint import ONE_ANSWER, Footprint, footprint_of
from pilotfish.errors import TemplateError, UsageError
from pilotfish.model import Model, TextModel
from pilotfish.slimming import AUTO, OFF, slim_for
from pilotfish.text.template import ChatTemplate
from pilotfish.text.tokenizer import Tokenizer
from pilotfish.text.vocabulary import Vocabulary, check_same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pilotfish.engines.base import Reserve
    from pilotfish.engines.native.slim import Slim

M = TypeVar("M", bound=Model)

TOKENIZER_BYTES = 400
"""Bytes that a tokenizer takes for each token of its vocabulary: measured, 390 to 440."""

CONTEXT_STEP = 256
"""Contexts that are proposed are multiples of this."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A model that is about to be loaded, and the memory that it will need.

    Attributes
    ----------
    ref
        The file and its name.
    file
        The file, open, its header read.
    context
        Most tokens that a sequence will hold.
    longest
        Most tokens that the model can hold.
    footprint
        What it will take as a target; slimmed, it takes less.
    reserve
        Its largest passes, and the texts that memory is taken for at the start.
    """

    ref: hub.ModelRef
    file: Container
    context: int
    longest: int
    footprint: Footprint
    reserve: Reserve = ONE_ANSWER
    threads: int | None = None

    @classmethod
    def make(
        cls,
        ref: hub.ModelRef,
        context: int | None,
        *,
        shorter: bool = False,
        reserve: Reserve = ONE_ANSWER,
        threads: int | None = None,
    ) -> Plan:
        """Read the header of a file; `shorter` takes what the model can hold of the context.

        Raises
        ------
        UsageError
            A context that is below 1 or beyond the model's.
        ModelError
            Not a file that can be read, or a model family that is not known.
        """
        file = Container.open(ref.path)
        try:
            return cls._fitting(ref, file, context, reserve, threads, shorter=shorter)
        except BaseException:
            file.close()
            raise

    @classmethod
    def _fitting(
        cls,
        ref: hub.ModelRef,
        file: Container,
        context: int | None,
        reserve: Reserve,
        threads: int | None,
        *,
        shorter: bool,
    ) -> Plan:
        config = Config(file.metadata)
        family_named(config.architecture)  # said before a key of the family is missed
        longest = config.integer("context_length", most=1 << 30)
        if context is not None and shorter:
            context = min(context, longest)
        if context is not None and not 1 <= context <= longest:
            raise UsageError(
                f"context is {context}",
                f"{ref.name} can hold from 1 to {longest} tokens of prompt and answer",
            )
        tokens = min(longest, native.DEFAULT_CONTEXT) if context is None else context
        footprint = footprint_of(file, config, tokens, reserve=reserve, threads=threads)
        return cls(ref, file, tokens, longest, footprint, reserve, threads)

    @property
    def metadata(self) -> Mapping[str, Value]:
        """The file's header."""
        return self.file.metadata

    def reserving(self, reserve: Reserve) -> Plan:
        """Return the plan of the same model with another reserve; it is not slimmed."""
        plan = dataclasses.replace(self, reserve=reserve)
        return plan.slimmed(None)

    def slimmed(self, slim: Slim | None) -> Plan:
        """Return the plan of the same model, slimmed."""
        config = Config(self.metadata)
        footprint = footprint_of(self.file, config, self.context, slim, self.reserve, self.threads)
        return dataclasses.replace(self, footprint=footprint)


def load_models(
    model: str,
    wishes: Sequence[Wish],
    context: int | None = None,
    threads: int | None = None,
    *,
    draft_corpus: str | os.PathLike[str] | None = None,
    draft_slim: str = AUTO,
    offline: bool = False,
    notice: Callable[[str], None] | None = None,
    progress: Callable[[str, float], None] | None = None,
    reserves: tuple[Reserve, Reserve] | None = None,
) -> tuple[TextModel, list[Drafting]]:
    """Load a target and the draft models wished for, each once, and the index of a corpus.

    Parameters are as in `pilotfish.load`, but without `notice` nothing is said. `reserves` is what the target
    and each draft model will be told to take memory for: it is foretold here, not taken.
    """
    notice = notice or (lambda _text: None)
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise UsageError(f"threads is {threads!r}", "it is a whole number, at least 1")
    if draft_slim not in {AUTO, OFF}:
        raise UsageError(f"draft_slim is {draft_slim!r}", "it is auto or off")
    if draft_corpus is not None:
        check_folder(draft_corpus)
        if Wish() in wishes:
            raise UsageError("draft_corpus is given, but draft is off", "leave one of the two out")
    for_target, for_draft = reserves or (ONE_ANSWER, ONE_ANSWER)
    with contextlib.ExitStack() as files:
        ref = hub.resolve(model, offline=offline)
        target = Plan.make(ref, context, reserve=for_target, threads=threads)
        files.callback(target.file.close)
        refs = [_draft_of(target.ref, wish, offline=offline, notice=notice) for wish in wishes]
        others = {ref.path.resolve(): ref for ref in refs if ref is not None}
        others.pop(target.ref.path.resolve(), None)  # a target that drafts for itself is loaded once
        drafts: dict[Path, Plan] = {}
        for path, ref in others.items():
            drafts[path] = Plan.make(ref, target.context, shorter=True, reserve=for_draft, threads=threads)
            files.callback(drafts[path].file.close)
        loaded = _load_all(target, drafts, threads, notice, progress, slim=draft_slim == AUTO)
        text = loaded[target.ref.path.resolve()]
        assert isinstance(text, TextModel)
        models = [None if ref is None else loaded[ref.path.resolve()] for ref in refs]
        index = None
        if draft_corpus is not None:
            try:
                index = open_index(draft_corpus, text.tokenizer, notice)
            except BaseException:
                for done in loaded.values():
                    done.dispose()
                raise
        return text, [Drafting(wish, found, index) for wish, found in zip(wishes, models, strict=True)]


def _load_all(
    target: Plan,
    drafts: Mapping[Path, Plan],
    threads: int | None,
    notice: Callable[[str], None],
    progress: Callable[[str, float], None] | None,
    *,
    slim: bool,
) -> dict[Path, Model]:
    """Check that the models fit each other and the memory, then read their weights; all of them or none."""
    for plan in drafts.values():
        if plan.context < target.context:
            notice(
                f"{plan.ref.name} holds {plan.context} tokens, {target.ref.name} {target.context}: "
                "it drafts only up to there"
            )
    vocabularies = {path: Vocabulary(plan.metadata) for path, plan in drafts.items()}
    slims = {
        path: slim_for(drafts[path].file.tensors, words) if slim else None
        for path, words in vocabularies.items()
    }
    check_memory(target, *(plan.slimmed(slims[path]) for path, plan in drafts.items()))
    target.file.read_ahead()  # while the tokenizer is built
    tokenizer = Tokenizer.from_metadata(target.metadata)
    for words in vocabularies.values():
        check_same(tokenizer.vocabulary, words)
    template = _template_of(target, notice)
    talks = functools.partial(TextModel, tokenizer=tokenizer, template=template)
    loaded: dict[Path, Model] = {}
    try:
        loaded[target.ref.path.resolve()] = _load(talks, target, threads, progress)
        for path, plan in drafts.items():
            loaded[path] = _load(Model, plan, threads, progress, slims[path])
    except BaseException:
        for done in loaded.values():
            done.dispose()
        raise
    return loaded


def check_memory(target: Plan, *drafts: Plan) -> None:
    """Compare what models will need with what is free.

    Raises
    ------
    OutOfMemory
        They don't fit; the message has both numbers, the hint a context that fits, if one does.
    """
    plans = (target, *drafts)
    what = " with ".join(f"{plan.ref.name} at a context of {plan.context}" for plan in plans)
    need, free = memory_bytes(*plans), memory.free_bytes()
    kv = sum(plan.footprint.kv for plan in plans)
    left = 0 if free is None else max(free - need + kv, 0)
    shorter = int(target.context * left / kv) // CONTEXT_STEP * CONTEXT_STEP
    fits = f"a context of {shorter} fits; or " if shorter else ""
    if target.reserve != ONE_ANSWER and shorter < target.reserve.tokens:  # so much is reserved anyway
        fits = "let fewer answers be made at once (--running) and hold a shorter --context, or "
    memory.check_room(what, need, free, fits + memory.ADVICE)


def memory_bytes(target: Plan, *drafts: Plan) -> int:
    """Return what models will need together, the target's tokenizer included."""
    words = target.metadata.get("tokenizer.ggml.tokens")
    tokenizer = TOKENIZER_BYTES * len(words) if isinstance(words, list) else 0
    return tokenizer + sum(plan.footprint.total for plan in (target, *drafts))


def _draft_of(
    target: hub.ModelRef, wish: Wish, *, offline: bool, notice: Callable[[str], None]
) -> hub.ModelRef | None:
    """Return the draft model: the one that is named, or the registry's for this target if it is there."""
    if wish.model is not None:
        return hub.resolve(wish.model, offline=offline)
    if not wish.auto or target.entry is None or target.entry.draft is None:
        return None
    name = target.entry.draft
    if hub.cached_path(name) is None:
        notice(f"{target.name} has a draft model that would make it faster; type: pilotfish pull {name}")
        return None
    return hub.resolve(name)


def _template_of(plan: Plan, notice: Callable[[str], None]) -> ChatTemplate | None:
    """Return the chat template; without one that works, the model can still continue text."""
    if "tokenizer.chat_template" not in plan.metadata:
        return None
    try:
        return ChatTemplate.from_metadata(plan.metadata)
    except TemplateError as error:
        notice(f"{plan.ref.name} can't chat: {error.message}")
        return None


def _load(
    make: Callable[..., M],
    plan: Plan,
    threads: int | None,
    progress: Callable[[str, float], None] | None,
    slim: Slim | None = None,
) -> M:
    name = plan.ref.name
    engine = native.NativeEngine.load(
        plan.file,
        threads=threads,
        context=plan.context,
        progress=None if progress is None else lambda share: progress(name, share),
        slim=slim,
    )
    return make(
        name=name,
        engine=engine,
        path=plan.ref.path,
        checksum=plan.ref.sha256,
        isa=engine.isa,
        threads=engine.threads,
        dispose=engine.dispose,
    )
