"""How fast answers come: plain decoding and several ways of drafting, in turn on the same prompts.

A speed alone means little on a machine that other things share. So all modes answer one prompt side by side,
some tokens of each in turn, the order is turned from prompt to prompt and from repeat to repeat, and plain
decoding is measured twice in the same run: how far the two are apart is how far the run can be trusted.
"""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from pilotfish.bench.conversation import Conversation
from pilotfish.bench.ratios import interval, ratio
from pilotfish.bench.side_by_side import Entrant, answer_side_by_side
from pilotfish.control import ByGain
from pilotfish.costs import Costs
from pilotfish.decode import Decoder
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.beliefs import Beliefs
from pilotfish.drafters.model import ModelDrafter
from pilotfish.drafting import Drafting, Wish
from pilotfish.errors import UsageError
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence as TokenSequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pilotfish.bench.prompts import Prompt
    from pilotfish.bench.ratios import Pair
    from pilotfish.control import Control
    from pilotfish.corpus.index import Index
    from pilotfish.drafters.base import Drafter
    from pilotfish.model import Model, TextModel
    from pilotfish.stats import Stats

    Start = Callable[[Beliefs], tuple[Drafter | None, Control]]

PLAIN, SUFFIX, MODEL, AUTO = MODES = ("plain", "suffix", "model", "auto")
AGAIN = "plain again"
"""The second measurement of plain decoding."""

TOLERANCE = 0.02
"""How far from 1 the ratio of plain decoding to itself may be in a valid run."""

WARM_PROMPT, WARM_TOKENS = 32, 8
"""Tokens read and answered in each mode before anything is timed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of every mode.

    Attributes
    ----------
    max_tokens
        Most tokens of an answer.
    temperature, seed
        Of the answers; the seed is the bootstrap's too.
    turns
        Only the first turn of each prompt, or all.
    raw
        Without the chat template.
    """

    max_tokens: int = 160
    temperature: float = 0.0
    seed: int = 0
    turns: Literal["first", "all"] = "first"
    raw: bool = False


def checked(modes: Iterable[str]) -> tuple[str, ...]:
    """Return modes, each once, plain first: all others are compared with it.

    Raises
    ------
    UsageError
        One that is not known.
    """
    for mode in modes:
        if mode not in MODES:
            raise UsageError(f"modes has {mode!r}", f"it is a list of {', '.join(MODES)}")
    return tuple(dict.fromkeys((PLAIN, *modes)))


def starts(modes: Sequence[str], model: Model | None, corpus: Index | None = None) -> dict[str, Start]:
    """Return for each mode what makes the drafter and control of an answer from what is believed of guesses.

    `plain` drafts nothing; `suffix`, `model` (the draft model alone) and `auto` are left to control;
    `suffix` and `auto` look things up in the corpus too. What passes cost is learned once for all modes, from
    the warm-up on: it belongs to the machine, not to a prompt.

    Raises
    ------
    UsageError
        A mode that is not known, or `model` where there is no draft model.
    """
    costs = Costs()

    def of_model(beliefs: Beliefs) -> tuple[Drafter | None, Control]:
        assert model is not None
        control = ByGain(costs)
        alone = ModelDrafter(model.engine, model.name)
        return AutoDrafter(None, alone, control, beliefs, name=model.name), control

    known: dict[str, Start] = {
        PLAIN: lambda _beliefs: Drafting(Wish()).choose("auto"),
        SUFFIX: lambda beliefs: Drafting(Wish(suffix=True), None, corpus, costs, beliefs).choose("auto"),
        MODEL: of_model,
        AUTO: lambda beliefs: Drafting(Wish(auto=True), model, corpus, costs, beliefs).choose("auto"),
    }
    if MODEL in modes and model is None:
        raise UsageError("modes has 'model', and there is no draft model", "name one with -d")
    return {mode: known[mode] for mode in checked(modes)}


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: its ids and its counters."""

    ids: tuple[int, ...]
    stats: Stats


@dataclass(slots=True)
class Measured:
    """One prompt's answers by mode, one a repeat; `AGAIN` is a mode here.

    Attributes
    ----------
    id
        The prompt; with "/2" and so on for later turns.
    category
        The prompt's.
    prompt_tokens
        Length of the prompt in tokens.
    answers
        By mode, one a repeat.
    """

    id: str
    category: str
    prompt_tokens: int
    answers: dict[str, list[Answered]] = field(default_factory=dict)

    def same(self, mode: str) -> bool:
        """Whether the mode gave plain decoding's ids, in every repeat."""
        first = self.answers[PLAIN][0].ids
        return all(answer.ids == first for answer in (*self.answers[PLAIN], *self.answers[mode]))

    def prompt_s(self, mode: str) -> float:
        """Return the median of the repeats' seconds for the prompt, first token included."""
        return statistics.median(answer.stats.prompt_s for answer in self.answers[mode])

    def decode_s(self, mode: str) -> float:
        """Return the median of the repeats' seconds after the first token."""
        return statistics.median(answer.stats.decode_s for answer in self.answers[mode])

    def middle(self, mode: str) -> Answered:
        """Return the answer with the median seconds, the lower one of two: counters are those of one run."""
        answers = sorted(self.answers[mode], key=lambda answer: answer.stats.decode_s)
        return answers[(len(answers) - 1) // 2]

    def as_dict(self, modes: Iterable[str]) -> dict[str, object]:
        """Return the prompt's entry in JSON."""
        entry = {"id": self.id, "category": self.category, "prompt_tokens": self.prompt_tokens}
        return entry | {"modes": {mode: self._mode(mode) for mode in modes}}

    def _mode(self, mode: str) -> dict[str, object]:
        answer = self.middle(mode)
        stats = answer.stats
        return {
            "tokens": stats.tokens,
            "ids_sha256": ids_sha256(answer.ids),
            "prompt_s": self.prompt_s(mode),
            "decode_s": self.decode_s(mode),
            "passes": stats.passes,
            "drafted": stats.drafted,
            "accepted": stats.accepted,
            "drafted_at": list(stats.drafted_at),
            "accepted_at": list(stats.accepted_at),
            "parts_s": stats.parts_s,
        }


def ids_sha256(ids: Iterable[int]) -> str:
    """Return the SHA-256, 64 hex digits, of ids written as little-endian 32-bit numbers."""
    return hashlib.sha256(np.array(list(ids), "<u4").tobytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Rates:
    """One mode over some prompts; the fields are those of JSON.

    Attributes
    ----------
    tokens_per_s
        Sum of (tokens - 1) / sum of decode seconds; 0.0 if there are none.
    ratio, ratio_total
        Plain decode seconds / this mode's, sums over the prompts with equal ids; the total includes the
        prompt. None if no time was taken.
    tokens_per_pass
        Sum of (tokens - 1) / sum of passes; 0.0 if there are none.
    acceptance
        Accepted / drafted; 0.0 if nothing was drafted.
    ratio_ci95
        95 % interval of `ratio` over prompts; None for fewer than two prompts.
    """

    tokens_per_s: float
    ratio: float | None
    ratio_total: float | None
    tokens_per_pass: float
    acceptance: float
    ratio_ci95: tuple[float, float] | None

    def as_dict(self, *, with_interval: bool) -> dict[str, object]:
        """Return the fields by name."""
        names = [name for name in self.__slots__ if with_interval or name != "ratio_ci95"]
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class Report:
    """What was measured.

    Attributes
    ----------
    modes
        In the order asked for, plain first.
    seed
        Of the intervals.
    prompts
        In the order measured.
    skipped
        Ids of prompts that the context can't hold.
    """

    modes: tuple[str, ...]
    seed: int
    prompts: list[Measured] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def different(self) -> list[tuple[str, str]]:
        """Prompt and mode of each answer that is not plain decoding's."""
        modes = (*self.modes, AGAIN)
        return [(prompt.id, mode) for prompt in self.prompts for mode in modes if not prompt.same(mode)]

    @property
    def plain_vs_plain(self) -> float | None:
        """The ratio of plain decoding to plain decoding."""
        return ratio(self._pairs(self.prompts, AGAIN))

    @property
    def valid(self) -> bool:
        """Whether plain decoding was as fast as itself, within 2 %."""
        return self.plain_vs_plain is not None and abs(self.plain_vs_plain - 1) <= TOLERANCE

    @property
    def categories(self) -> list[str]:
        """Their names, in the order met."""
        return list(dict.fromkeys(prompt.category for prompt in self.prompts))

    def rates(self, mode: str, category: str | None = None) -> Rates:
        """Return a mode's rates over the prompts of a category, or over all."""
        prompts = [prompt for prompt in self.prompts if category in {None, prompt.category}]
        stats = [prompt.middle(mode).stats for prompt in prompts]
        later = sum(s.tokens - 1 for s in stats)
        pairs = self._pairs(prompts, mode)
        return Rates(
            tokens_per_s=_share(later, sum(prompt.decode_s(mode) for prompt in prompts)),
            ratio=ratio(pairs),
            ratio_total=ratio(self._pairs(prompts, mode, prompt_too=True)),
            tokens_per_pass=_share(later, sum(s.passes for s in stats)),
            acceptance=_share(sum(s.accepted for s in stats), sum(s.drafted for s in stats)),
            ratio_ci95=interval(pairs, self.seed),
        )

    def as_dict(self) -> dict[str, object]:
        """Return the report by the names used in JSON, without the envelope."""
        return {
            "identical": not self.different,
            "plain_vs_plain": self.plain_vs_plain,
            "valid": self.valid,
            "prompts": [prompt.as_dict(self.modes) for prompt in self.prompts],
            "categories": {
                category: {
                    mode: self.rates(mode, category).as_dict(with_interval=False) for mode in self.modes
                }
                for category in self.categories
            },
            "overall": {mode: self.rates(mode).as_dict(with_interval=True) for mode in self.modes},
            "skipped": self.skipped,
        }

    @staticmethod
    def _pairs(prompts: Iterable[Measured], mode: str, *, prompt_too: bool = False) -> list[Pair]:
        """Return plain decoding's seconds and the mode's on the prompts where their ids are equal."""

        def seconds(prompt: Measured, mode: str) -> float:
            return prompt.decode_s(mode) + (prompt.prompt_s(mode) if prompt_too else 0.0)

        return [(seconds(prompt, PLAIN), seconds(prompt, mode)) for prompt in prompts if prompt.same(mode)]


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


class SpeedBench:
    """Answers prompts in every mode and times it.

    Until the first token all modes do the same, so each prompt is read once a repeat, and the seconds of that
    count as every mode's. After it they take turns; see `pilotfish.bench.side_by_side`.

    Each answer starts with a drafter and a control made for it, which know nothing of other texts. What a
    mode believes of guesses in general, counts by confidence and position, and the seconds that it may
    venture it has from the prompts before in the same repeat, as a process has that answers one after
    another; each repeat starts without. So a prompt is never met again by anything that has learned from it.

    Parameters
    ----------
    target
        The model that answers.
    modes
        What makes the drafter and the control of an answer, by mode; see `starts`.
    settings
        What is asked.
    clock
        Seconds, monotonic.
    """

    def __init__(
        self, target: TextModel, modes: Mapping[str, Start], settings: Settings, clock: Callable[[], float]
    ) -> None:
        self.target = target
        self.settings = settings
        self.clock = clock
        self.report = Report(tuple(modes), settings.seed)
        self._starts = {**modes, AGAIN: modes[PLAIN]}
        # The two plain ones stand apart, else what slows the machine for a moment slows both alike.
        others = [mode for mode in modes if mode != PLAIN]
        half = (len(others) + 1) // 2
        self._order = [PLAIN, *others[:half], AGAIN, *others[half:]]
        self._found: dict[tuple[int, int], Measured] = {}
        self._beliefs: dict[str, Beliefs] = {}

    def run(
        self,
        prompts: Sequence[Prompt],
        repeats: int,
        progress: Callable[[float], None] = lambda _share: None,
    ) -> Report:
        """Measure all prompts, then all again for each repeat; `progress` takes the share done, 0..1."""
        order = self._order
        progress(0.0)
        for repeat in range(repeats):
            for index, prompt in enumerate(prompts):
                if not repeat and not index:
                    self._warm_up(prompt)
                if not index:
                    self._beliefs = {mode: Beliefs() for mode in order}
                first = (index + repeat) % len(order)
                self._talk(index, prompt, order[first:] + order[:first])
                progress((repeat * len(prompts) + index + 1) / (repeats * len(prompts)))
        return self.report

    def _warm_up(self, prompt: Prompt) -> None:
        """Answer a little in each mode: the first passes of a process are slower than all others."""
        ids = Conversation(self.target, raw=self.settings.raw).ask(prompt.turns[0])
        ids = ids[-min(WARM_PROMPT, self.target.engine.context - 1) :]
        self._beliefs = {mode: Beliefs() for mode in self._order}
        self._answers(ids, self._order, WARM_TOKENS)

    def _talk(self, index: int, prompt: Prompt, order: Sequence[str]) -> None:
        """Answer a prompt's turns in every mode; what the model hears of itself is the plain answer."""
        talk = Conversation(self.target, raw=self.settings.raw)
        context, skipped = self.target.engine.context, self.report.skipped
        for number, name, ids in talk.ask_each(prompt, self.settings.turns, context, skipped):
            found = self._found.get((index, number))
            if found is None:
                found = self._found[index, number] = Measured(name, prompt.category, len(ids))
                self.report.prompts.append(found)
            for mode, answer in zip(order, self._answers(ids, order, self.settings.max_tokens), strict=True):
                found.answers.setdefault(mode, []).append(answer)
            talk.hear(list(found.answers[PLAIN][0].ids))

    def _answers(self, prompt: list[int], order: Sequence[str], max_tokens: int) -> list[Answered]:
        """Answer a prompt, which is read once, in several modes side by side."""
        entrants = [self._entrant(prompt, mode, max_tokens) for mode in order]
        answer_side_by_side(entrants)
        return [Answered(tuple(one.ids), one.sequence.stats) for one in entrants]

    def _entrant(self, prompt: list[int], mode: str, max_tokens: int) -> Entrant:
        drafter, control = self._starts[mode](self._beliefs[mode])
        tokenizer, settings = self.target.tokenizer, self.settings
        decoder = Decoder(
            self.target.engine, drafter, control, token_count=tokenizer.token_count, clock=self.clock
        )
        sampling = Sampling(settings.temperature, seed=settings.seed)
        return Entrant(decoder, TokenSequence(list(prompt), sampling, max_tokens, tokenizer.end_ids))
