"""What the suffix drafter costs a token, and whether its confidence can be believed.

Cost: processor time of one append and of one draft of 8 tokens after 1,000, 8,000 and 32,000 tokens of this
repository's files, of the same token, of two in turn and of random ones, and bytes a token.

Calibration: a text is walked through as decoding would, a draft of 8 tokens a step, and each guess up to the
first wrong one is compared with the text: once with the confidence that the counts alone give, once corrected
by past success, as the drafter reports it. The texts are the second halves of this repository's files and,
with `--answers FILE`, answers: one JSON object a line with `prompt` and `answer`, lists of ids. With
`--prompts` they are made first (greedy, of the model itself) and kept there.

The tables go to stderr, one JSON line to stdout.

    python benchmarks/suffix.py -m qwen2.5-coder-0.5b --prompts FILE --limit 26 --answers answers.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pilotfish
from pilotfish.bench.prompts import read_prompts, take
from pilotfish.drafters.automaton import Automaton
from pilotfish.drafters.suffix import SuffixDrafter
from pilotfish.engines.native.container import Container
from pilotfish.hub import resolve
from pilotfish.processor import cpu_name
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
SIZES = (1_000, 8_000, 32_000)
DRAFT = 8
TIMED = 500
"""Appends and drafts that are timed at each size."""
BINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
FILES = 40


class Claim(NamedTuple):
    """A guess: what was claimed by counts alone, what with past success, and whether it was right."""

    counted: float
    corrected: float
    right: bool


def repository_texts() -> list[str]:
    """Return this repository's files in a fixed random order."""
    paths = [
        path
        for folder in ("src", "tests", "docs")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".md", ".cpp", ".h", ".inl"}
    ]
    random.Random(1).shuffle(paths)  # noqa: S311 - no secret
    return [path.read_text(encoding="utf-8") for path in paths]


def texts(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Return texts of a little more than the largest size."""
    size = SIZES[-1] + TIMED
    noise = random.Random(0)  # noqa: S311 - no secret
    code: list[int] = []
    for text in repository_texts():
        if len(code) < size:
            code += tokenizer.encode(text)
    return {
        "files": code[:size],
        "aaaa": [7] * size,
        "abab": [7, 8] * (size // 2),
        "random": [noise.randrange(50_000) for _ in range(size)],
    }


def costs(text: list[int]) -> Iterator[dict[str, float]]:
    """Yield times at each size, in microseconds, and memory."""
    automaton = Automaton()
    for size in SIZES:
        for token in text[automaton.size : size]:
            automaton.append(token)
        append: list[float] = []
        propose: list[float] = []
        for token in text[size : size + TIMED]:
            append.append(_timed(automaton.append, token))
            propose.append(_timed(automaton.walk, DRAFT, 1))
        yield {
            "tokens": size,
            **_summary("append_us", append),
            **_summary("propose_us", propose),
            "bytes_per_token": memory(text[:size]),
        }


def memory(text: list[int]) -> float:
    """Return the bytes that an automaton takes for each token."""
    tracemalloc.start()
    automaton = Automaton()
    for token in text:
        automaton.append(token)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(used / automaton.size, 1)


def _timed(action: Callable[..., object], *given: int) -> float:
    start = time.thread_time_ns()
    action(*given)
    return (time.thread_time_ns() - start) / 1000


def _summary(name: str, times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        name: round(sum(ordered) / len(ordered), 2),
        f"{name}_p99": round(ordered[len(ordered) * 99 // 100], 2),
    }


def claims(prompt: list[int], answer: list[int]) -> Iterator[Claim]:
    """Decode a text that is known, by drafts of the suffix drafter alone."""
    drafter, automaton = SuffixDrafter(), Automaton()
    sequence = Sequence(list(prompt), Sampling(), len(answer))
    whole = [*prompt, *answer]
    while len(sequence.tokens) < len(whole):
        for token in sequence.tokens[automaton.size :]:
            automaton.append(token)
        counted = [confidence for _, confidence, _ in automaton.walk(DRAFT, drafter.min_match)]
        draft = drafter.propose([sequence], [DRAFT])[0]
        size = len(sequence.tokens)
        accepted = 0
        for at, token in enumerate(draft.tokens[: len(whole) - size]):
            right = whole[size + at] == token
            yield Claim(counted[at], draft.confidence[at], right)
            if not right:
                break
            accepted += 1
        sequence.tokens += whole[size : size + accepted + 1]


def reliability(found: list[Claim], name: str) -> dict[str, Any]:
    """Return claimed and true shares by bins of the claim, their mean distance, and the log-loss in nats."""
    said = [(getattr(claim, name), claim.right) for claim in found]
    bins = []
    for low, high in itertools.pairwise(BINS):
        here = [(claim, right) for claim, right in said if low <= claim < high]
        if here:
            claimed = sum(claim for claim, _ in here) / len(here)
            true = sum(right for _, right in here) / len(here)
            bins.append({"from": low, "guesses": len(here), "claimed": claimed, "true": true})
    distance = sum(b["guesses"] * abs(b["claimed"] - b["true"]) for b in bins) / max(1, len(said))
    loss = -sum(math.log(claim if right else 1 - claim) for claim, right in said) / max(1, len(said))
    return {"distance": distance, "log_loss": loss, "bins": bins}


def answers(args: argparse.Namespace) -> list[tuple[list[int], list[int]]]:
    """Return prompts and answers, made now or kept from an earlier run."""
    if args.prompts is not None:
        made = []
        with pilotfish.load(args.model, draft="suffix") as llm:
            for prompt in take(read_prompts(args.prompts), args.limit):
                ids = llm.chat_tokens([{"role": "user", "content": prompt.turns[0]}])
                result = llm.generate(ids, max_tokens=args.max_tokens)
                made.append(json.dumps({"prompt": ids, "answer": result.tokens}))
        args.answers.write_text("\n".join(made) + "\n")
    if args.answers is None:
        return []
    lines = [json.loads(line) for line in args.answers.read_text().splitlines()]
    return [(line["prompt"], line["answer"]) for line in lines]


def report(text: str = "") -> None:
    """Print a line of a table."""
    print(text, file=sys.stderr)


def main() -> None:
    """Measure, print tables and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", default="smollm2-135m", help="whose tokenizer is used")
    parser.add_argument("--prompts", type=Path, help="prompts to answer first")
    parser.add_argument("--limit", type=int, help="number of prompts")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--answers", type=Path, help="recorded answers, made by --prompts")
    args = parser.parse_args()
    if args.prompts is not None and args.answers is None:
        parser.error("--prompts needs --answers, a file to keep them in")

    with Container.open(resolve(args.model).path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    report("text      tokens  append µs    p99  draft µs    p99  bytes/token")
    cost: dict[str, list[dict[str, float]]] = {}
    for name, text in texts(tokenizer).items():
        cost[name] = []
        for row in costs(text):
            cost[name].append(row)
            report(
                f"{name:8} {row['tokens']:7} {row['append_us']:10.1f} {row['append_us_p99']:6.1f} "
                f"{row['propose_us']:9.1f} {row['propose_us_p99']:6.1f} {row['bytes_per_token']:12.0f}"
            )

    halves = [tokenizer.encode(text)[:4000] for text in repository_texts()[:FILES]]
    known = {
        "files": [(ids[: len(ids) // 2], ids[len(ids) // 2 :]) for ids in halves],
        "answers": answers(args),
    }
    calibration: dict[str, dict[str, Any]] = {}
    for name, pairs in known.items():
        found = [claim for prompt, answer in pairs for claim in claims(prompt, answer)]
        if not found:
            continue
        calibration[name] = {
            kind: {"guesses": len(found), **reliability(found, kind)} for kind in ("counted", "corrected")
        }
        for kind, table in calibration[name].items():
            report(
                f"\n{name}, {kind}: {table['guesses']} guesses, claims are off by {table['distance']:.3f}, "
                f"log-loss {table['log_loss']:.4f}"
            )
            for row in table["bins"]:
                report(f"  {row['guesses']:6} claimed {row['claimed']:.2f}  true {row['true']:.2f}")
    print(
        json.dumps(
            {
                "kind": "benchmark suffix",
                "schema": 1,
                "version": pilotfish.__version__,
                "model": args.model,
                "machine": {"cpu": cpu_name()},
                "settings": {"draft_tokens": DRAFT},
                "costs": cost,
                "calibration": calibration,
            }
        )
    )


if __name__ == "__main__":
    main()
