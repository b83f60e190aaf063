"""Processes that examine files, watched: one that dies or hangs is a finding, not the end."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

MOST_S = 2.0
"""Processor time that a file may take."""

STUCK_S = 60.0
"""Time without an answer after which a child counts as stuck."""

RESIDENT_BYTES = 64 << 20
"""What a child may grow by for one file, beside a multiple of its size, as a template's budget."""

ADDRESS_BYTES = 4 << 30
"""Address space beyond which an allocation fails, so that a finding does not fill the machine."""

_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Finding:
    """One examined file.

    Attributes
    ----------
    index
        Which file.
    outcome
        How it ended, such as "header: FormatError".
    fault
        What was broken; empty if nothing was.
    seconds
        Processor time.
    peak_bytes
        Most memory at a time.
    """

    index: int
    outcome: str = ""
    fault: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(slots=True)
class _Child:
    process: BaseProcess
    connection: Connection
    index: int | None = None
    ready: bool = False
    waited_s: float = 0.0  # no more than a second a look, so that a pause of all processes does not count


def examined(
    seed: int, indices: Iterable[int], processes: int, *, most_s: float = MOST_S
) -> Iterator[Finding]:
    """Examine the damaged files of these indices in several processes; yield findings as they come.

    Indices -1, -2 and -3 stand for a child that crashes, hangs or raises, to test what watches over it.
    """
    waiting = iter(indices)
    children = [_start(seed, most_s) for _ in range(processes)]
    try:
        for child in children:
            _give(child, waiting)
        before = time.monotonic()
        while busy := [child for child in children if child.index is not None]:
            ready = multiprocessing.connection.wait(
                [item for child in busy for item in (child.connection, child.process.sentinel)], 1.0
            )
            now = time.monotonic()
            for child in busy:
                child.waited_s += min(now - before, 1.0)
                found = _finding(child, ready)
                if found is None:
                    continue
                yield found
                next_child = child
                if found.fault.startswith(("dies", "hangs")):
                    children.remove(child)
                    _end(child)
                    next_child = _start(seed, most_s)
                    children.append(next_child)
                _give(next_child, waiting)
            before = now
    finally:
        for child in children:
            _end(child)


def _finding(child: _Child, ready: Sequence[object]) -> Finding | None:
    """Return what a child says of its file, or what its end says; None if it is still at work."""
    assert child.index is not None
    if child.connection in ready:
        with contextlib.suppress(EOFError, OSError):
            found = child.connection.recv()
            child.waited_s = 0.0
            if isinstance(found, Finding):
                return found
            child.ready = True  # its imports are done
            return None
    if child.process.sentinel in ready:
        child.process.join()
        code = child.process.exitcode or 0
        if code == -signal.SIGPROF:
            return Finding(child.index, fault="hangs: too much processor time")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Finding(child.index, fault=f"dies: {name}")
    if child.ready and child.waited_s > STUCK_S:
        return Finding(child.index, fault=f"hangs: nothing heard for {STUCK_S} s", seconds=STUCK_S)
    return None


def _start(seed: int, most_s: float) -> _Child:
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_work, args=(theirs, seed, most_s), daemon=True)
    process.start()
    theirs.close()
    return _Child(process, ours)


def _give(child: _Child, waiting: Iterator[int]) -> None:
    child.index, child.waited_s = next(waiting, None), 0.0
    if child.index is not None:
        with contextlib.suppress(OSError):  # it died: its end is seen next
            child.connection.send(child.index)


def _end(child: _Child) -> None:
    child.process.kill()
    child.process.join()
    child.connection.close()


def _work(connection: Connection, seed: int, most_s: float) -> None:
    """Examine files by index until the other side is gone."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PILOTFISH_CACHE"] = folder
        from fuzz.examine import TIMES_SIZE, Broken, examine, measure
        from fuzz.mutations import damaged

        path = Path(folder) / "damaged.gguf"
        damaged(seed, 0)
        _limit_address_space()
        connection.send("ready")
        while True:
            try:
                index = connection.recv()
            except (EOFError, OSError):
                return
            path.write_bytes(damaged(seed, index))
            size, before, start = path.stat().st_size, _resident(), time.process_time()
            outcome, fault, peak = "", "", 0
            signal.setitimer(signal.ITIMER_PROF, most_s)  # whose signal ends the process
            try:
                _FAULTS.get(index, int)()
                outcome = examine(path)
            except Broken as error:
                fault = str(error)
            except Exception:
                fault = traceback.format_exc()[-2000:]
            signal.setitimer(signal.ITIMER_PROF, 0)
            seconds = time.process_time() - start
            grown = _resident() - before
            if not fault and grown > TIMES_SIZE * size + RESIDENT_BYTES:
                fault = f"{grown} more bytes resident for a file of {size}"
            if not fault:
                try:
                    peak = measure(path)
                except Exception:
                    fault = traceback.format_exc()[-2000:]
            connection.send(Finding(index, outcome, fault, seconds, peak))


def _hang() -> None:
    while True:
        pass


def _raise() -> None:
    raise RuntimeError


_FAULTS = {-1: lambda: os.kill(os.getpid(), signal.SIGSEGV), -2: _hang, -3: _raise}


def _resident() -> int:
    """Return the most memory that this process has had so far, in bytes."""
    unit = 1 if os.uname().sysname == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _limit_address_space() -> None:
    with contextlib.suppress(OSError, ValueError):  # macOS has no such limit
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_BYTES, used + ADDRESS_BYTES))
