"""The default drafter: at each step what pays best, looked up, drafted by the model, both, or nothing."""

from __future__ import annotations

import collections.abc
import itertools
import math
import operator
from typing import TYPE_CHECKING

from pilotfish.drafters.base import NO_DRAFT, Draft
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafters.crowd import TOGETHER, Crowd
from pilotfish.drafters.model import WHOLE
from pilotfish.drafters.plan import Chooser, Plan, Reading, share_rows

if TYPE_CHECKING:
    from pilotfish.control import ByGain
    from pilotfish.drafters.base import Drafter, View
    from pilotfish.drafters.model import ModelDrafter


PAUSE = 2
"""Tokens for each wrong guess of the model on a text, before it is asked to find out if it is of use."""

UNTRIED = 2
"""Most tokens looked up that are sent while no guess of that kind was ever right."""

GLANCE = 64
"""Steps after which the model is considered once, though even right guesses of it seem not to pay: what
says so may be wrong."""


class AutoDrafter:
    """Drafts what pays: looked up, by the model, one by the other extended, or nothing.

    The model is asked if its draft is expected to gain most; what was looked up is then verified in its first
    pass, and where both agree to the end, the rest of what was looked up extends the draft. Until a guess of
    the model has been right on a text, it makes one at a time of its own.

    Parameters
    ----------
    lookup
        What is free to ask; None for nothing.
    model
        The draft model, or None.
    control
        Knows costs and rates; drafts come once it has measured a step.
    beliefs
        What guesses are worth, learned here; by default from the beginning.
    name
        Shown in reports.
    """

    def __init__(
        self,
        lookup: Drafter | None,
        model: ModelDrafter | None,
        control: ByGain,
        beliefs: Beliefs | None = None,
        *,
        name: str = "auto",
    ) -> None:
        self.lookup = lookup
        self.model = model
        self.control = control
        self.name = name
        # Nothing is worth waiting for where nothing is looked up.
        self._chooser = Chooser(self.control) if lookup is not None else Chooser(self.control, patience=0.0)
        self._beliefs = beliefs or Beliefs()
        self._crowd = Crowd(control.costs)
        self._ruled_out = 0  # steps in a row in which the model was not considered

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return one draft of at most `limits[i]` tokens for each; the model drafts for several at once.

        Where rows are dear and drafts have not paid for a while, nothing is decided in some steps: then all
        get none.
        """
        if self._crowd.leaves_out(sequences):
            return [NO_DRAFT] * len(sequences)
        plans = self._plans(sequences, limits)
        paced = len(plans) > 1 or any(plan.view.awaited() for plan in plans)
        beliefs = self._beliefs
        beliefs.earned = self.control.earned(beliefs.earned)
        rate = self._chooser.choose(plans, paced=paced, fund=beliefs.earned)
        beliefs.earned -= sum(plan.venture for plan in plans if plan.asks)
        drafts = [_cut(plan.draft, plan.take) for plan in plans]
        survivals = [plan.survival[: plan.take] for plan in plans]
        for i, draft in self._modelled(plans, rate).items():
            if not draft.tokens:  # it has not read enough: what was looked up is taken
                continue
            drafts[i], survivals[i] = self._extended(plans[i], draft)
        taken = share_rows(survivals, [len(p.view.tokens) for p in plans], self.control.costs, rate)
        for plan, count in zip(plans, taken, strict=True):
            self.control.pace(plan.view).reason = None if count else self._chooser.reason(plan, rate)
        self._crowd.decided(drafted=any(taken) or any(plan.asks for plan in plans))
        return [_cut(draft, count) for draft, count in zip(drafts, taken, strict=True)]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn how good the guesses were, also those that were not taken, and tell both drafters.

        Whatever the other one claimed, the model's cache holds the text afterwards.
        """
        if self.model is not None:
            self.model.observe(sequence, draft, accepted)
        self._beliefs.learn(sequence)
        if self.lookup is not None:
            self.lookup.observe(sequence, draft, accepted)

    def forget(self, key: int) -> None:
        """Free what is kept for a sequence, in both drafters too."""
        text = self._beliefs.texts.pop(key, None)
        self.control.forget(key, None if text is None else text.length)
        for drafter in (self.lookup, self.model):
            if drafter is not None:
                drafter.forget(key)

    def _plans(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Plan]:
        """Look up, and say what there is to choose from."""
        longest = min(self.control.longest, max(1, TOGETHER // len(sequences)))
        most = [min(limit, longest) for limit in limits]
        found = [NO_DRAFT] * len(most) if self.lookup is None else self.lookup.propose(sequences, most)
        model = self._considered(sequences, max(most), looked_up=any(draft.tokens for draft in found))
        plans = []
        for view, limit, draft in zip(sequences, most, found, strict=True):
            text = self._beliefs.text(view)
            self._beliefs.claim(view, draft, [text.lookup] * len(draft.tokens))
            usable = draft if text.lookup.calibration.proven else _cut(draft, UNTRIED)
            right = [text.lookup.right(c, i) for i, c in enumerate(usable.confidence)]
            plan = Plan(view, limit, view.left, usable, list(itertools.accumulate(right, operator.mul)))
            if model is not None and limit > 0:
                plan.readings = self._readings(view, model)
            plan.ruled_out = model is None and self.model is not None
            plans.append(plan)
        return plans

    def _considered(
        self, sequences: collections.abc.Sequence[View], most: int, *, looked_up: bool
    ) -> ModelDrafter | None:
        """Return the model, unless it has nothing to offer in this step."""
        model = self.model
        if model is None:
            return None
        reads = any(model.is_reading(view) for view in sequences)
        if (
            reads
            or self._ruled_out >= GLANCE
            or self._chooser.could_pay(sequences, most, looked_up=looked_up)
        ):
            self._ruled_out = 0
            return model
        self._ruled_out += 1
        return None

    def _readings(self, view: View, model: ModelDrafter) -> list[Reading]:
        """Return the ways to ask the model, the one that reads least first."""
        certainty, beliefs = self.control.certainty(view), self._beliefs
        readings: list[Reading] = []
        known = 0.0, 0.0
        for level, behind in model.ways(view):
            reading = Reading(behind, level, begun=model.is_reading(view))
            if readings:
                reading.first, reading.later = beliefs.hoped(view, certainty, level, known)
            else:
                known = beliefs.expected(view, certainty, level)
                reading.first, reading.later = known
                reading.usual = beliefs.usual_of(view, certainty, level)
                text = beliefs.texts[view.key]
                paused = len(view.tokens) - text.guessed > PAUSE * text.wrong
                reading.useful = text.useful if paused and not text.right else 0.0
            readings.append(reading)
        return readings

    def _modelled(self, plans: list[Plan], rate: float) -> dict[int, Draft]:
        """Return the model's drafts for the sequences that ask it."""
        asking = [i for i, plan in enumerate(plans) if plan.asks]
        if self.model is None or not asking:
            return {}
        rows = len(plans) + sum(plan.take for plan in plans if plan.reads_on or not plan.asks)

        for plan in (plans[i] for i in asking):
            if plan.asks is not plan.readings[0]:
                self._beliefs.texts[plan.view.key].start_anew()

        def go_on(index: int, tokens: list[int], confidence: list[float]) -> bool:
            plan = plans[asking[index]]
            survival = math.prod(self._right(plan, tokens, confidence))
            return self._chooser.pays(plan, len(tokens), survival, rate, rows)

        drafts = self.model.propose(
            [plans[i].view for i in asking],
            [self._most(plans[i]) for i in asking],
            hints=[plans[i].draft.tokens[: plans[i].hints] for i in asking],
            levels=[reading.level for i in asking if (reading := plans[i].asks)],
            go_on=go_on,
            batch=len(plans),
        )
        self.control.draft_passes = self.model.passes
        return dict(zip(asking, drafts, strict=True))

    def _most(self, plan: Plan) -> int:
        """Return how many tokens the model may draft: one beyond its hints until it has been right here."""
        proven = self._beliefs.texts[plan.view.key].right > 0
        return plan.limit if proven else min(plan.limit, plan.hints + 1)

    def _right(
        self, plan: Plan, tokens: collections.abc.Sequence[int], confidence: collections.abc.Sequence[float]
    ) -> list[float]:
        """Return for the model's guesses the probabilities that they are right."""
        records = self._beliefs.texts[plan.view.key].records(tokens, plan.draft.tokens)
        return [record.right(c, i) for i, (record, c) in enumerate(zip(records, confidence, strict=True))]

    def _extended(self, plan: Plan, draft: Draft) -> tuple[Draft, list[float]]:
        """Return the model's draft and its survival, with the rest of what was looked up if that agrees."""
        text, found, size = self._beliefs.texts[plan.view.key], plan.draft, len(draft.tokens)
        records = text.records(draft.tokens, found.tokens)
        certainty = self.control.certainty(plan.view)
        level = plan.asks.level if plan.asks else WHOLE
        self._beliefs.claim(plan.view, draft, records, certainty=certainty, level=level)
        right = self._right(plan, draft.tokens, draft.confidence)
        if size and found.tokens[:size] == draft.tokens:
            right += [text.lookup.right(c, i) for i, c in enumerate(found.confidence) if i >= size]
            draft = Draft(
                draft.tokens + found.tokens[size:],
                draft.confidence + found.confidence[size:],
                draft.drafters + found.drafters[size:],
            )
        return draft, list(itertools.accumulate(right, operator.mul))


def _cut(draft: Draft, count: int) -> Draft:
    if not count:
        return NO_DRAFT
    return Draft(draft.tokens[:count], draft.confidence[:count], draft.drafters[:count])
