"""What is believed of guesses: of those that were made, and of those that the draft model would make."""

from __future__ import annotations

import collections.abc
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pilotfish.calibration import Average, Calibration, Local

if TYPE_CHECKING:
    from pilotfish.drafters.base import Draft, View

GUESS_MEMORY = 0.85
"""Weight that a guess of the model loses with each later one in what is expected of its next."""

FADING = 0.995
"""The same with each token of the text: what was true a while ago says less."""

ALIKE = 0.2
"""Difference in the target's certainty that makes two places of a text different in kind."""

USUAL_MEMORY, USUAL_PRIOR = 0.98, 6.0
"""Memory, and weight of what is assumed, of the model's share of right guesses over all texts."""

COLD, HOT, WARMTH = 0.8, 0.3, 0.3
"""Assumed share of right guesses of a draft model at `WARMTH`, and what each degree of temperature costs."""

LUCK = 4.0
"""Weight of what became of a guess in what is expected of the next one; that of its confidence is 1."""

UNPROVEN = 3.0
"""Wrong guesses on a text of which none was right that halve what the model is usually worth."""

USELESS = 0.1
"""Share of texts on which the model is assumed to be of no use."""

CHANCE = 0.05
"""Share of its guesses that are right there all the same."""

SURE_PRIOR = 0.25
"""Weight of the assumption that a model is sure of its guesses on a text."""

CERTAINTY_PRIOR = 4.0
"""Imaginary guesses, as often right as the target is certain, that what it says of the model starts with."""

LEAST = 0.05
"""Least assumed share."""

MOST_KNOWN = 256
"""Answers that are kept of what a model usually achieves: a batch asks the same at many steps."""


TRUST = (0.85, 0.93, 1.0)
"""By how much of a text it knows (level), assumed success of the model in that of one that knows all."""


@dataclass(slots=True)
class _Claim:
    """A draft to be compared with the text, taken or not: tokens from `position` on."""

    position: int
    draft: Draft
    records: list[Local]
    level: int | None
    certainty: float | None


@dataclass(slots=True)
class Text:
    """What is known of one sequence.

    Attributes
    ----------
    lookup, model, both
        What confidence is worth: of what was looked up, of the model, of the model where it agrees with that.
    first, later
        Success of the model's first guesses, and of later ones behind right ones.
    certainty, sure
        The target's certainty where the model guessed, and the model's own.
    useful
        Probability that the model is of use here.
    right, wrong
        The model's guesses that came true here, and those that did not.
    guessed
        Position of the model's last guess that was compared.
    length
        Tokens when drafts were last made.
    """

    lookup: Local
    model: Local
    both: Local
    first: Average = field(default_factory=lambda: Average(GUESS_MEMORY, 2.0))
    later: Average = field(default_factory=lambda: Average(GUESS_MEMORY, 2.0))
    certainty: Average = field(default_factory=lambda: Average(GUESS_MEMORY, 0.01))
    sure: Average = field(default_factory=lambda: Average(GUESS_MEMORY, SURE_PRIOR))
    useful: float = 1 - USELESS
    right: int = 0
    wrong: int = 0
    guessed: int = 0
    length: int = 0
    claims: list[_Claim] = field(default_factory=list)

    def records(
        self, tokens: collections.abc.Sequence[int], found: collections.abc.Sequence[int]
    ) -> list[Local]:
        """Return for each guess of the model the record that it counts in; `found` is what was looked up."""
        agreed = 0
        for token, other in zip(tokens, found, strict=False):
            if token != other:
                break
            agreed += 1
        return [self.both] * agreed + [self.model] * (len(tokens) - agreed)

    def start_anew(self) -> None:
        """Forget how good the model was here: it will know more of the text."""
        self.model, self.both = Local(self.model.calibration), Local(self.both.calibration)
        self.first, self.later = Average(GUESS_MEMORY, 2.0), Average(GUESS_MEMORY, 2.0)
        self.certainty, self.sure = Average(GUESS_MEMORY, 0.01), Average(GUESS_MEMORY, SURE_PRIOR)
        self.useful, self.right, self.wrong = 1 - USELESS, 0, 0


class Usual:
    """How good the model is at guessing, over all texts of which it knows as much.

    Parameters
    ----------
    trust
        Its assumed success, in that of one that knows all.
    """

    def __init__(self, trust: float = 1.0) -> None:
        self._trust = trust
        self._by_certainty = Calibration(CERTAINTY_PRIOR)
        self._first = Average(USUAL_MEMORY, USUAL_PRIOR)
        self._later = Average(USUAL_MEMORY, USUAL_PRIOR)
        self._known: dict[tuple[float, float | None], tuple[float, float]] = {}  # until more is learned

    def expected(self, temperature: float, certainty: float | None) -> tuple[float, float]:
        """Return the probabilities that its first guess is right, and each later one if it was asked.

        `certainty` is the target's: what that hardly knows itself, nobody guesses.
        """
        known = self._known.get((temperature, certainty))
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[temperature, certainty] = self._expected(temperature, certainty)
        return known

    def learn(self, place: int, certainty: float | None, *, right: bool) -> None:
        """Learn what became of the guess at a place in a draft."""
        self._known.clear()
        (self._later if place else self._first).add(float(right))
        if not place and certainty is not None:
            self._by_certainty.learn(certainty * self._trust, 0, right=right)

    def as_dict(self) -> dict[str, object]:
        """Return what was learned, for JSON."""
        averages = {"first": self._first.as_list(), "later": self._later.as_list()}
        return {"by_certainty": self._by_certainty.as_dict(), **averages}

    @classmethod
    def from_dict(cls, data: Any, trust: float) -> Usual:  # noqa: ANN401 - it is checked here
        """Return what `as_dict` gave; a ValueError if it did not, or it makes no sense."""
        made = cls(trust)
        try:
            made._by_certainty = Calibration.from_dict(data["by_certainty"], CERTAINTY_PRIOR)
            made._first.restore(data["first"])
            made._later.restore(data["later"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not what a model usually achieves: {error!r}") from error
        return made

    def _expected(self, temperature: float, certainty: float | None) -> tuple[float, float]:
        assumed = max(COLD - HOT * max(0.0, temperature - WARMTH), LEAST) * self._trust
        if certainty is None:
            first = self._first.value(assumed)
        else:
            first = self._by_certainty.right(certainty * self._trust, 0)
        return first, max(first, self._later.value(assumed))


class Beliefs:
    """Learns from every guess, also those that were not sent to the target.

    Attributes
    ----------
    texts
        What is known of each sequence, by its key.
    usual
        What the model usually achieves, by how much of the text it knows (level).
    earned
        Seconds that drafts have saved and that may be ventured on finding out what the model is worth.
    """

    def __init__(self) -> None:
        self.earned = 0.0
        self._calibrations = [Calibration() for _ in range(3)]
        self.usual = [Usual(trust) for trust in TRUST]
        self.texts: dict[int, Text] = {}

    def as_dict(self) -> dict[str, object]:
        """Return what was learned over all texts, for JSON; nothing of any text can be read from it."""
        return {
            "calibrations": [calibration.as_dict() for calibration in self._calibrations],
            "usual": [usual.as_dict() for usual in self.usual],
        }

    def restore(self, data: Any) -> None:  # noqa: ANN401 - it is checked here
        """Take what `as_dict` gave.

        Raises
        ------
        ValueError
            It did not give that, or it makes no sense; nothing is taken.
        """
        try:
            lookup, model, both = (Calibration.from_dict(each) for each in data["calibrations"])
            usual = [Usual.from_dict(*each) for each in zip(data["usual"], TRUST, strict=True)]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not what is believed of guesses: {error!r}") from error
        self._calibrations, self.usual = [lookup, model, both], usual

    def text(self, view: View) -> Text:
        """Return what is known of a sequence, for a new step of it."""
        text = self.texts.get(view.key)
        if text is None:
            lookup, model, both = self._calibrations
            text = self.texts[view.key] = Text(Local(lookup), Local(model), Local(both))
        text.claims, text.length = [], len(view.tokens)
        return text

    def expected(self, view: View, certainty: float | None, level: int) -> tuple[float, float]:
        """Return the probabilities that the model's first guess is right, and each later one if it was asked.

        Where the target was about as certain of its last tokens as it is now, the model's success there
        counts; else what it usually is at this certainty. If no guess was right here yet, each wrong one
        makes it doubtful that this text is like others.
        """
        text = self.texts[view.key]
        first, later = self.usual_of(view, certainty, level)
        doubted = 1.0 if text.right else first * UNPROVEN / (UNPROVEN + text.wrong)
        alike = 1.0
        if certainty is not None:
            alike = math.exp(-(((certainty - text.certainty.value(certainty)) / ALIKE) ** 2))
        return min(doubted, text.first.value(first, alike)), text.later.value(later, alike)

    def usual_of(self, view: View, certainty: float | None, level: int) -> tuple[float, float]:
        """Return the same over all texts; knowing less is expected to be no better than knowing more."""
        pairs = [usual.expected(view.sampling.temperature, certainty) for usual in self.usual[level:]]
        return min(first for first, _ in pairs), min(later for _, later in pairs)

    def hoped(
        self, view: View, certainty: float | None, level: int, now: tuple[float, float]
    ) -> tuple[float, float]:
        """Return the same of a model that would know more of this text than now, when `now` is expected.

        Where it does worse than usual and knows it, that is put down to what it has not read; if it was sure
        of its guesses, to the model.
        """
        then = self.usual_of(view, certainty, level)
        doubt = 1 - self.texts[view.key].sure.value(1.0)
        first, later = (min(b, a + (b - a) * doubt) for a, b in zip(now, then, strict=True))
        return first, later

    def claim(
        self,
        view: View,
        draft: Draft,
        records: list[Local],
        *,
        level: int | None = None,
        certainty: float | None = None,
    ) -> None:
        """Remember a draft for the sequence, to be compared with what comes.

        `level` is how much of the text the model knew; None if the draft is not the model's.
        """
        if draft.tokens:
            claim = _Claim(len(view.tokens), draft, records, level, certainty)
            self.texts[view.key].claims.append(claim)

    def learn(self, view: View) -> None:
        """Compare what was claimed with what came, up to the first wrong guess."""
        text, tokens = self.texts.get(view.key), view.tokens
        if text is None:
            return
        grown = len(tokens) - text.length
        for average in (text.first, text.later):
            average.fade(FADING**grown)
        for claim in text.claims:
            draft = claim.draft
            for i, (token, confidence, record) in enumerate(
                zip(draft.tokens, draft.confidence, claim.records, strict=True)
            ):
                if claim.position + i >= len(tokens):
                    break
                right = tokens[claim.position + i] == token
                if claim.level is not None:
                    usual = self.usual_of(view, claim.certainty, claim.level)[i > 0]
                    usual = max(usual, record.calibration.right(confidence, i))
                    text.useful = _useful(text.useful, usual, right=right)
                    self.usual[claim.level].learn(i, claim.certainty, right=right)
                    _learn_model(text, claim, i, record.right(confidence, i), right=right)
                record.learn(confidence, i, right=right)
                if not right:
                    break
        text.claims, text.length = [], len(tokens)


def _learn_model(text: Text, claim: _Claim, place: int, expected: float, *, right: bool) -> None:
    text.right += right
    text.wrong += not right
    text.guessed = claim.position + place
    # Confidence says something of the next guess that luck does not, unless it is not to be trusted.
    (text.later if place else text.first).add((expected + LUCK * right) / (1 + LUCK))
    if not place:
        text.sure.add(claim.draft.confidence[0])
        if claim.certainty is not None:
            text.certainty.add(claim.certainty)


def _useful(before: float, usual: float, *, right: bool) -> float:
    """Return by Bayes' rule how likely the model is of use, after a guess that usually is right so often."""
    good, bad = (usual, CHANCE) if right else (1 - usual, 1 - CHANCE)
    return before * good / (before * good + (1 - before) * bad)
