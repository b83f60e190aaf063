"""The files in deploy/: what they call exists, and what they promise about each other holds."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import click
import pytest

from pilotfish.cli import COMMANDS, cli

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "pilotfish.service").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
IGNORED = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
PROGRAM = "/opt/pilotfish/bin/pilotfish"

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")


def settings(text: str) -> dict[str, str]:
    """Return what the unit says, the last of each key."""
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z]\w+=", line))


def parameters(command: str) -> dict[str, click.Parameter]:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    return {option: p for p in found.params for option in p.opts}


def check(words: list[str]) -> None:
    """Assert that a command line exists."""
    assert words[0] in COMMANDS
    assert {word for word in words[1:] if word.startswith("-")} <= parameters(words[0]).keys()


def verified(unit: str, folder: Path) -> str:
    """Return what systemd has to say to a unit, whose program is none that is installed here."""
    file = folder / "pilotfish.service"
    file.write_text(unit.replace(PROGRAM, sys.executable), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 and not done.stderr else done.stderr or "refused"


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    assert verified(UNIT, tmp_path) == ""
    wrong = UNIT.replace("ProtectSystem=strict", "ProtectSistem=strict")
    assert "ProtectSistem" in verified(wrong, tmp_path)


@needs_systemd
def test_systemd_holds_the_unit_for_well_confined(tmp_path: Path) -> None:
    """Its own measure goes from 0 to 10; 1.5 leaves the network and user ids that a server needs."""
    file = tmp_path / "pilotfish.service"
    file.write_text(UNIT.replace(PROGRAM, sys.executable), encoding="utf-8")
    for text, good in ((UNIT, 0), (UNIT.replace("SystemCallFilter", "X-Filter"), 1)):
        file.write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
        command = ["systemd-analyze", "security", "--offline=true", "--threshold=15", str(file)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == good


def test_commands_of_the_unit_exist() -> None:
    said = settings(UNIT)
    lines = [said["ExecStart"], said["ExecStartPre"].removeprefix("-")]
    for line in lines:
        program, *words = line.split()
        assert program == PROGRAM
        check(words)


def test_the_unit_waits_longer_for_the_end_than_answers_may_take() -> None:
    said = settings(UNIT)
    drain = parameters("serve")["--drain"].default
    assert isinstance(drain, int | float)
    assert said["KillSignal"] == "SIGTERM"
    assert int(said["TimeoutStopSec"].removesuffix("s")) >= drain + 20
    assert f"{drain:g} s" in UNIT


def test_commands_of_the_image_exist() -> None:
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    [command] = re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)
    assert json.loads(entry) == ["pilotfish"]
    check(json.loads(command))
    assert f"EXPOSE {parameters('serve')['--port'].default}" in DOCKERFILE


@pytest.mark.parametrize("text", [UNIT, DOCKERFILE], ids=["unit", "image"])
def test_variables_are_options_or_read(text: str) -> None:
    sources = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    options = {f"PILOTFISH_{name[2:].upper().replace('-', '_')}" for c in COMMANDS for name in all_options(c)}
    for name in re.findall(r"PILOTFISH_\w+", text):
        assert name in options or f'"{name}"' in sources, name


def all_options(command: str) -> list[str]:
    return [name for name in parameters(command) if name.startswith("--")]


def test_the_image_is_built_from_what_there_is_and_all_that_is_needed() -> None:
    copied = {
        word for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    }
    assert copied == {line[1:] for line in IGNORED.splitlines() if line.startswith("!")}
    for name in copied:
        assert (ROOT / name).exists(), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {project["readme"], *project["license-files"]} <= copied
    assert (
        set(re.findall(r"\[(\w+)\]\"", DOCKERFILE)) == {"server"} <= project["optional-dependencies"].keys()
    )
    [python] = re.findall(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]


def test_the_image_runs_as_a_user_that_owns_the_volume_only() -> None:
    final = DOCKERFILE.split("\nFROM ")[-1]
    [user] = re.findall(r"^USER (\d+):\d+$", final, re.MULTILINE)
    assert int(user) > 0
    assert f"--uid {user}" in final
    assert final.index("USER ") < final.index("ENTRYPOINT ")
    assert re.findall(r"PILOTFISH_CACHE=(\S+)", final) == re.findall(r"^VOLUME (.*)$", final, re.MULTILINE)


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
def test_the_image_is_healthy_when_health_says_so(status: int | None, healthy: bool) -> None:
    """The program of the health check runs against a double, on the port that the variable names."""
    paths = []

    class Double(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status or 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    [line] = re.findall(r"HEALTHCHECK .*\\\n +CMD (.*)$", DOCKERFILE, re.MULTILINE)
    python, flag, program = json.loads(line)
    assert (python, flag) == ("python", "-c")
    with HTTPServer(("127.0.0.1", 0), Double) as server:
        thread = threading.Thread(target=server.serve_forever)
        if status is not None:
            thread.start()
        else:
            server.socket.close()
        try:
            command = [sys.executable, "-c", program]
            environment = {**os.environ, "PILOTFISH_PORT": str(server.server_port)}
            done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environment)
        finally:
            if status is not None:
                server.shutdown()
                thread.join()
    assert (done.returncode == 0) is healthy
    assert paths == ([] if status is None else ["/health"])


def test_docs_name_each_file() -> None:
    for file in sorted((ROOT / "deploy").iterdir()):
        if not file.name.endswith(".dockerignore"):
            assert f"deploy/{file.name}" in PAGE
