"""Which drafter, and which control, `draft` and `draft_length` mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pilotfish.control import ByGain, Control, FixedLength
from pilotfish.costs import Costs
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafters.corpus import CorpusDrafter
from pilotfish.drafters.either import Either
from pilotfish.drafters.lookup import Lookup
from pilotfish.drafters.model import ModelDrafter
from pilotfish.drafters.recent import RecentDrafter
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from pilotfish.corpus.index import Index
    from pilotfish.drafters.base import Drafter
    from pilotfish.drafters.recent import RecentTexts
    from pilotfish.model import Model

AUTO, OFF, SUFFIX, CORPUS = "auto", "off", "suffix", "corpus"


@dataclass(frozen=True, slots=True)
class Wish:
    """What `draft` asks for.

    Attributes
    ----------
    auto
        It names `auto`: the registry's draft model too, if there is one.
    suffix
        It names `suffix`.
    model
        The model it names, or None.
    """

    auto: bool = False
    suffix: bool = False
    model: str | None = None

    @classmethod
    def read(cls, draft: str | Sequence[str]) -> Wish:
        """Read `auto`, `off`, `suffix`, a model's name, or several of these.

        Raises
        ------
        UsageError
            Nothing named, something that is not a name, `off` beside others, or two models.
        """
        names = [draft] if isinstance(draft, str) else list(draft)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise UsageError(f"draft is {draft!r}", "it is auto, off, suffix, a model, or several of these")
        models = dict.fromkeys(name for name in names if name not in {AUTO, OFF, SUFFIX})
        if OFF in names and set(names) != {OFF}:
            raise UsageError(f"draft is {draft!r}, off and more than off", "name off alone, or leave it out")
        if len(models) > 1:
            raise UsageError(f"draft names {len(models)} models: {', '.join(models)}", "name at most one")
        return cls(AUTO in names, SUFFIX in names, next(iter(models), None))


@dataclass(slots=True)
class Drafting:
    """The drafters of one target, made when first needed and shared by its answers.

    Attributes
    ----------
    wish
        What was asked for.
    model
        The draft model, or None.
    corpus
        What the suffix drafter is joined by, or None.
    costs, beliefs
        What passes cost and guesses are worth, learned while answering without a `draft_length`.
    recent
        Texts of earlier requests that are looked into too, or None; to be set before `choose` is called.
    """

    wish: Wish
    model: Model | None = None
    corpus: Index | None = None
    costs: Costs = field(default_factory=Costs)
    beliefs: Beliefs = field(default_factory=Beliefs)
    recent: RecentTexts | None = None
    _made: dict[str, Drafter] = field(default_factory=dict)
    _measured: tuple[Drafter, Control] | None = None

    @property
    def label(self) -> str:
        """The drafter's name in reports."""
        if self.wish.auto:
            return AUTO
        if self.model is not None:
            return self.model.name
        return SUFFIX if self.wish.suffix else OFF

    def assume(self, target: Model) -> None:
        """Assume that a pass of the draft model costs what it reads less than the target's."""
        if self.model is None:
            return
        if self.model.engine is target.engine:
            self.costs.draft_ratio = 1.0
            return
        draft, full = (getattr(model.engine, "read_bytes", 0) for model in (self.model, target))
        if draft and full:
            self.costs.draft_ratio = min(max(draft / full, 0.05), 2.0)

    def choose(self, length: Literal["auto"] | int) -> tuple[Drafter | None, Control]:
        """Return drafter and control for a draft length; an integer means exactly what was named.

        Raises
        ------
        UsageError
            A length above 0, and no drafter, or one beside a corpus that does not look into it.
        """
        if self.wish == Wish():
            if length not in {"auto", 0}:
                raise UsageError(f"draft_length is {length}, but draft is off", "leave one of the two out")
            return None, FixedLength(0)
        if length == 0:
            return None, FixedLength(0)
        if length == "auto":
            if self._measured is None:
                self._measured = self._make_measured()
            return self._measured
        kind = self._fixed_kind()
        if kind == "model" and self.corpus is not None:
            raise UsageError(
                f"at draft_length {length} only the draft model drafts, and a draft corpus is given",
                "leave one of the two out, or name suffix beside the model",
            )
        return self._get(kind), FixedLength(length)

    def _fixed_kind(self) -> str:
        if self.wish.auto or (self.wish.suffix and self.wish.model):
            return AUTO
        return SUFFIX if self.wish.suffix else "model"

    def _make_measured(self) -> tuple[Drafter, Control]:
        control = ByGain(self.costs)
        name = SUFFIX if self.wish == Wish(suffix=True) else AUTO
        made = AutoDrafter(self._lookup(), self._model_drafter(), control, self.beliefs, name=name)
        return made, control

    def _get(self, kind: str) -> Drafter:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: str) -> Drafter:
        if kind == SUFFIX:
            return self._lookup()
        model = self._model_drafter()
        if kind == AUTO:
            return Either(self._lookup(), model)
        assert model is not None
        return model

    def _model_drafter(self) -> ModelDrafter | None:
        return None if self.model is None else ModelDrafter(self.model.engine, self.model.name)

    def _lookup(self) -> Drafter:
        drafters: list[Drafter] = [SuffixDrafter()]
        if self.corpus is not None:
            drafters.append(CorpusDrafter(self.corpus))
        if self.recent is not None:
            drafters.append(RecentDrafter(self.recent))
        return Lookup(drafters) if len(drafters) > 1 else drafters[0]
