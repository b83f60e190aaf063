"""docs/server.md: its example runs against a server, and its tables say what is so."""

from __future__ import annotations

import contextlib
import io
import re

from pilotfish.cli.serve import command
from pilotfish.server import chat, completions, fields
from pilotfish.server.app import ASKED, make_app
from pilotfish.server.chat import ChatRequest
from pilotfish.server.completions import CompletionRequest
from pilotfish.server.listening import Address, Listening
from pilotfish.server.settings import Settings
from server.asgi import prompt_of, server
from test_docs import blocks, page

TEXT = page("server.md")


def test_the_example_with_openais_client_runs_and_prints_the_answer() -> None:
    [example] = [block.text for block in blocks(TEXT) if block.kind == "python"]
    service = server({prompt_of("Say hello in French."): "Bonjour !"}).service
    address, said = Address("127.0.0.1", 0), io.StringIO()
    with Listening(make_app(service, Settings()), address), contextlib.redirect_stdout(said):
        exec(compile(example.replace("http://127.0.0.1:8000", address.url), "server.md", "exec"), {})  # noqa: S102 - our own documentation
    assert said.getvalue() == "Bonjour !"


def test_every_path_is_listed() -> None:
    found = re.findall(r"`(GET|POST) (/[\w/]+)", TEXT)
    listed = {(method, path.removesuffix("/NAME")) for method, path in found}
    served = {(method, path.split("/{")[0]) for path, method, _ in ASKED}
    assert listed == served | {("GET", "/health"), ("GET", "/metrics")}


def test_every_field_of_a_request_is_named() -> None:
    known = {name for kind in (ChatRequest, CompletionRequest) for name in kind.__struct_fields__}
    outside = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    named = {word for span in re.findall(r"`([^`]+)`", outside) for word in re.findall(r"[a-z_]+", span)}
    assert {*known, *chat.ROLES} - named == set()
    assert f"completion: {completions.MAX_TOKENS}" in TEXT
    assert set(fields.UNSUPPORTED) >= {"tools", "response_format", "best_of", "suffix"}


def test_limits_are_those_of_the_options() -> None:
    section = TEXT[TEXT.index("## Limits") : TEXT.index("## Who may ask")]
    defaults = {option.opts[0]: option.default for option in command.params}
    for names, told in re.findall(r"^\| (`--.*?) \| (.*?) \|", section, re.MULTILINE):
        for name, value in zip(re.findall(r"--[\w-]+", names), told.split(", "), strict=False):
            if (number := re.match(r"[\d.]+", value)) is not None:
                assert float(str(defaults[name])) == float(number[0]), name
