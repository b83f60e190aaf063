"""Calls of the command line within the test's process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from pilotfish.cli import cli


@dataclass
class Outcome:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout, which has to be exactly one line of JSON."""
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """Stderr, which has to be exactly one line; stdout has to be empty and the exit code 2."""
        assert (self.code, self.out) == (2, "")
        assert self.err.count("\n") == 1
        assert self.err.startswith("pilotfish: error: ")
        assert "Traceback" not in self.err
        return self.err.removeprefix("pilotfish: error: ").rstrip("\n")


def call(*args: str, text: str | None = None, **environment: str) -> Outcome:
    done = CliRunner().invoke(cli, args, input=text, env=environment)
    return Outcome(done.exit_code, done.stdout, done.stderr)
