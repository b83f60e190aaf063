"""What the int8 path costs in quality, beside llama.cpp: both against a float64 reference.

For each model the same four passages go through (i) the NumPy reference in tests/oracle, (ii) pilotfish's
native engine, (iii) llama.cpp in a process of its own. Printed per system: mean KL(reference || system) in
nats over all positions, and how often its most likely token is the reference's, over all positions and over
those where the reference's two largest logits are at least 0.2 apart. The first token of a text has
activations so much larger than the rest that its KL alone can outweigh all others: the mean is also given
without it, and the limit holds for both. The table goes to stderr, one JSON line to stdout.

    python benchmarks/quality.py -m smollm2-135m -m qwen2.5-coder-0.5b --peer-python /path/to/venv/bin/python

The peer's Python needs `pip install xllamacpp numpy`. Exit code 1 if pilotfish misses a limit below.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pilotfish
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.hub import cached_path
from pilotfish.processor import cpu_name

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from oracle.reference import Reference  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

CONFIDENT = 0.2
"""Top-2 margin of the reference, in logits, from which its choice is not called a near-tie."""
KL_LIMIT = 1.2
"""pilotfish's mean KL may be so many times llama.cpp's."""
AGREEMENT_LIMIT = 0.995
"""Share of confident positions at which pilotfish and llama.cpp must agree."""
SLICE = 128
"""Tokens in a pass, as in the engine's own prefill."""

PASSAGES = {
    "prose": """\
The harbour froze early that year. By the second week of November the fishing boats stood as still as
furniture, and the men who owned them walked up and down the quay with their hands in their pockets, looking
at the ice as one looks at a guest who has stayed too long. Old Marit, who kept the lighthouse, said that
she had seen worse in 1947, when a horse and sledge crossed to the island and came back with a piano. Nobody
believed the story about the piano, but everybody repeated it, and after a few days there were people who
remembered the tune.

It was the schoolteacher who thought of the library. There were nine hundred books in the town hall, most of
them about law, and she proposed to carry them from house to house on a pulk, so that each family would have
a new shelf every Monday. "We can't go out," she said, "so something has to come in." The mayor was against
it, because books lent are books lost. His wife was for it, and on the first Monday she pulled the rope
herself. In the evening there was light in the windows until after ten, which had not happened since the
herring left. In March, when the ice broke with a noise like a long train, four of the nine hundred were
missing.
""",
    "code": '''\
"""A least-recently-used cache with a limit in bytes."""

from collections import OrderedDict
from threading import Lock


class ByteCache:
    """Keeps values until their sizes exceed `limit`, then drops the ones not used for longest."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise ValueError(f"limit must not be negative, got {limit}")
        self._limit = limit
        self._size = 0
        self._items: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            value = self._items.get(key)
            if value is not None:
                self._items.move_to_end(key)
            return value

    def put(self, key: str, value: bytes) -> None:
        with self._lock:
            old = self._items.pop(key, None)
            if old is not None:
                self._size -= len(old)
            self._items[key] = value
            self._size += len(value)
            while self._size > self._limit:
                _, dropped = self._items.popitem(last=False)
                self._size -= len(dropped)
''',
    "maths": """\
Problem. A water tank is filled by two pipes. The first pipe alone fills it in 6 hours, the second alone in
4 hours. A drain at the bottom empties the full tank in 12 hours. Both pipes are opened at 8:00 with the
drain closed; at 9:00 somebody opens the drain by mistake. When is the tank full?

Solution. In one hour the first pipe fills 1/6 of the tank and the second 1/4, together 1/6 + 1/4 = 2/12 +
3/12 = 5/12. So at 9:00 the tank holds 5/12 of its volume and 1 - 5/12 = 7/12 is missing. From then on the
drain takes away 1/12 in each hour, so the level rises by 5/12 - 1/12 = 4/12 = 1/3 per hour. The missing
part needs (7/12) / (1/3) = 7/4 hours, that is 1 hour and 45 minutes. The tank is full at 10:45.

Check. At 10:45 the pipes have run for 2.75 hours and have brought 2.75 * 5/12 = 13.75/12. The drain has run
for 1.75 hours and has taken 1.75/12. The difference is 12/12 = 1, a full tank.
""",
    "dialogue": """\
Customer: Hello, I ordered a bicycle lamp last Tuesday and it hasn't arrived yet. The order number is 40817.
Support: Hello! Thank you for writing. Let me look that up for you. I can see that the parcel left our
warehouse on Wednesday morning and that it has been waiting at the sorting centre in Lyon since Thursday.
Customer: Is there a reason why it is waiting? I ride to work in the dark, so I really need the lamp.
Support: The carrier writes that the house number is missing from the label. Could you tell me your full
address?
Customer: Oh, that must have been my mistake. It is 14b, rue des Tanneurs, second floor.
Support: Thank you, I have sent the correction to the carrier. The parcel should reach you on Friday before
noon. Would you like a message on your phone when it is close?
Customer: Yes, please. And can I send the lamp back if it doesn't fit on my handlebar?
Support: Of course. You have thirty days to return it, and we pay for the postage. Just keep the box and the
receipt.
Customer: Perfect, that answers everything. Thank you for your help, and have a nice evening!
Support: You're welcome. Ride safely, and good evening to you too!
""",
}


def main() -> int:
    """Run the comparison; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-m", "--model", action="append", required=True, help="path or registry name; repeatable"
    )
    parser.add_argument("--peer-python", default=sys.executable, help="a Python that has xllamacpp")
    parser.add_argument("--without-pilotfish", action="store_true", help="only judge the peer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="also write the JSON here, indented")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "kind": "quality",
        "schema": 1,
        "version": pilotfish.__version__,
        "machine": {"cpu": cpu_name(), "threads": options.threads},
        "settings": {"confident_margin": CONFIDENT, "slice": SLICE},
        "models": [],
    }
    for model in options.model:
        entry = judge(model, options)
        print(table(entry), file=sys.stderr)
        result["peer"] = entry.pop("peer")
        result["models"].append(entry)
    result["ok"] = all(entry["ok"] for entry in result["models"])
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def judge(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the comparison for one model."""
    path = find(model)
    with tempfile.TemporaryDirectory() as folder:
        peer = run_peer(path, Path(folder), options)
        ids: list[list[int]] = peer.pop("ids")
        reference = Reference(path)
        hidden = reference.hidden(ids)
        ours = None if options.without_pilotfish else pilotfish_logits(path, ids, options.threads)
        counters: dict[str, dict[str, NDArray[np.float64]]] = {}
        for i, name in enumerate(PASSAGES):
            theirs = np.load(Path(folder) / f"{i}.npy")
            counters[name] = position_figures(reference.head(hidden[i]), theirs, next(ours) if ours else None)
    everything = {key: np.concatenate([part[key] for part in counters.values()]) for key in counters["prose"]}
    systems: dict[str, dict[str, Any]] = {
        system: {
            **summary(everything, system),
            "passages": {name: summary(part, system) for name, part in counters.items()},
        }
        for system in ("llama.cpp", "pilotfish")
        if f"{system} kl" in everything
    }
    entry: dict[str, Any] = {
        "model": {
            "name": Path(model).name,
            "sha256": hashlib.file_digest(path.open("rb"), "sha256").hexdigest(),
        },
        "positions": len(everything["confident"]),
        "confident_positions": int(everything["confident"].sum()),
        "systems": systems,
        "ok": True,
        "peer": peer,
    }
    if "pilotfish" in systems:
        ours_kl, theirs_kl = systems["pilotfish"], systems["llama.cpp"]
        entry["kl_ratio"] = ours_kl["mean_kl"] / theirs_kl["mean_kl"]
        entry["kl_ratio_after_first"] = ours_kl["mean_kl_after_first"] / theirs_kl["mean_kl_after_first"]
        entry["top1_between_confident"] = mean_where(everything["between"], everything["confident"])
        kl_ratio = max(entry["kl_ratio"], entry["kl_ratio_after_first"])
        entry["ok"] = kl_ratio <= KL_LIMIT and entry["top1_between_confident"] >= AGREEMENT_LIMIT
    return entry


def pilotfish_logits(path: Path, ids: list[list[int]], threads: int) -> Iterator[NDArray[np.float32]]:
    """Yield for each sequence the native engine's logits, shape (tokens, vocab)."""
    engine = NativeEngine.load(path, threads=threads, context=max(map(len, ids)))
    for tokens in ids:
        sequence = engine.open()
        parts = []
        for first in range(0, len(tokens), SLICE):
            part = tokens[first : first + SLICE]
            rows = engine.forward([Chunk(sequence, part, wanted=len(part))])
            parts += [rows.logits(i) for i in range(len(part))]
        engine.close(sequence)
        yield np.stack(parts)


def run_peer(path: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Let llama.cpp tokenize and evaluate the passages; its logits lie in the folder afterwards."""
    texts = folder / "texts.json"
    texts.write_text(json.dumps(list(PASSAGES.values())))
    script = TESTS / "oracle" / "llama_cpp.py"
    command = [options.peer_python, script, path, texts, folder, "--threads", str(options.threads)]
    subprocess.run(command, check=True)  # noqa: S603
    info: dict[str, Any] = json.loads((folder / "info.json").read_text())
    return info


def position_figures(
    reference: NDArray[np.floating[Any]], theirs: NDArray[np.float32], ours: NDArray[np.float32] | None
) -> dict[str, NDArray[np.float64]]:
    """Return per position: is the reference confident, and each system's KL and agreement with it."""
    best = reference.argmax(axis=1)
    top = np.partition(reference, -2, axis=1)[:, -2:]
    figures = {
        "confident": (top[:, 1] - top[:, 0] >= CONFIDENT).astype(np.float64),
        "after_first": (np.arange(len(best)) > 0).astype(np.float64),
    }
    wanted = log_softmax(reference)
    systems = {"llama.cpp": theirs} if ours is None else {"llama.cpp": theirs, "pilotfish": ours}
    for system, logits in systems.items():
        got = log_softmax(logits)
        figures[f"{system} kl"] = (np.exp(wanted) * (wanted - got)).sum(axis=1)
        figures[f"{system} top1"] = (logits.argmax(axis=1) == best).astype(np.float64)
    if ours is not None:
        figures["between"] = (ours.argmax(axis=1) == theirs.argmax(axis=1)).astype(np.float64)
    return figures


def summary(figures: dict[str, NDArray[np.float64]], system: str) -> dict[str, Any]:
    """Return the means over positions; `kl_se` is the standard error of `mean_kl_after_first`."""
    kl, top1 = figures[f"{system} kl"], figures[f"{system} top1"]
    later = kl[figures["after_first"] == 1]
    return {
        "mean_kl": float(kl.mean()),
        "mean_kl_after_first": float(later.mean()),
        "kl_se": float(later.std(ddof=1) / np.sqrt(len(later))),
        "top1": float(top1.mean()),
        "top1_confident": mean_where(top1, figures["confident"]),
    }


def mean_where(values: NDArray[np.float64], mask: NDArray[np.float64]) -> float:
    """Return the mean of the values where the mask is 1."""
    return float(values[mask == 1].mean())


def log_softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the log-probabilities of each row."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


def table(entry: dict[str, Any]) -> str:
    """Return the figures of one model for people."""
    lines = [
        f"{entry['model']['name']}: {entry['positions']} positions, {entry['confident_positions']} confident",
        f"  {'':14} {'mean KL':>9} {'after 1st':>9} {'±':>8} {'top-1':>7} {'confident':>9}",
    ]

    def line(name: str, figures: dict[str, float]) -> str:
        return (
            f"  {name:14} {figures['mean_kl']:9.6f} {figures['mean_kl_after_first']:9.6f}"
            f" {figures['kl_se']:8.6f} {figures['top1']:7.4f} {figures['top1_confident']:9.4f}"
        )

    for system, figures in entry["systems"].items():
        lines.append(line(system, figures))
        lines += [line(f"  {name}", passage) for name, passage in figures["passages"].items()]
    if "kl_ratio" in entry:
        lines.append(
            f"  KL ratio {entry['kl_ratio']:.3f}, after the first token {entry['kl_ratio_after_first']:.3f}"
            f" (limit {KL_LIMIT}); the two agree at {entry['top1_between_confident']:.4f}"
            f" of the confident positions (limit {AGREEMENT_LIMIT})"
        )
    return "\n".join(lines)


def find(model: str) -> Path:
    """Return the file of a path or a registry name that is in pilotfish's cache."""
    if Path(model).is_file():
        return Path(model)
    path = cached_path(model)
    if path is None:
        raise SystemExit(f"{model} is neither a file nor in the cache (`pilotfish pull {model}`)")
    return Path(path)


if __name__ == "__main__":
    sys.exit(main())
