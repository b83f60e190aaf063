"""Load on `pilotfish serve` over HTTP: answers under load, speed with many clients, what a prefix saves.

    python benchmarks/serve.py soak -m qwen2.5-coder-1.5b --clients 8 --minutes 5
    python benchmarks/serve.py speed -m qwen2.5-coder-1.5b --peer-python VENV/bin/python
    python benchmarks/serve.py prefix -m qwen2.5-coder-1.5b

soak: clients ask all kinds of requests, every tenth hangs up. Each answer is compared with what the same
request is answered alone, plainly and with nothing kept. Memory is watched, and that all pages of the KV
cache are given back. Exit code 1 if an answer differs, a request fails, memory grows or a page is held.

speed: tokens/s of one client and of several, with and without drafts, beside the library in this process
and, with --peer-python (a Python that has `xllamacpp`), beside llama.cpp's server with as many slots. All
take turns round by round on the same prompts, and nothing is kept from one turn for the next.

prefix: time to the first token behind a long beginning, cold and warm, and whether the answers are the same.

The servers are processes of their own, on loopback, with the default number of threads. A table goes to
stderr, one JSON line to stdout. Only an idle machine gives fair figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pilotfish
from pilotfish.bench.http_stream import fetch
from pilotfish.bench.load import Ask, Heard, Report, Target, alone, draw, load, percentile
from pilotfish.bench.prompts import BUILT_IN, read_prompts, take
from pilotfish.bench.servers import Server, ServerFailed, idle
from pilotfish.bench.sets import read_set
from pilotfish.engines.native.threads import default_threads
from pilotfish.processor import cpu_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pilotfish.llm import LLM

MOST_GROWTH = 1.02
"""Memory in the last minute, at its most, may be so many times that in the first one."""

WARM_TOKENS = 8
"""Tokens that each way answers before anything is timed."""

PAGE = 64
PEER_SCRIPT = Path(__file__).with_name("llama_cpp_server.py")

PLAIN_1, DRAFT_1, PLAIN_N, DRAFT_N = "plain-1", "draft-1", "plain-n", "draft-n"
LIBRARY, PEER_1, PEER_N = "library", "llama.cpp-1", "llama.cpp-n"
OURS = {PLAIN_1: False, DRAFT_1: True, PLAIN_N: False, DRAFT_N: True}
"""Ways to ask our server, and whether it drafts; `-1` is one client, `-n` are several."""


def main() -> int:
    """Run what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, text in (("soak", "answers under load"), ("speed", "tokens/s"), ("prefix", "a kept prefix")):
        one = kinds.add_parser(kind, help=text)
        one.add_argument("-m", "--model", required=True, help="path or registry name")
        one.add_argument("-d", "--draft", action="append", default=[], help="as of `pilotfish serve`")
        one.add_argument("--prompts", type=Path, help="a file of prompts; by default our own")
        one.add_argument("--clients", type=int, default=8)
        one.add_argument("--max-tokens", type=int, default=128)
        one.add_argument("--seed", type=int, default=0)
        one.add_argument("--out", type=Path, help="also write the JSON here, indented")
        if kind == "soak":
            one.add_argument("--minutes", type=float, default=5.0)
            one.add_argument("--asks", type=int, default=48, help="different requests")
            one.add_argument("--cache-tokens", type=int, default=4096, help="as of `pilotfish serve`")
        elif kind == "speed":
            one.add_argument("--asks", type=int, default=16, help="prompts of a turn")
            one.add_argument("--rounds", type=int, default=2)
            one.add_argument("--peer-python", help="a Python that has xllamacpp")
            one.add_argument(
                "--ways",
                type=lambda text: text.split(","),
                default=[*OURS, LIBRARY, PEER_1, PEER_N],
                help="only these, separated by commas: " + ", ".join([*OURS, LIBRARY, PEER_1, PEER_N]),
            )
        else:
            one.add_argument("--tokens", type=int, default=2048, help="length of the beginning")
            one.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # servers end with this process
    run: Callable[[argparse.Namespace], dict[str, Any]]
    run = {"soak": soak, "speed": speed, "prefix": prefix}[options.kind]
    try:
        found = run(options)
    except ServerFailed as error:
        print(error, file=sys.stderr)
        return 2
    settings = {k: v for k, v in vars(options).items() if k not in {"kind", "out", "peer_python", "prompts"}}
    result = {
        "kind": f"serve {options.kind}",
        "schema": 1,
        "version": pilotfish.__version__,
        "machine": {"cpu": cpu_name(), "threads": default_threads()},
        "settings": settings,
        **found,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0 if result.get("ok", True) else 1


def texts(options: argparse.Namespace, count: int) -> list[str]:
    """Return prompts of all categories."""
    prompts = read_prompts(options.prompts) if options.prompts else [*BUILT_IN, *read_set("edits")]
    return [prompt.turns[0] for prompt in take(prompts, count)]


def ours(options: argparse.Namespace, *more: str) -> Server:
    """Start our server as the options say."""
    drafts = [word for name in options.draft for word in ("--draft", name)]
    return Server.ours(options.model, *drafts, *more)


async def target_of(server: Server) -> Target:
    """Return how a server is asked: by the first name that it gives its model."""
    models = json.loads(await fetch(server.address, "/v1/models"))
    return Target(server.address, models["data"][0]["id"])


# Answers under load


def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Load a server for some minutes, and check all that must hold."""
    asks = draw(texts(options, options.asks), options.asks, seed=options.seed, most_tokens=options.max_tokens)
    with ours(options, "--cache-tokens", str(options.cache_tokens)) as server:
        report, memory, held = asyncio.run(_soak(server, asks, options))
        ended = server.stop()
    minutes = [max(minute) for minute in memory if minute]
    growth = minutes[-1] / minutes[0]
    leaks = [line for line in ended.splitlines() if "still held" in line]
    ok = not report.errors and not report.different and growth <= MOST_GROWTH
    ok = ok and not held and not leaks and report.left > 0
    say = [
        f"{report.completed} answers, {report.left} clients left, {report.tokens_per_s:.1f} tokens/s in all",
        f"errors {len(report.errors)}, different from alone {len(report.different)}",
        f"first token after {_quantiles(report.first_s)}",
        f"memory by minute, MB: {', '.join(f'{m / 1e6:.1f}' for m in minutes)}; ratio {growth:.4f}",
        f"KV pages held when idle, beside what is kept: {held:g}; after the end: {leaks or 'none'}",
        *report.errors[:5],
        *report.different[:5],
    ]
    print("\n".join(say), file=sys.stderr)
    return {
        "ok": ok,
        "completed": report.completed,
        "left": report.left,
        "errors": len(report.errors),
        "different": len(report.different),
        "tokens": report.tokens,
        "tokens_per_s": report.tokens_per_s,
        "first_s": {f"p{p}": percentile(report.first_s, p / 100) for p in (50, 90, 99)},
        "resident_bytes": minutes,
        "resident_ratio": growth,
        "pages_held": held,
        "leaks": leaks,
    }


async def _soak(
    server: Server, asks: Sequence[Ask], options: argparse.Namespace
) -> tuple[Report, list[list[int]], float]:
    """Return what came of the load, memory by minute (bytes), and pages that nobody should hold."""
    target = await target_of(server)
    print(f"asking {len(asks)} requests alone", file=sys.stderr)
    answers = await alone(target, asks)
    print(f"{options.clients} clients for {options.minutes:g} minutes", file=sys.stderr)
    began = time.monotonic()
    memory: list[list[int]] = []

    async def watch() -> None:
        while True:
            minute = int((time.monotonic() - began) / 60)
            memory.extend([] for _ in range(minute + 1 - len(memory)))
            memory[minute].append(server.resident_bytes)
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    report = await load(
        target,
        asks,
        answers,
        clients=options.clients,
        goes_on=lambda _: time.monotonic() - began < 60 * options.minutes,
    )
    watching.cancel()
    now = await idle(server.address)
    kept = now.get("prefix_cache_tokens", 0) / PAGE
    return report, memory[: max(1, int(options.minutes))], _pages(now) - kept


def _pages(now: dict[str, float]) -> float:
    return now["kv_cache_pages"] + now.get("draft_kv_cache_pages", 0)


def _quantiles(values: Sequence[float]) -> str:
    shares = ((p, percentile(values, p / 100)) for p in (50, 90, 99))
    return ", ".join(f"{value * 1e3:.0f} ms (p{p})" for p, value in shares if value is not None)


# Speed


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Let all ways of answering take turns on the same prompts."""
    prompts = texts(options, options.asks)
    asks = [Ask(prompt, options.max_tokens, seed=i) for i, prompt in enumerate(prompts)]
    with contextlib.ExitStack() as stack:
        llm = stack.enter_context(pilotfish.load(options.model, draft=options.draft or "auto"))
        server = stack.enter_context(ours(options))
        peer = None
        if options.peer_python is not None:
            extra = ("--slots", str(options.clients), "--threads", str(llm.target.threads))
            path = llm.target.path or Path()
            peer = stack.enter_context(Server.llama_cpp(options.peer_python, PEER_SCRIPT, path, *extra))
        target = asyncio.run(target_of(server))

        def turn(way: str, number: int, some: Sequence[Ask]) -> tuple[Report, list[Heard]]:
            """Let one way answer; nothing is kept from one turn for the next."""
            if way == LIBRARY:
                return _library(llm, some)
            clients = 1 if way.endswith("-1") else options.clients
            if way not in OURS:
                assert peer is not None
                return asyncio.run(_turn(Target(peer.address, "m"), some, clients))
            fresh: dict[str, object] = {"cache_salt": f"{way} {number}"}
            fresh |= {} if OURS[way] else {"speculative": {"n_max": 0}}
            return asyncio.run(_turn(target(**fresh), some, clients))

        names = [way for way in options.ways if peer or way not in {PEER_1, PEER_N}]
        reports: dict[str, list[Report]] = {way: [] for way in names}
        said: dict[str, list[Heard]] = {way: [] for way in names}
        for way in names:
            turn(way, -1, [replace(asks[0], max_tokens=WARM_TOKENS)])
        for number in range(options.rounds):
            first = number % len(names)
            for way in names[first:] + names[:first]:
                report, heard = turn(way, number, asks)
                reports[way].append(report)
                said[way].extend(heard)
                print(f"round {number + 1}: {way}: {report.tokens_per_s:.1f} tokens/s", file=sys.stderr)
    return _speed_result(reports, said, peer)


async def _turn(target: Target, asks: Sequence[Ask], clients: int) -> tuple[Report, list[Heard]]:
    """Ask everything once."""
    heard: list[Heard] = []
    report = Report()
    rest = iter(asks)

    async def client() -> None:
        for ask in rest:
            heard.append(one := await target.ask(ask))
            report.count(ask, one, None)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    report.seconds = time.perf_counter() - began
    return report, heard


def _library(llm: LLM, asks: Sequence[Ask]) -> tuple[Report, list[Heard]]:
    """Answer one after the other, in this process."""
    heard, report = [], Report()
    began = time.perf_counter()
    for ask in asks:
        result = llm.chat([{"role": "user", "content": ask.prompt}], max_tokens=ask.max_tokens)
        one = Heard(result.text, result.finish_reason, len(result.tokens))
        one.timings = {"draft_n": result.stats.drafted, "draft_n_accepted": result.stats.accepted}
        heard.append(one)
        report.count(ask, one, None)
    report.seconds = time.perf_counter() - began
    return report, heard


def _speed_result(
    reports: dict[str, list[Report]],
    said: dict[str, list[Heard]],
    peer: Server | None,
) -> dict[str, Any]:
    modes: dict[str, dict[str, Any]] = {}
    for name, turns in reports.items():
        drafted = sum(one.timings.get("draft_n", 0) for one in said[name])
        accepted = sum(one.timings.get("draft_n_accepted", 0) for one in said[name])
        first_s = [value for turn in turns for value in turn.first_s]
        modes[name] = {
            "tokens": sum(turn.tokens for turn in turns),
            "seconds": sum(turn.seconds for turn in turns),
            "tokens_per_s": sum(turn.tokens for turn in turns) / sum(turn.seconds for turn in turns),
            "by_round": [turn.tokens_per_s for turn in turns],
            "errors": [error for turn in turns for error in turn.errors],
            "first_s": {f"p{p}": percentile(first_s, p / 100) for p in (50, 90)},
            "acceptance": accepted / drafted if drafted else None,
        }

    def over(a: str, b: str) -> float | None:
        return modes[a]["tokens_per_s"] / modes[b]["tokens_per_s"] if a in modes and b in modes else None

    ratios = {
        "many_drafting_over_one_plain": over(DRAFT_N, PLAIN_1),
        "many_plain_over_one_plain": over(PLAIN_N, PLAIN_1),
        "one_drafting_over_library": over(DRAFT_1, LIBRARY),
        "many_drafting_over_llama_cpp": over(DRAFT_N, PEER_N),
        "many_plain_over_llama_cpp": over(PLAIN_N, PEER_N),
        "one_plain_over_llama_cpp": over(PLAIN_1, PEER_1),
    }
    answers = [
        sorted((one.text, str(one.finish_reason)) for one in heard)
        for way, heard in said.items()
        if way in OURS
    ]
    identical = all(one == answers[0] for one in answers)
    rows = [
        f"{name:18} {mode['tokens_per_s']:8.1f} tokens/s   first token {_ms(mode['first_s']['p50'])}"
        f"   acceptance {_share(mode['acceptance'])}"
        for name, mode in modes.items()
    ]
    rows += [
        f"{name.replace('_', ' '):32} {value:6.2f}" for name, value in ratios.items() if value is not None
    ]
    rows.append(f"answers to one and to many are {'the same' if identical else 'DIFFERENT'}")
    print("\n".join(rows), file=sys.stderr)
    failed = any(mode["errors"] for mode in modes.values())
    return {
        "ok": identical and not failed,
        "identical": identical,
        "modes": modes,
        "ratios": ratios,
        "peer": None if peer is None else peer.about,
    }


def _ms(seconds: float | None) -> str:
    return "      -" if seconds is None else f"{seconds * 1e3:4.0f} ms"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


# A kept prefix


def prefix(options: argparse.Namespace) -> dict[str, Any]:
    """Ask behind a long beginning that nobody has asked about yet, then again with another question."""
    with ours(options) as server:
        times, same = asyncio.run(_prefix(server, options))
    ratio = statistics.median(warm / cold for cold, warm in times)
    cold, warm = (statistics.median(values) for values in zip(*times, strict=True))
    print(
        f"{options.tokens} tokens: cold {cold * 1e3:.0f} ms, warm {warm * 1e3:.0f} ms, ratio {ratio:.4f};"
        f" answers are {'the same' if same else 'DIFFERENT'}",
        file=sys.stderr,
    )
    return {
        "ok": same,
        "identical": same,
        "cold_s": [cold for cold, _ in times],
        "warm_s": [warm for _, warm in times],
        "ratio": ratio,
    }


async def _prefix(server: Server, options: argparse.Namespace) -> tuple[list[tuple[float, float]], bool]:
    target = await target_of(server)
    times: list[tuple[float, float]] = []
    same = True
    for number in range(options.rounds):
        beginning = await _beginning(target, options.tokens, number)
        first = Ask(beginning + "\nSay which number comes first.", 16, chat=False)
        again = replace(first, prompt=beginning + "\nSay which number comes last.")
        cold = await target(cache_salt=f"{number}").ask(first)
        warm = await target(cache_salt=f"{number}").ask(again)
        alone_ = await target(cache_salt=f"{number} alone").ask(again)
        for heard in (cold, warm, alone_):
            if heard.error or heard.first_s is None:
                raise ServerFailed(f"no first token: {asdict(heard)}")
        times.append((cold.first_s or 0.0, warm.first_s or 0.0))
        same = same and warm.answer == alone_.answer
    return times, same


async def _beginning(target: Target, tokens: int, number: int) -> str:
    """Return a text of about so many tokens that begins like no other one."""
    words = f"List {number}. " + " ".join(f"item {i * i % 997}," for i in range(tokens))
    count = len(json.loads(await fetch(target.address, "/tokenize", {"content": words}))["tokens"])
    return words[: len(words) * tokens // count]


if __name__ == "__main__":
    sys.exit(main())
