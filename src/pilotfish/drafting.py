"""Which drafter, and which control, `draft` and `draft_length` mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from pilotfish.control import Control, FixedLength
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.corpus import CorpusDrafter
from pilotfish.drafters.lookup import Lookup
from pilotfish.drafters.model import ModelDrafter
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from pilotfish.corpus.index import Index
    from pilotfish.drafters.base import Drafter
    from pilotfish.model import Model

AUTO, OFF, SUFFIX, CORPUS = "auto", "off", "suffix", "corpus"

LONGEST_AUTO = 8
"""Most tokens a draft has when no length is named; drafters stop earlier by their confidence."""


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
    """

    wish: Wish
    model: Model | None = None
    corpus: Index | None = None
    _made: dict[str, Drafter] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The drafter's name in reports."""
        if self.wish.auto:
            return AUTO
        if self.model is not None:
            return self.model.name
        return SUFFIX if self.wish.suffix else OFF

    def choose(self, length: Literal["auto"] | int) -> tuple[Drafter | None, Control]:
        """Return drafter and control for a draft length; an integer means exactly what was named.

        Raises
        ------
        UsageError
            A length above 0, and no drafter.
        """
        if self.wish == Wish():
            if length not in {"auto", 0}:
                raise UsageError(f"draft_length is {length}, but draft is off", "leave one of the two out")
            return None, FixedLength(0)
        if length == "auto":
            only = SUFFIX if self.wish == Wish(suffix=True) else AUTO
            return self._get(only), FixedLength(LONGEST_AUTO)
        if length == 0:
            return None, FixedLength(0)
        if self.wish.auto or (self.wish.suffix and self.wish.model):
            return self._get(AUTO), FixedLength(length)
        return self._get(SUFFIX if self.wish.suffix else "fixed"), FixedLength(length)

    def _get(self, kind: str) -> Drafter:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: str) -> Drafter:
        if kind == SUFFIX:
            return self._lookup()
        if kind == AUTO:
            model = None if self.model is None else ModelDrafter(self.model.engine, self.model.name)
            return AutoDrafter(self._lookup(), model)
        assert self.model is not None
        return ModelDrafter(self.model.engine, self.model.name)

    def _lookup(self) -> SuffixDrafter:
        if self.corpus is None:
            return SuffixDrafter()
        # What is asked of it is what every drafter does.
        return cast("SuffixDrafter", Lookup([SuffixDrafter(), CorpusDrafter(self.corpus)]))
