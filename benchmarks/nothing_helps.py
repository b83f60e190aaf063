"""What drafting costs where it can't help: random words, drafters always wrong, one as large as the target.

Answers are made side by side, plainly, with drafts and plainly again, some steps of each in turn: what slows
the machine for a moment slows them all. A pair is the seconds of plain decoding, the mean of both, over those
with drafts; the median of the pairs counts. Beliefs about drafters start anew in every answer, what passes
cost is known from the answers before, as it is in any process but the first. A table goes to stderr, one JSON
line to stdout:

    python benchmarks/nothing_helps.py >docs/results/nothing-helps-avx2.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pilotfish.bench.conversation import Conversation
from pilotfish.bench.envelope import envelope
from pilotfish.bench.prompts import Prompt, take
from pilotfish.bench.sets import read_set
from pilotfish.bench.side_by_side import TURN, Entrant, answer_side_by_side
from pilotfish.bench.speed import ids_sha256
from pilotfish.control import ByGain
from pilotfish.costs import Costs
from pilotfish.decode import Decoder
from pilotfish.drafters.auto import AutoDrafter
from pilotfish.drafters.base import Draft
from pilotfish.drafters.model import ModelDrafter
from pilotfish.drafting import Drafting, Wish
from pilotfish.errors import PilotfishError
from pilotfish.loading import load_models
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

if TYPE_CHECKING:
    import collections.abc

    from pilotfish.control import Control
    from pilotfish.drafters.base import Drafter, View
    from pilotfish.engines.base import Chunk, Engine, Rows
    from pilotfish.model import Model, TextModel

PLAIN, AGAIN = "plain", "plain again"
WORDS, WRONG, BOTH_WRONG, LARGE = "random words", "always wrong", "both always wrong", "as large"
"""The cases: text that nobody foresees; a draft model, or that and what is looked up, wrong with all its
guesses and sure of them; the target as its own draft model, never wrong and never worth it."""

STORY = "Tell me a story about a lighthouse keeper who finds a message from the future in a bottle."
"""What is asked where the drafters, not the text, are to blame."""

WARM_TOKENS = 40
SURE = 0.95


class WrongRows:
    """Rows of a model that says something it can't mean, and is sure of it."""

    def __init__(self, rows: Rows, token: int) -> None:
        self._rows = rows
        self._token = token

    def choose(self, row: int, *_rules: object) -> int:
        """Return the wrong token."""
        del row
        return self._token

    def probability(self, row: int, token: int) -> float:
        """Return how sure it is."""
        del row, token
        return SURE


class WrongEngine:
    """An engine that takes its time, and is then wrong: always with an id that the text does not have."""

    def __init__(self, engine: Engine, token: int) -> None:
        self._engine = engine
        self._token = token

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the engine's
        return getattr(self._engine, name)

    def forward(self, chunks: collections.abc.Sequence[Chunk]) -> Rows:
        """Evaluate a pass."""
        return cast("Rows", WrongRows(self._engine.forward(chunks), self._token))


class WrongLookup:
    """Finds at once as many guesses as it is asked for; all are wrong."""

    name = "wrong"

    def __init__(self, token: int) -> None:
        self._token = token

    def propose(
        self, sequences: collections.abc.Sequence[View], limits: collections.abc.Sequence[int]
    ) -> list[Draft]:
        """Return a draft for each."""
        del sequences
        return [Draft((self._token,) * n, (SURE,) * n, (self.name,) * n) for n in limits]

    def observe(self, sequence: View, draft: Draft, accepted: int) -> None:
        """Learn nothing."""

    def forget(self, key: int) -> None:
        """Keep nothing."""


@dataclass(slots=True)
class Case:
    """One case: its repeats, as seconds by way; `parts` are those of drafting, passes and so on."""

    name: str
    tokens: int = 0
    ids_sha256: str = ""
    identical: bool = True
    plain_s: list[float] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)
    drafting_s: list[float] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    parts_s: list[dict[str, float]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the case for JSON."""
        pairs = [(a + b) / 2 / c for a, b, c in zip(self.plain_s, self.again_s, self.drafting_s, strict=True)]
        plain = [a / b for a, b in zip(self.plain_s, self.again_s, strict=True)]
        return {
            "case": self.name,
            "tokens": self.tokens,
            "ids_sha256": self.ids_sha256,
            "identical": self.identical,
            "ratio": statistics.median(pairs),
            "pairs": pairs,
            "plain_vs_plain": statistics.median(plain),
            "drafted": self.drafted,
            "plain_s": self.plain_s,
            "again_s": self.again_s,
            "drafting_s": self.drafting_s,
            "parts_s": self.parts_s,
        }


class Bench:
    """Makes the answers of all cases."""

    def __init__(self, target: TextModel, draft: Model, max_tokens: int) -> None:
        self.target = target
        self.draft = draft
        self.max_tokens = max_tokens
        self._wrong = target.tokenizer.token_count - 1
        self._costs: dict[str, Costs] = {}

    def start(self, case: str) -> tuple[Drafter | None, Control]:
        """Return drafter and control of a case, which know what passes cost and nothing else."""
        if case in {PLAIN, AGAIN}:
            return Drafting(Wish()).choose("auto")
        own = case == LARGE
        drafting = Drafting(Wish(auto=True), self.target if own else self.draft)
        drafting.assume(self.target)
        drafting.costs = self._costs.setdefault(case, drafting.costs)
        if case in {WORDS, LARGE}:
            return drafting.choose("auto")
        control = ByGain(drafting.costs)
        model = ModelDrafter(cast("Engine", WrongEngine(self.draft.engine, self._wrong)), "wrong model")
        lookup = WrongLookup(self._wrong) if case == BOTH_WRONG else None
        return AutoDrafter(lookup, model, control), control

    def repeat(self, cases: list[Case], turn: int, max_tokens: int | None = None) -> None:
        """Answer one question plainly, with each case's drafts, and plainly again, in turns."""
        words = cases[0].name == WORDS
        prompt = self._prompt(take(read_set("hard"), 1)[0].turns[0] if words else STORY)
        names = [case.name for case in cases]
        half = (len(names) + 1) // 2
        ways = [PLAIN, *names[:half], AGAIN, *names[half:]]
        first = turn % len(ways)
        entrants = {
            way: self._entrant(way, prompt, 1.5 if words else 0.0, max_tokens or self.max_tokens)
            for way in ways[first:] + ways[:first]
        }
        answer_side_by_side(list(entrants.values()))
        if max_tokens is None:
            for case in cases:
                self._note(case, entrants)

    def _entrant(self, way: str, prompt: list[int], temperature: float, max_tokens: int) -> Entrant:
        tokenizer = self.target.tokenizer
        drafter, control = self.start(way)
        decoder = Decoder(
            self.target.engine,
            drafter,
            control,
            token_count=tokenizer.token_count,
            clock=time.perf_counter,
        )
        sampling = Sampling(temperature, seed=7)
        return Entrant(decoder, Sequence(list(prompt), sampling, max_tokens, tokenizer.end_ids))

    def _note(self, case: Case, entrants: dict[str, Entrant]) -> None:
        plain, drafting, again = entrants[PLAIN], entrants[case.name], entrants[AGAIN]
        ids = [tuple(one.ids) for one in (plain, drafting, again)]
        case.identical = case.identical and len(set(ids)) == 1
        case.tokens = plain.sequence.stats.tokens
        case.ids_sha256 = ids_sha256(ids[0])
        case.plain_s.append(plain.sequence.stats.decode_s)
        case.again_s.append(again.sequence.stats.decode_s)
        case.drafting_s.append(drafting.sequence.stats.decode_s)
        case.drafted.append(drafting.sequence.stats.drafted)
        case.parts_s.append(drafting.sequence.stats.parts_s)

    def _prompt(self, text: str) -> list[int]:
        [asked] = Conversation(self.target, raw=False).ask_each(Prompt("", "", (text,)), "first", 1 << 30, [])
        return asked.ids


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Load the models and make all answers; return the report."""
    target, [drafting] = load_models(args.model, [Wish(model=args.draft)], threads=args.threads)
    assert drafting.model is not None
    bench = Bench(target, drafting.model, args.max_tokens)
    cases = [Case(name) for name in args.cases]
    questions = [[case for case in cases if (case.name == WORDS) == words] for words in (True, False)]
    questions = [asked for asked in questions if asked]
    for asked in questions:
        bench.repeat(asked, 0, WARM_TOKENS)
    for repeat in range(args.repeats):
        for asked in questions:
            bench.repeat(asked, repeat)
        for case in cases:
            _say(case, repeat + 1)
    settings = {"max_tokens": args.max_tokens, "repeats": args.repeats, "turn": TURN}
    return envelope("nothing helps", target, [drafting.model], settings) | {
        "identical": all(case.identical for case in cases),
        "cases": [case.as_dict() for case in cases],
    }


def _say(case: Case, repeats: int) -> None:
    last = case.as_dict()
    print(
        f"{case.name:18} {repeats} repeats of {case.tokens} tokens: {last['ratio']:.3f} times plain, "
        f"that against itself {last['plain_vs_plain']:.3f}; drafted {case.drafted[-1]}",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """Measure and print; exit code 1 if an answer was not the plain one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b", help="path or registry name")
    parser.add_argument("-d", "--draft", default="qwen2.5-coder-0.5b", help="the draft model")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=7)
    names = [WORDS, WRONG, BOTH_WRONG, LARGE]
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    try:
        report = measure(parser.parse_args())
    except PilotfishError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report, ensure_ascii=False, allow_nan=False), flush=True)
    return 0 if report["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
