"""Plain decoding against speculative decoding, token by token and row by row.

A row is the logits that one token was chosen from. Rows are compared by a 64-bit hash of their bits, up to
and including the first token that differs: behind it the two texts are no longer the same.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from pilotfish.bench.conversation import Conversation
from pilotfish.decode import Decoder
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence as TokenSequence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pilotfish.bench.prompts import Prompt
    from pilotfish.drafting import Drafting
    from pilotfish.engines.base import Rows
    from pilotfish.model import TextModel


@dataclass(frozen=True, slots=True)
class Settings:
    """What to compare.

    Attributes
    ----------
    max_tokens
        Most tokens of an answer.
    temperatures, draft_lengths
        Each with each.
    seed
        Of the sampled answers.
    turns
        Only the first turn of each prompt, or all.
    raw
        Without the chat template.
    """

    max_tokens: int = 64
    temperatures: tuple[float, ...] = (0.0, 0.8)
    draft_lengths: tuple[int, ...] = (1, 3, 8)
    seed: int = 0
    turns: Literal["first", "all"] = "first"
    raw: bool = False


@dataclass(slots=True)
class Run:
    """One drafter at one draft length and temperature, over all prompts: counters."""

    drafter: str
    draft_length: int
    temperature: float
    prompts: int = 0
    tokens_compared: int = 0
    tokens_different: int = 0
    rows_compared: int = 0
    rows_different: int = 0
    near_ties: int = 0
    drafted: int = 0
    accepted: int = 0
    passes: int = 0

    @property
    def acceptance(self) -> float:
        """Accepted / drafted; 0.0 when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a plain and a speculative answer first differ.

    Attributes
    ----------
    prompt_id
        The prompt; with "/2" and so on for later turns.
    run
        Index into the runs.
    position
        Absolute, in tokens: the prompt's length plus the index in the answer.
    plain, speculative
        The two tokens, None behind an answer's end; equal if only the rows differ.
    margin
        The plain row's largest logit minus its second largest.
    max_abs_diff
        Largest difference between the two rows' logits.
    """

    prompt_id: str
    run: int
    position: int
    plain: int | None
    speculative: int | None
    margin: float
    max_abs_diff: float


@dataclass(slots=True)
class Report:
    """What was found.

    Attributes
    ----------
    runs
        Counters of each run.
    skipped
        Ids of prompts that the context can't hold.
    first_difference
        The first one met, or None.
    """

    runs: list[Run]
    skipped: list[str] = field(default_factory=list)
    first_difference: Difference | None = None

    def total(self, counter: str) -> int:
        """Return the sum of a counter over the runs."""
        return sum(getattr(run, counter) for run in self.runs)

    @property
    def failure(self) -> str:
        """Why the check is not passed, empty if it is; each drafter has to have been of use."""
        for counter in ("tokens_different", "rows_different"):
            if self.total(counter):
                return f"{self.total(counter)} {counter.replace('_', ' ')}"
        for drafter in dict.fromkeys(run.drafter for run in self.runs):
            its = Report([run for run in self.runs if run.drafter == drafter])
            for counter in ("rows_compared", "drafted", "accepted"):
                if not its.total(counter):
                    return f"{drafter}: {counter.replace('_', ' ')}: none, so nothing was verified"
        return ""

    def as_dict(self) -> dict[str, object]:
        """Return the report by the names used in JSON, without the envelope."""
        counters = [name for name in Run.__slots__ if name not in _KEYS]
        return {
            "promise": "bits",
            "ok": not self.failure,
            "totals": {"runs": len(self.runs)} | {name: self.total(name) for name in counters},
            "runs": [asdict(run) | {"acceptance": run.acceptance} for run in self.runs],
            "first_difference": None if self.first_difference is None else asdict(self.first_difference),
            "skipped": self.skipped,
        }


_KEYS = {"drafter", "draft_length", "temperature", "prompts"}


@dataclass(slots=True)
class _Trace:
    """One answer: tokens, the hash of the row that each was chosen from, the prompt kept in the engine."""

    tokens: list[int]
    digests: list[int]
    read: int


class Verifier:
    """Compares a target with itself, drafted for.

    Parameters
    ----------
    target
        The model whose answers are checked.
    draftings
        The drafters to check it with.
    settings
        What to compare.
    """

    def __init__(self, target: TextModel, draftings: Sequence[Drafting], settings: Settings) -> None:
        self.target = target
        self.settings = settings
        grid = list(itertools.product(draftings, settings.draft_lengths, settings.temperatures))
        self._decoders = [(d, length) for d, length, _ in grid]
        self.report = Report([Run(d.label, length, temperature) for d, length, temperature in grid])

    def check(self, prompt: Prompt) -> None:
        """Answer plainly once a temperature, and with each drafter and length; count what differs."""
        for temperature in self.settings.temperatures:
            talk = Conversation(self.target, raw=self.settings.raw)
            context, skipped = self.target.engine.context, self.report.skipped
            for _, name, ids in talk.ask_each(prompt, self.settings.turns, context, skipped):
                talk.hear(self._compare(name, ids, temperature))

    def _compare(self, name: str, prompt: list[int], temperature: float) -> list[int]:
        """Compare all runs of this temperature on one prompt; return the plain answer's tokens."""
        sampling = Sampling(temperature, seed=self.settings.seed)
        plain = self._answer(prompt, sampling, keep=True)
        try:
            for index, run in enumerate(self.report.runs):
                if run.temperature == temperature:
                    self._compare_run(name, index, plain, prompt, sampling)
        finally:
            self.target.engine.close(plain.read)
        return plain.tokens

    def _compare_run(
        self, name: str, index: int, plain: _Trace, prompt: list[int], sampling: Sampling
    ) -> None:
        run, odd = self.report.runs[index], _OddRow(plain.digests, len(prompt))
        drafted = self._answer(prompt, sampling, index, odd.see, warm=plain.read)
        pairs = list(itertools.zip_longest(plain.tokens, drafted.tokens))
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        rows = list(zip(plain.digests, drafted.digests, strict=False))[: same + 1]
        run.prompts += 1
        run.tokens_compared += len(pairs)
        run.tokens_different += sum(a != b for a, b in pairs)
        run.rows_compared += len(rows)
        run.rows_different += sum(a != b for a, b in rows)
        first = min(same, next((i for i, (a, b) in enumerate(rows) if a != b), same))
        if first == len(pairs):
            return
        other = (
            odd.logits if odd.index == first else None
        )  # else the rows are equal, and only the choice is not
        margin, apart = self._look_at(prompt, sampling, min(first, len(plain.tokens) - 1), other)
        # The two largest logits are closer than the rows: rounding alone explains the other token.
        run.near_ties += pairs[first][0] != pairs[first][1] and margin <= 2 * apart
        if self.report.first_difference is None:
            self.report.first_difference = Difference(
                name, index, len(prompt) + first, *pairs[first], margin=margin, max_abs_diff=apart
            )

    def _look_at(
        self, prompt: list[int], sampling: Sampling, index: int, other: NDArray[np.float32] | None
    ) -> tuple[float, float]:
        """Compute a plain row again; return its margin, and how far the other row is from it."""
        found = [0.0, 0.0]

        def see(_sequence: TokenSequence, position: int, rows: Rows, row: int) -> None:
            if position == len(prompt) + index:
                found[0] = rows.margin(row)
                if other is not None:
                    found[1] = float(np.abs(rows.logits(row).astype(np.float64) - other).max())

        self._answer(prompt, sampling, on_row=see)
        return found[0], found[1]

    def _answer(
        self,
        prompt: list[int],
        sampling: Sampling,
        run: int | None = None,
        on_row: Callable[[TokenSequence, int, Rows, int], None] | None = None,
        *,
        keep: bool = False,
        warm: int = -1,
    ) -> _Trace:
        """Answer plainly, or as a run does, and count its drafts.

        `keep` leaves the prompt in the engine, for answers that start from it, `warm`.
        """
        digests: list[int] = []

        def see(sequence: TokenSequence, position: int, rows: Rows, row: int) -> None:
            digests.append(rows.digest(row))
            if on_row is not None:
                on_row(sequence, position, rows, row)

        drafting = None if run is None else self._decoders[run]
        drafter, control = (None, None) if drafting is None else drafting[0].choose(drafting[1])
        tokenizer = self.target.tokenizer
        decoder = Decoder(self.target.engine, drafter, control, token_count=tokenizer.token_count, on_row=see)
        sequence = TokenSequence(list(prompt), sampling, self.settings.max_tokens, tokenizer.end_ids)
        if warm >= 0:
            sequence.handle = self.target.engine.fork(warm)
        answer = decoder.run(sequence)
        tokens = [next(answer).id]
        read = self.target.engine.fork(sequence.handle) if keep else -1
        tokens += [token.id for token in answer]
        if run is not None:
            for counter in ("drafted", "accepted", "passes"):
                total = getattr(self.report.runs[run], counter) + getattr(sequence.stats, counter)
                setattr(self.report.runs[run], counter, total)
        return _Trace(tokens, digests, read)


class _OddRow:
    """Keeps a copy of the first row whose hash is not the plain one's."""

    def __init__(self, digests: list[int], prompt: int) -> None:
        self._digests = digests
        self._prompt = prompt
        self.index = -1
        self.logits: NDArray[np.float32] | None = None

    def see(self, _sequence: TokenSequence, position: int, rows: Rows, row: int) -> None:
        """Compare a row with the plain one at its position."""
        index = position - self._prompt
        if self.logits is None and index < len(self._digests) and rows.digest(row) != self._digests[index]:
            self.index, self.logits = index, rows.logits(row)
