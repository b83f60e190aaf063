"""Watch control at work on one answer whose text changes its kind: prose, new code, prose, copied code.

The answer is made plainly first, then with everything that drafts, and each step is written down: where in
the answer it stands, what was drafted by whom, how much of it was right, and what it took. The picture shows
drafter and draft length following the text. A table goes to stderr, one JSON line to stdout:

    python benchmarks/control_trace.py --plot docs/results/control-trace.png >docs/results/control-trace.json
    python benchmarks/control_trace.py --read docs/results/control-trace.json --plot control-trace.png

Only an idle machine shows what happens: other load looks like passes that cost more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pilotfish
from pilotfish.bench.envelope import envelope
from pilotfish.bench.plots import as_it_is, check_plot, picture
from pilotfish.decode import Decoder
from pilotfish.errors import PilotfishError
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Ordered

    from pilotfish.control import Control, Step
    from pilotfish.drafters.base import Draft, View
    from pilotfish.llm import LLM

PROSE, CODE, COPY = "prose", "new code", "copied code"
KINDS = {PROSE: "#ffffff", CODE: "#fff3d6", COPY: "#e3f1ff"}
"""Kinds of text, and their colours in the picture."""

COPIED = 0.8
"""Share of a block's lines that stand in the prompt from which on it is a copy."""

WINDOW = 5
"""Steps that the speed in the picture is taken over."""

COLOURS = ("tab:green", "tab:purple", "tab:orange", "tab:brown")
"""Of drafters, but for the suffix drafter."""

WARM_TOKENS = 24

COPY_OF = '''class Ledger:
    """Keeps the balance of an account, and what changed it."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.entries = []

    def deposit(self, amount, note=""):
        if amount <= 0:
            raise ValueError(f"can't deposit {amount}")
        self.balance += amount
        self.entries.append((amount, note))

    def withdraw(self, amount, note=""):
        if amount <= 0:
            raise ValueError(f"can't withdraw {amount}")
        if amount > self.balance:
            raise ValueError(f"only {self.balance} left")
        self.balance -= amount
        self.entries.append((-amount, note))

    def statement(self):
        lines = [f"Account of {self.owner}"]
        for amount, note in self.entries:
            lines.append(f"{amount:+10.2f}  {note}")
        lines.append(f"{self.balance:+10.2f}  balance")
        return "\\n".join(lines)
'''
PROMPT = f"""Here is a Python class:

```python
{COPY_OF}```

Do three things, in this order:
1. Explain in one paragraph of about 100 words, without code, why a bank keeps a ledger.
2. Write a new Python function `binary_search(items, wanted)`, without comments.
3. Repeat the class Ledger above in full and unchanged, but with the method `deposit` renamed to `pay_in`."""


@dataclass(slots=True)
class Stepped:
    """One step.

    Attributes
    ----------
    position
        Tokens of the answer before it.
    emitted, drafted, accepted
        Tokens it brought, guesses sent to the target, and those that were kept.
    drafters
        For each guess who made it.
    draft_s, pass_s, step_s
        Seconds of drafting, of the target's pass and of the whole step.
    reason
        Why nothing was drafted, or None.
    """

    position: int
    emitted: int
    drafted: int
    accepted: int
    drafters: list[str]
    reason: str | None = None
    draft_s: float = 0.0
    pass_s: float = 0.0
    step_s: float = 0.0


class Watched:
    """A control that writes down what another one is told of one sequence."""

    def __init__(self, control: Control, clock: Callable[[], float]) -> None:
        self.steps: list[Stepped] = []
        self._control = control
        self._clock = clock
        self._length = self._prompt = 0
        self._began = 0.0

    def limits(self, sequences: Ordered[View]) -> list[int]:
        """Note when the step began, and how long the sequence is."""
        self._began, self._length = self._clock(), len(sequences[0].tokens)
        if not self.steps:
            self._prompt = self._length - 1
        return self._control.limits(sequences)

    def observe(self, sequence: View, draft: Draft, accepted: int, certainty: Callable[[], float]) -> None:
        """Note what became of the draft."""
        emitted = len(sequence.tokens) - self._length
        self.steps.append(
            Stepped(self._length - self._prompt, emitted, len(draft.tokens), accepted, list(draft.drafters))
        )
        self._control.observe(sequence, draft, accepted, certainty)

    def timed(self, step: Step) -> None:
        """Note what it took."""
        self._control.timed(step)
        last = self.steps[-1]
        last.draft_s, last.pass_s, last.step_s = step.draft_s, step.pass_s, self._clock() - self._began

    def why(self, sequence: View) -> str | None:
        """Note the reason, if nothing was drafted."""
        self.steps[-1].reason = reason = self._control.why(sequence)
        return reason


def trace(llm: LLM, prompt: list[int], max_tokens: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Answer plainly and with drafts; return what happened, without the envelope."""
    target, ends = llm.target, llm.target.tokenizer.end_ids
    # The first passes of a process are slow; at a fixed length control learns nothing from them.
    llm.generate(prompt[-WARM_TOKENS:], max_tokens=WARM_TOKENS, draft_length=4)
    llm.generate(prompt[-WARM_TOKENS:], max_tokens=WARM_TOKENS, speculate=False)
    plain = llm.generate(prompt, max_tokens=max_tokens, speculate=False)
    drafter, control = llm.drafting.choose("auto")
    watched = Watched(control, clock)
    decoder = Decoder(target.engine, drafter, watched, token_count=target.tokenizer.token_count, clock=clock)
    sequence = Sequence(list(prompt), Sampling(), max_tokens, ends)
    tokens = [token.id for token in decoder.run(sequence)]
    sections = sections_of(llm, prompt, tokens)
    for section in sections:
        section.update(found_in(section, watched.steps))
    return {
        "identical": tokens == plain.tokens,
        "plain_tokens_per_s": plain.stats.tokens_per_s,
        "tokens_per_s": sequence.stats.tokens_per_s,
        "stats": sequence.stats.as_dict(),
        "text": llm.decode(tokens),
        "sections": sections,
        "steps": [asdict(step) for step in watched.steps],
    }


def sections_of(llm: LLM, prompt: list[int], tokens: list[int]) -> list[dict[str, Any]]:
    """Return the answer's parts, divided at fences of code: kind, and first and last token (exclusive)."""
    ends = [len(llm.decode(tokens[: i + 1])) for i in range(len(tokens))]  # of tokens, in characters
    known = {line.strip() for line in llm.decode(prompt).splitlines()}
    found: list[dict[str, Any]] = []
    begin = 0
    for number, part in enumerate(llm.decode(tokens).split("```")):
        kind, size = PROSE, len(part) + (3 if number else 0)
        if number % 2:
            lines = [line.strip() for line in part.splitlines()[1:] if line.strip()]
            copied = sum(line in known for line in lines)
            kind = COPY if lines and copied >= COPIED * len(lines) else CODE
        first, last = (sum(end <= place for end in ends) for place in (begin, begin + size))
        begin += size
        if last > first:
            found.append({"kind": kind, "first": first, "last": last})
    return found


def found_in(section: dict[str, Any], steps: list[Stepped]) -> dict[str, Any]:
    """Return how a section went: its rates, and how many steps passed before its main drafter was used.

    The main drafter is the one that most accepted tokens are from, None if there are none.
    """
    own = [step for step in steps if section["first"] <= step.position < section["last"]]
    accepted = Counter(name for step in own for name in step.drafters[: step.accepted])
    main = accepted.most_common(1)[0][0] if accepted else None
    emitted, seconds = sum(step.emitted for step in own), sum(step.step_s for step in own)
    return {
        "steps": len(own),
        "tokens_per_s": emitted / seconds if seconds > 0 else 0.0,
        "tokens_per_pass": emitted / len(own) if own else 0.0,
        "draft_length": sum(step.drafted for step in own) / len(own) if own else 0.0,
        "accepted": dict(accepted),
        "drafter": main,
        "steps_until_it": next((i for i, step in enumerate(own) if main in step.drafters), None),
    }


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw the steps: above who drafted how much and what was kept, below the speed."""
    steps = [Stepped(**step) for step in report["steps"]]
    with picture(path, 11.0, 5.6, rows=2) as (above, below):
        for axes in (above, below):
            for section in report["sections"]:
                axes.axvspan(section["first"], section["last"], color=KINDS[section["kind"]], zorder=0)
        _draw_drafts(above, steps)
        high = max((step.drafted for step in steps), default=1) * 1.12
        above.set_ylim(0, max(high, 1.0))
        above.yaxis.get_major_locator().set_params(integer=True)
        for section in report["sections"]:
            middle = (section["first"] + section["last"]) / 2
            above.annotate(section["kind"], (middle, 0.98 * high), ha="center", va="top", fontsize=9)
        above.set_ylabel("tokens drafted at a step")
        above.set_title(as_it_is(_title(report)), fontsize=10)
        above.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.0, 0.9))
        _draw_speed(below, steps, report["plain_tokens_per_s"])


def _draw_drafts(axes: Any, steps: list[Stepped]) -> None:  # noqa: ANN401 - matplotlib has no types
    names = list(dict.fromkeys(name for step in steps for name in step.drafters))
    others = itertools.cycle(COLOURS)
    colours = {name: "tab:cyan" if name == "suffix" else next(others) for name in names}
    labelled: set[str] = set()
    for step in steps:
        guesses = [(name, i < step.accepted) for i, name in enumerate(step.drafters)]
        bottom = 0
        for (name, kept), run in itertools.groupby(guesses):
            height = len(list(run))
            label = f"{name}, {'accepted' if kept else 'rejected'}"
            look = {"color": colours[name]} if kept else {"facecolor": "none", "edgecolor": colours[name]}
            axes.bar(
                step.position,
                height,
                step.emitted,
                bottom,
                align="edge",
                linewidth=0.8,
                label=None if label in labelled else label,
                **look,
            )
            labelled.add(label)
            bottom += height


def _draw_speed(axes: Any, steps: list[Stepped], plain: float) -> None:  # noqa: ANN401
    last = [steps[max(0, i - WINDOW + 1) : i + 1] for i in range(len(steps))]
    speeds = [sum(s.emitted for s in few) / max(1e-9, sum(s.step_s for s in few)) for few in last]
    axes.step([step.position for step in steps], speeds, where="post", label=f"last {WINDOW} steps")
    axes.axhline(plain, color="tab:red", linestyle="--", linewidth=1, label=f"plain: {plain:.1f}")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, steps[-1].position + steps[-1].emitted if steps else 1)
    axes.set_xlabel("token of the answer")
    axes.set_ylabel("tokens/s")
    axes.legend(fontsize=8, loc="upper left")


def _title(report: dict[str, Any]) -> str:
    machine, drafts = report["machine"], ", ".join(draft["name"] for draft in report["drafts"])
    ratio = report["tokens_per_s"] / max(1e-9, report["plain_tokens_per_s"])
    return (
        f"{report['model']['name']}, drafts: {drafts}; {machine['cpu']}, {machine['isa']}, "
        f"{machine['threads']} threads; {ratio:.2f} times as fast as plain decoding"
    )


def table(report: dict[str, Any]) -> None:
    """Print the sections to stderr."""
    for section in report["sections"]:
        print(
            f"{section['first']:4} {section['kind']:11} {section['steps']:4} steps, "
            f"{section['tokens_per_s']:5.1f} tokens/s, {section['draft_length']:4.1f} drafted a step; "
            f"{section['drafter'] or 'nothing drafted'}, after {section['steps_until_it']} steps",
            file=sys.stderr,
        )
    print(
        f"{report['tokens_per_s']:.1f} tokens/s, plain {report['plain_tokens_per_s']:.1f}; "
        f"identical: {'yes' if report['identical'] else 'no'}",
        file=sys.stderr,
    )


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Load the models and answer; return the whole report."""
    settings = {"max_tokens": args.max_tokens, "temperature": 0.0, "prompt": str(args.prompt or "")}
    text = PROMPT if args.prompt is None else args.prompt.read_text(encoding="utf-8")
    with pilotfish.load(args.model, draft=args.draft or "auto", threads=args.threads) as llm:
        prompt = llm.chat_tokens([{"role": "user", "content": text}])
        result = trace(llm, prompt, args.max_tokens, time.perf_counter)
        return envelope("control trace", llm.target, llm.drafts, settings) | result


def main() -> int:
    """Measure or read, draw, print; exit code 1 if the two answers differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b", help="path or registry name")
    parser.add_argument("-d", "--draft", action="append", help="as `draft` of pilotfish.load; repeatable")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompt", type=Path, metavar="FILE", help="ask this instead")
    parser.add_argument("--max-tokens", type=int, default=600)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="ends in .png, .svg or .pdf")
    parser.add_argument("--read", type=Path, metavar="JSON", help="draw a stored report, measure nothing")
    args = parser.parse_args()
    try:
        if args.plot is not None:
            check_plot(args.plot)
        report = json.loads(args.read.read_text(encoding="utf-8")) if args.read else measure(args)
        if not args.read:
            print(json.dumps(report, ensure_ascii=False, allow_nan=False), flush=True)
        if args.plot is not None:
            draw(report, args.plot)
    except (PilotfishError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table(report)
    return 0 if report["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
