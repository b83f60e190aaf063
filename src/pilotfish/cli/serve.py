"""`pilotfish serve`: an OpenAI-compatible server."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pilotfish import signals
from pilotfish.cli import common
from pilotfish.cli.failures import notice
from pilotfish.cli.opening import open_served, read_options
from pilotfish.errors import PilotfishError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pilotfish.llm import LLM
    from pilotfish.options import Options
    from pilotfish.server.gate import Gate
    from pilotfish.server.listening import Address, Listening
    from pilotfish.server.settings import Settings

MOST_WAITING, MOST_RUNNING, BODY_MIB, DRAIN_S = 256, 16, 8.0, 30.0

SWITCH_S = 0.0005
"""Seconds after which the event loop hands the interpreter over: the next pass waits for it."""

TOLD_S = 10.0
CACHE_TOKENS, RECENT_TOKENS = 1 << 15, 1 << 17


@click.command("serve", short_help="Answer requests over HTTP, as OpenAI does.")
@common.model_options
@common.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on.")
@common.option("--port", type=int, default=8000, metavar="N", help="Port; 0 takes a free one.")
@common.option(
    "--alias", "aliases", multiple=True, metavar="NAME", help="Another name of the model; repeatable."
)
@common.option(
    "--api-key", "api_keys", multiple=True, metavar="KEY", help="Serve only who has a key; repeatable."
)
@common.option(
    "--cors", multiple=True, metavar="ORIGIN", help="Let pages of ORIGIN ask, * for all; repeatable."
)
@common.option(
    "--allowed-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name that this machine is asked under; repeatable.",
)
@common.option(
    "--running",
    type=int,
    default=MOST_RUNNING,
    metavar="N",
    help="Answers made at once; the start takes memory for them.",
)
@common.option("--queue", type=int, default=MOST_WAITING, metavar="N", help="Requests that may wait.")
@common.option(
    "--cache-tokens",
    type=int,
    default=CACHE_TOKENS,
    metavar="N",
    help="Tokens kept of texts that others begin with.",
)
@common.option(
    "--recent-tokens",
    type=int,
    default=RECENT_TOKENS,
    metavar="N",
    help="Tokens remembered of ended requests, to draft from.",
)
@common.option(
    "--kv-tokens",
    type=int,
    metavar="N",
    help="Tokens that all texts may hold together.  [default: what memory allows]",
)
@common.option("--max-body", type=float, default=BODY_MIB, metavar="MIB", help="Largest request.")
@common.option("--max-stops", type=int, default=16, metavar="N", help="Most stop strings of a request.")
@common.option("--max-n", type=int, default=16, metavar="N", help="Most answers to one prompt.")
@common.option("--draft-length", default="auto", metavar="N", help="auto, or exactly N tokens a draft.")
@common.option(
    "--drain", type=float, default=DRAIN_S, metavar="S", help="Seconds for answers to end after SIGTERM."
)
@common.option("--log-prompts", is_flag=True, help="Log prompts and answers too.")
def command(
    *,
    models: common.ModelOptions,
    host: str,
    port: int,
    draft_length: str,
    drain: float,
    max_body: float,
    **values: Any,  # noqa: ANN401 - passed on
) -> None:
    """Answer requests over HTTP, as OpenAI's interface does, until Ctrl-C or SIGTERM.

    The first of these lets no more requests in and waits for the answers under way; the second ends at once.
    """
    options = read_options(draft_length)
    if not 0 <= drain < 1e9:
        raise UsageError(f"drain is {drain}", "it is a number of seconds, at least 0")
    if not 0 < max_body <= 4096:
        raise UsageError(f"max_body is {max_body}", "it is a number of MiB, above 0 and at most 4096")
    _import_server()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # prompts are few, and threads are the engine's
    sys.setswitchinterval(SWITCH_S)
    from pilotfish.server.app import gate_of, make_app
    from pilotfish.server.listening import Address, Listening
    from pilotfish.serving.reserves import reserves

    settings = _settings(max_body, **values)
    address = Address(host, port)
    settings = replace(settings, loopback=address.is_loopback)
    gate = gate_of(settings)
    taken = reserves(settings.most_running, settings.kv_tokens)
    with Listening(make_app(gate, settings), address) as listening, open_served(models, taken) as llm:
        log_to_stderr()
        _serve(llm, options, settings, gate, address, drain, listening)


def _import_server() -> None:
    try:
        import msgspec  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"the server needs {error.name}, which is not installed", 'pip install "pilotfish[server]"'
        ) from error


def _settings(
    max_body: float,
    *,
    running: int,
    queue: int,
    max_stops: int,
    max_n: int,
    cache_tokens: int,
    **values: Any,  # noqa: ANN401 - the options with the settings' names
) -> Settings:
    from pilotfish.server.settings import MIB, Settings

    return Settings(
        most_running=running,
        most_waiting=queue,
        most_stops=max_stops,
        most_choices=max_n,
        most_body_bytes=max(1, int(max_body * MIB)),
        prefix_tokens=cache_tokens,
        **values,
    )


@contextlib.contextmanager
def _told(gate: Gate) -> Iterator[None]:
    """Wait at the end until those whose answers were ended have been told so."""
    try:
        yield
    finally:
        gate.drain(TOLD_S)


def _serve(
    llm: LLM,
    options: Options,
    settings: Settings,
    gate: Gate,
    address: Address,
    drain: float,
    listening: Listening,
) -> None:
    """Answer until a signal; then let those who are inside end, unless another signal comes."""
    from pilotfish.memory import in_mb
    from pilotfish.server.log import RequestLog
    from pilotfish.server.service import Service

    with (
        _told(gate),
        Service(llm.target, llm.drafting, settings, draft_length=options.draft_length) as service,
    ):
        service.observers.append(RequestLog(llm.target.tokenizer if settings.log_prompts else None))
        gate.open(service)
        if service.reserved_bytes:
            notice(f"taken for {settings.most_running} answers at once: {in_mb(service.reserved_bytes)}")
        notice(f"{llm.target.name} is served at {address.url}/v1")
        try:
            listening.wait(needed=lambda: service.alive)
        except (KeyboardInterrupt, signals.Terminated):
            if gate.inside:
                notice(f"requests being answered: {gate.inside}; they have {drain:g} s to end")
            try:
                gate.drain(drain)
            except BaseException:
                listening.close(at_once=True)
                raise
            raise
        what = "listens" if service.alive else "answers"
        raise PilotfishError(f"the thread that {what} has ended", "the log says why; start the server again")


def log_to_stderr() -> None:
    """Let a line a request go to stderr, with the time."""
    from pilotfish.server.log import requests

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    requests.handlers, requests.propagate = [handler], False
    requests.setLevel(logging.INFO)
