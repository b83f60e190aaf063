"""Draw a stored report of `pilotfish bench speed --json`: ratios by category and mode.

python benchmarks/plot_speed.py docs/results/speed-edits-avx2.json speed-edits.png
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pilotfish.bench.plot_speed import plot
from pilotfish.errors import PilotfishError


def main() -> int:
    """Read, draw; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path, help="what `bench speed --json` printed")
    parser.add_argument("picture", type=Path, help="ends in .png, .svg or .pdf")
    args = parser.parse_args()
    try:
        plot(json.loads(args.report.read_text(encoding="utf-8")), args.picture)
    except (PilotfishError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
