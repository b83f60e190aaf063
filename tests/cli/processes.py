"""Processes of the command line: with a tiny model in place of any other, or with a place to be caught at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTS = Path(__file__).parents[1]

# Loads the tiny model in place of any other; a pass takes as long as the environment says.
SCRIPTED = f"""
import os, sys, time
sys.path.insert(0, {str(TESTS)!r})
import pilotfish.llm, pilotfish.loading
from pilotfish.cli import main
from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.scripted import copying
from tiny import VOCAB_SIZE, tiny_model

def load_models(name, wishes, *_args, **_options):
    target = tiny_model(copying(VOCAB_SIZE, 3))
    forward = target.engine.forward

    def slow(chunks):
        print("pass", file=sys.stderr, flush=True)
        time.sleep(float(os.environ.get("PASS_S", "0")))
        return forward(chunks)

    target.engine.forward = slow
    return target, [Drafting(Wish())]

pilotfish.loading.load_models = pilotfish.llm.load_models = load_models
main()
"""


def start(args: Sequence[str], *, scripted: bool = True, **environment: str) -> subprocess.Popen[str]:
    command = ["-c", SCRIPTED] if scripted else ["-m", "pilotfish"]
    return subprocess.Popen(
        [sys.executable, *command, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


RUN = ("run", "-m", "x", "--raw", "abc", "--max-tokens", "3000")

# Says "there" when a function, MODULE:NAME, is called for the n-th time; if it is to be held, stays there.
CAUGHT = f"""
import importlib, os, sys, time
sys.path.insert(0, {str(TESTS)!r})
place, count, setup = sys.argv[1:4]
exec(setup)
module, names = place.split(":")
owner = importlib.import_module(module)
*path, name = names.split(".")
for part in path:
    owner = getattr(owner, part)
inner, calls = getattr(owner, name), 0

def caught(*args, **options):
    global calls
    calls += 1
    if calls == int(count):
        print("there", file=sys.stderr, flush=True)
        if os.environ.get("HOLD"):
            time.sleep(600)
    return inner(*args, **options)

setattr(owner, name, caught)
sys.argv[1:] = sys.argv[4:]
from pilotfish.__main__ import main
main()
"""


def catch(
    place: str, args: Sequence[str], *, count: int = 1, hold: bool = False, setup: str = ""
) -> subprocess.Popen[str]:
    """Start a command and return once it is at the n-th call of a function."""
    process = subprocess.Popen(
        [sys.executable, "-c", CAUGHT, place, str(count), setup, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOLD": "1" if hold else ""},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line == "there\n":
            return process
    raise AssertionError(f"ended with {process.wait()} before it was there")
