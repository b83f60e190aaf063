"""How long a model takes to load, part by part, and how much memory at its peak.

Every run is a process of its own: it imports pilotfish, loads the model, and answers with 16 tokens. A second
process loads the same files by the parts that loading consists of. What is compared with the limits below is
the median of the runs, the files being in the system's page cache (they are read once before). The table goes
to stderr, one JSON line to stdout:

    python benchmarks/loading.py -m qwen2.5-coder-1.5b --draft off >docs/results/loading-avx2.json

Exit code 1 if a limit is missed.
"""

# ruff: noqa: PLC0415 - imports are timed, and the parent stays small: a child's peak begins with its parent's
from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOAD_LIMIT_S = 4.0
"""Seconds that `load` may take for a file of 1.1 GB from the page cache, in proportion for others."""
LIMIT_BYTES = 1.1e9
MEMORY_LIMIT = 1.4
"""Peak memory over the size of the files."""
TOKENS = 16


def main() -> int:
    """Measure in processes of their own; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b", help="path or registry name")
    parser.add_argument("--draft", default="off", help="as `draft` of pilotfish.load")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--child", choices=["whole", "parts"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(whole(options) if options.child == "whole" else parts(options)))
        return 0

    child("parts")  # reads the files into the page cache, and is not counted
    wholes = [child("whole") for _ in range(options.runs)]
    by_part = [child("parts") for _ in range(options.runs)]
    facts = wholes[0].pop("facts")
    for run in wholes[1:]:
        run.pop("facts")
    result = {
        "kind": "loading",
        "schema": 1,
        **facts,
        "settings": {"draft": options.draft, "context": options.context, "runs": options.runs},
        "whole": medians(wholes),
        "parts_s": medians(by_part),
    }
    size = facts["file_bytes"]
    result["memory_ratio"] = result["whole"]["ru_maxrss_bytes"] / size
    result["limits"] = {"load_s": LOAD_LIMIT_S * max(1.0, size / LIMIT_BYTES), "memory_ratio": MEMORY_LIMIT}
    result["ok"] = (
        result["whole"]["load_s"] <= result["limits"]["load_s"] and result["memory_ratio"] <= MEMORY_LIMIT
    )
    print(table(result), file=sys.stderr)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def child(kind: str) -> dict[str, Any]:
    """Run this file in a new process; adds the seconds from its last word to its end."""
    command = [sys.executable, __file__, *sys.argv[1:], "--child", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ourselves
        assert process.stdout is not None
        line = process.stdout.readline()
        said = time.perf_counter()
        if process.wait():
            raise SystemExit(f"the {kind} run failed")
    measured: dict[str, Any] = json.loads(line)
    if kind == "whole":
        measured["exit_s"] = time.perf_counter() - said
    return measured


def whole(options: argparse.Namespace) -> dict[str, Any]:
    """Load as users do."""
    begin = time.perf_counter()
    import pilotfish

    load = pilotfish.load  # what `import pilotfish` puts off
    imported = time.perf_counter()
    llm = load(options.model, options.draft, options.context, options.threads)
    loaded = time.perf_counter()
    loaded_rss = peak_bytes()
    llm.generate("def fibonacci(n):", max_tokens=TOKENS, temperature=0)
    answered = time.perf_counter()
    rss = peak_bytes()

    from pilotfish.model import Model
    from pilotfish.processor import cpu_name

    models = [llm.target, *(draft for draft in llm.drafts if isinstance(draft, Model))]
    facts = {
        "version": pilotfish.__version__,
        "model": llm.target.name,
        "drafts": [model.name for model in models[1:]],
        "file_bytes": sum(Path(model.path).stat().st_size for model in models if model.path),
        "machine": {"cpu": cpu_name(), "isa": llm.target.isa, "threads": llm.target.threads},
    }
    closing = time.perf_counter()
    llm.close()
    return {
        "import_s": imported - begin,
        "load_s": loaded - imported,
        "answer_s": answered - loaded,
        "close_s": time.perf_counter() - closing,
        "ru_maxrss_loaded_bytes": loaded_rss,
        "ru_maxrss_bytes": rss,
        "facts": facts,
    }


def parts(options: argparse.Namespace) -> dict[str, float]:
    """Load the target by the parts that `pilotfish.loading` puts together."""
    from pilotfish import hub
    from pilotfish.engines.native import NativeEngine
    from pilotfish.engines.native.container import Container
    from pilotfish.text.template import ChatTemplate
    from pilotfish.text.tokenizer import Tokenizer

    path = hub.resolve(options.model, offline=True).path
    at = [time.perf_counter()]
    with Container.open(path) as file:
        at.append(time.perf_counter())
        Tokenizer.from_metadata(file.metadata)
        at.append(time.perf_counter())
        if "tokenizer.chat_template" in file.metadata:
            ChatTemplate.from_metadata(file.metadata)
        at.append(time.perf_counter())
        NativeEngine.load(file, context=options.context, threads=options.threads)
        at.append(time.perf_counter())
    seconds = [after - before for before, after in itertools.pairwise(at)]
    return dict(zip(("header", "tokenizer", "template", "weights"), seconds, strict=True))


def peak_bytes() -> int:
    """Return this process's largest resident memory so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the median of each number over the runs."""
    return {key: round(statistics.median(run[key] for run in runs), 4) for key in runs[0]}


def table(result: dict[str, Any]) -> str:
    """Return the result as text."""
    names = " with ".join([result["model"], *result["drafts"]])
    lines = [f"{names}, {result['file_bytes'] / 1e6:,.0f} MB, {result['machine']}"]
    lines += [
        f"  {key.removesuffix('_s'):12} {value:8.3f} s"
        for key, value in result["whole"].items()
        if key.endswith("_s")
    ]
    lines.append("target alone, by part")
    lines += [f"  {key:12} {value:8.3f} s" for key, value in result["parts_s"].items()]
    lines.append(
        f"peak memory    {result['whole']['ru_maxrss_bytes'] / 1e6:,.0f} MB, "
        f"{result['memory_ratio']:.2f} times the files (limit {MEMORY_LIMIT})"
    )
    lines.append(f"load           {result['whole']['load_s']:.2f} s (limit {result['limits']['load_s']:.2f})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
