"""`make fuzz`: damage COUNT files, examine each, print how they ended and one JSON line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import pilotfish
from fuzz.children import MOST_S, Finding, examined
from fuzz.mutations import damaged

KEPT = Path("build/fuzz")
"""Where files with findings are kept."""


def main() -> int:
    """Run; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="files to damage (default 10000)")
    parser.add_argument("--seed", type=int, default=0, help="which files (default 0)")
    parser.add_argument("--first", type=int, default=0, help="index of the first file (default 0)")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--most-s", type=float, default=MOST_S, help="processor time that a file may take")
    asked = parser.parse_args()
    start = time.monotonic()
    findings: list[Finding] = []
    indices = range(asked.first, asked.first + asked.count)
    for found in examined(asked.seed, indices, asked.processes, most_s=asked.most_s):
        findings.append(found)
        if found.fault:
            keep = KEPT / f"{asked.seed}-{found.index}.gguf"
            KEPT.mkdir(parents=True, exist_ok=True)
            keep.write_bytes(damaged(asked.seed, found.index))
            _say(f"{keep}: {found.fault}")
        if len(findings) % 500 == 0:
            _say(f"{len(findings)} files")
    report(asked.seed, findings, time.monotonic() - start)
    return 1 if any(found.fault for found in findings) else 0


def report(seed: int, findings: list[Finding], elapsed_s: float) -> None:
    """Print how the files ended, then one JSON line."""
    outcomes = Counter(found.outcome for found in findings if not found.fault)
    for outcome, count in outcomes.most_common():
        _say(f"{count:7}  {outcome}")
    slowest = max(findings, key=lambda found: found.seconds)
    largest = max(findings, key=lambda found: found.peak_bytes)
    line = {
        "kind": "fuzz",
        "schema": 1,
        "version": pilotfish.__version__,
        "seed": seed,
        "files": len(findings),
        "faults": {found.index: found.fault for found in findings if found.fault},
        "outcomes": dict(outcomes.most_common()),
        "slowest": {"index": slowest.index, "s": round(slowest.seconds, 3)},
        "largest": {"index": largest.index, "bytes": largest.peak_bytes},
        "elapsed_s": round(elapsed_s, 1),
    }
    sys.stdout.write(json.dumps(line) + "\n")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
