"""`pilotfish serve`: says where it serves, drains at the first signal, ends at the second."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cli.processes import SCRIPTED, start
from cli_calls import call
from pilotfish.serving.prefixes import MOST_TOKENS
from pilotfish.serving.scheduler import MOST_RUNNING, MOST_WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 60
SERVE = ("serve", "-m", "x", "--port", "0")


class Served:
    """A server in a process of its own; `lines` are those of its stderr so far, but for passes."""

    def __init__(self, *args: str, pass_s: float = 0.0, key: str = "") -> None:
        environment: dict[str, Any] = {"PILOTFISH_API_KEY": key} if key else {}
        self.process = start([*SERVE, *args], **environment, PASS_S=str(pass_s))
        self.lines: list[str] = []
        self.port = int(re.findall(r":(\d+)/v1$", self.line("is served at"))[0])

    def line(self, word: str) -> str:
        """Return the next line with a word in it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line != "pass\n":
                self.lines.append(line.rstrip("\n"))
            if word in line:
                return line.rstrip("\n")
        raise AssertionError(f"it ended with {self.process.wait()}, having said {self.lines}")

    def ask(self, **fields: object) -> http.client.HTTPResponse:
        """Ask for a completion."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        body = json.dumps({"prompt": "abc", "temperature": 0, **fields})
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        return connection.getresponse()

    def ends(self) -> tuple[int, str]:
        """Return the exit code and the rest of stderr, but for passes."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert out == ""
        return self.process.returncode, "\n".join(one for one in err.splitlines() if one != "pass")


@pytest.fixture
def started() -> Iterator[Callable[..., Served]]:
    """Start servers, which are ended with the test."""
    ones: list[Served] = []

    def start_one(*args: str, **how: Any) -> Served:
        ones.append(Served(*args, **how))
        return ones[-1]

    yield start_one
    for one in ones:
        one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_answers_logs_a_line_a_request_and_ends_at_a_signal(
    started: Callable[..., Served], number: signal.Signals, code: int
) -> None:
    served = started()
    found = json.loads(served.ask(max_tokens=6).read())
    assert found["choices"][0]["text"] == "abcabc"
    logged = served.line("/v1/completions")
    assert re.match(
        r"\d{4}-\d\d-\d\dT\S+ /v1/completions cmpl-\w+ length, prompt 3 \(0 cached\), 6 tokens", logged
    )
    assert served.ask(max_tokens=0).status == 400
    assert served.line("/v1/completions").endswith("'/v1/completions' 400 max_tokens")
    served.process.send_signal(number)
    assert served.ends() == (code, "")


def test_the_first_signal_lets_answers_end_and_the_second_does_not(started: Callable[..., Served]) -> None:
    served = started("--drain", "50", pass_s=0.02)
    response = served.ask(max_tokens=40, stream=True)
    assert response.readline().startswith(b"data: {")
    served.process.send_signal(signal.SIGTERM)
    assert "requests being answered: 1; they have 50 s to end" in served.line("being answered")
    assert response.read().endswith(b"data: [DONE]\n\n")
    code, said = served.ends()
    assert (code, len(said.splitlines())) == (143, 1)

    served = started("--drain", "50", pass_s=0.02)
    response = served.ask(max_tokens=4000, stream=True)
    assert response.readline().startswith(b"data: {")
    served.process.send_signal(signal.SIGTERM)
    served.line("being answered")
    served.process.send_signal(signal.SIGINT)
    assert served.ends()[0] == 130


def test_after_the_time_to_drain_answers_are_ended_with_an_error(started: Callable[..., Served]) -> None:
    served = started("--drain", "0", pass_s=0.02)
    response = served.ask(max_tokens=4000, stream=True)
    assert response.readline().startswith(b"data: {")
    served.process.send_signal(signal.SIGTERM)
    last = [line for line in response.read().split(b"\n\n") if line][-1]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "cancelled"
    assert served.ends()[0] == 143


def test_names_keys_and_limits_are_those_of_the_options(started: Callable[..., Served]) -> None:
    served = started("--alias", "gpt-4o", "--max-n", "2", "--max-stops", "1", "--log-prompts", key="k")
    assert served.ask().status == 401
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)

    def asked(**fields: object) -> int:
        headers = {"content-type": "application/json", "authorization": "Bearer k"}
        body = json.dumps({"prompt": "a secret", "max_tokens": 1, **fields})
        connection.request("POST", "/v1/completions", body, headers)
        response = connection.getresponse()
        response.read()
        return response.status

    assert asked(model="gpt-4o") == 200
    assert "a secret" in served.line("prompt '")
    assert asked(model="gpt-4") == 404
    assert asked(n=3) == 400
    assert asked(stop=["a", "b"]) == 400


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--port", "70000"], "port is 70000"),
        (["--host", "nowhere.invalid"], "host is 'nowhere.invalid'"),
        (["--max-body", "0"], "max_body is 0"),
        (["--drain", "-1"], "drain is -1"),
        (["--running", "0"], "most_running is 0"),
        (["--queue", "0"], "most_waiting is 0"),
        (["--alias", ""], "aliases has ''"),
        (["--api-key", " secret"], "api_keys has a key that is no name"),
        (["--draft-length", "x"], "draft_length is 'x'"),
    ],
)
def test_options_that_make_no_sense_are_named_before_anything_is_loaded(args: list[str], said: str) -> None:
    error = call("serve", "-m", "/no/such/model.gguf", "--port", "0", *args).error
    assert said in error
    assert "secret" not in error


def test_a_model_that_is_not_there_ends_it() -> None:
    assert "/no/such/model.gguf" in call("serve", "-m", "/no/such/model.gguf", "--port", "0").error


def test_without_the_extra_it_says_what_to_type() -> None:
    hidden = "import sys; sys.modules['uvicorn'] = None\n" + SCRIPTED
    process = subprocess.run(
        [sys.executable, "-c", hidden, *SERVE],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert process.returncode == 2
    assert 'pip install "pilotfish[server]"' in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_defaults_are_those_of_the_settings() -> None:
    from pilotfish.cli import serve
    from pilotfish.server.settings import MIB, Settings

    assert (serve.MOST_WAITING, serve.MOST_RUNNING) == (MOST_WAITING, MOST_RUNNING)
    assert serve.CACHE_TOKENS == MOST_TOKENS
    settings = Settings()
    assert settings.most_body_bytes == serve.BODY_MIB * MIB
    assert settings.recent_tokens == serve.RECENT_TOKENS
    defaults = {option.name: option.default for option in serve.command.params}
    assert (defaults["max_stops"], defaults["max_n"]) == (settings.most_stops, settings.most_choices)
