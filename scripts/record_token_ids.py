"""Records the token ids that llama.cpp gives for the texts of tests/text/nasty.py.

Needs `pip install xllamacpp`, which is not needed for anything else. Usage::

    python scripts/record_token_ids.py NAME=FILE.gguf ... > tests/text/nasty_ids.json
"""

# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import json
import sys
import urllib.request
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from text.nasty import TEXTS


def record(path: str) -> dict[str, list[list[int]]]:
    """Return ids of all texts, with special tokens as plain text and with special tokens read."""
    import xllamacpp  # noqa: PLC0415 - a tool for this script only

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 512
    params.warmup = False
    server = xllamacpp.Server(params)

    def ids(text: str, *, special: bool) -> list[int]:
        body = json.dumps({"content": text, "add_special": False, "parse_special": special}).encode()
        request = urllib.request.Request(  # noqa: S310 - the server this script has started
            f"{server.listening_address}/tokenize", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return list(json.load(answer)["tokens"])

    return {kind: [ids(text, special=kind == "special") for text in TEXTS] for kind in ("plain", "special")}


def main() -> None:
    """Record every model named on the command line."""
    models = dict(argument.split("=", 1) for argument in sys.argv[1:])
    recorded = {name: record(path) for name, path in models.items()}
    out = {"peer": f"llama.cpp, as in xllamacpp {version('xllamacpp')}", "models": recorded}
    sys.stdout.write(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
