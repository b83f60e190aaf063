"""Servers as processes of their own, to be measured: started, watched, ended."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pilotfish.bench.http_stream import Address, HttpError, fetch

if TYPE_CHECKING:
    from types import TracebackType

READY_S = 600.0
"""Seconds that a server may take to load its model."""

END_S = 120.0
"""Seconds that it may take to end."""

LOOK_S = 0.2


class ServerFailed(Exception):
    """A server did not start, or did not end as it should."""


class Server:
    """A server in a process; a context manager, which ends it.

    Attributes
    ----------
    address
        Where it listens.
    about
        What it says about itself: version and build, if it does.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Start a process; it ends with its stdin, or on SIGTERM."""
        self.address = Address("127.0.0.1", 0)
        self.about: dict[str, str] = {}
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed in `stop`
        self._process = subprocess.Popen(  # noqa: S603 - the commands below
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )

    @classmethod
    def ours(cls, model: str, *options: str) -> Self:
        """Start `pilotfish serve`, and wait until it answers."""
        server = cls(ours_command(model, options))
        server._wait_for_line("is served at ")
        return server

    @classmethod
    def llama_cpp(cls, python: str, script: Path, model: Path, *options: str) -> Self:
        """Start llama.cpp's server: see `benchmarks/llama_cpp_server.py`."""
        server = cls([python, str(script), str(model), *options])
        assert server._process.stdout is not None
        line = server._process.stdout.readline()
        if not line:
            raise ServerFailed(f"llama.cpp's server did not start: {server.stop()[-2000:]}")
        server.about = json.loads(line)
        server.address = Address.of(server.about.pop("url"))
        return server

    @property
    def resident_bytes(self) -> int:
        """Memory that the process holds; Linux only."""
        return resident_bytes(self._process.pid)

    def said(self) -> str:
        """Return what it has written to stderr."""
        self._said.seek(0)
        return self._said.read()

    def stop(self) -> str:
        """End it as a supervisor does, and return all that it has written to stderr.

        Raises
        ------
        ServerFailed
            It does not end in time.
        """
        if self._said.closed:
            return ""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise ServerFailed(f"the server did not end within {END_S:g} s") from error
        said = self.said()
        self._said.close()
        return said

    def _wait_for_line(self, words: str) -> None:
        """Wait for the line that says where it listens."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self._process.poll() is None:
            for line in self.said().splitlines():
                if words in line:
                    self.address = Address.of(line.split(words)[1])
                    return
            time.sleep(LOOK_S)
        said = self.stop()
        raise ServerFailed(f"the server did not start: {said[-2000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def ours_command(model: str, options: Sequence[str]) -> list[str]:
    """Return what starts our server, on a free port."""
    return [sys.executable, "-m", "pilotfish", "serve", "--model", model, "--port", "0", *options]


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds, in bytes; Linux only."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0


async def figures(address: Address) -> dict[str, float]:
    """Return what `/metrics` says, without the prefix, summed over labels; buckets are left out."""
    sums: dict[str, float] = {}
    for line in (await fetch(address, "/metrics")).decode().splitlines():
        if not line.startswith("#") and "_bucket{" not in line:
            name, value = line.split("{")[0].split(" ")[0], float(line.rsplit(" ", 1)[1])
            name = name.partition(":")[2] or name
            sums[name] = sums.get(name, 0.0) + value
    return sums


async def idle(address: Address, within_s: float = 10.0) -> dict[str, float]:
    """Wait until nobody is answered any more, and return the figures.

    Raises
    ------
    HttpError
        Somebody still is after that time.
    """
    until = time.monotonic() + within_s
    while True:
        now = await figures(address)
        if not now["num_requests_running"] + now["num_requests_waiting"]:
            return now
        if time.monotonic() > until:
            raise HttpError(f"requests run though all clients are gone: {now}")
        await asyncio.sleep(LOOK_S)
