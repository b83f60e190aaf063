"""Passes on the thread pool: cancelled, forked, with more threads than work.

Each test runs a process of its own, so that a hang ends as a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, threading
import numpy as np
from pilotfish.kernels import _kernels

WIDTH, OPS = 32, 40
rng = np.random.default_rng(0)
arena = _kernels.Arena(1 << 20)
def matrix():
    weight = _kernels.Weight(arena, 0, WIDTH, WIDTH)
    data = rng.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32)
    weight.pack(data.reshape(-1).view(np.uint8), None, 1)
    return weight
pages = _kernels.Pages(1, 1, 32)
program = _kernels.Program("portable", pages, False)
x, h, out = program.buffer(WIDTH), program.activations(WIDTH), program.buffer(WIDTH)
program.embed(matrix(), 1.0, x)
for _ in range(OPS):
    program.norm(x, np.ones(WIDTH, np.float32), 1e-5, h, False)
    program.linear(h, [(matrix(), None, 0)], x, True, False, "output")
program.linear(h, [(matrix(), None, 0)], out, False, True, "head")
program.set_logits(out)
page = pages.allocate()
def run(threads):
    one = lambda value: np.array([value], np.int32)
    return program.run(one(3), one(0), one(1), one(0), one(page), one(0), None, threads)
def digest(threads):
    assert run(threads)
    return program.digest(0)
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_pass_can_be_cancelled_at_any_moment_and_ends() -> None:
    """A late thread that sees the cancellation of the next op already must still take part in it.

    Each of 400 cancellations, at or behind the beginning of a pass, ends this pass or is still there.
    """
    script = """
want = digest(1)
start = threading.Barrier(2)
def canceller():
    for i in range(400):
        start.wait()
        for _ in range(i):
            pass
        program.cancel()
        start.wait()
thread = threading.Thread(target=canceller)
thread.start()
cancelled = 0
for _ in range(400):
    start.wait()
    finished = run(3)
    start.wait()
    assert program.uncancel() == finished, "a cancel is lost, or ends two passes"
    cancelled += not finished
thread.join()
assert cancelled, "no pass was cancelled"
assert digest(3) == want
print("ended")
"""
    assert run(script) == "ended"


def test_threads_without_work_change_nothing() -> None:
    assert run("print(len({digest(threads) for threads in (1, 2, 9, 1, 5)}))") == "1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system can't fork")
def test_a_forked_child_has_workers_of_its_own() -> None:
    script = """
want = digest(3)
child = os.fork()
if child == 0:
    os._exit(0 if digest(3) == want else 7)
assert os.waitpid(child, 0)[1] == 0
assert digest(3) == want
print("both")
"""
    assert run(script) == "both"
