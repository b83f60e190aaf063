"""A real server on loopback: uvicorn in a thread, and a model without weights behind it."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import openai
import uvicorn

from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.scripted import SURE, Rule, ScriptedEngine
from pilotfish.llm import LLM
from pilotfish.server.app import make_app
from pilotfish.server.service import Service
from pilotfish.server.settings import Settings
from tiny import END, VOCAB_SIZE, tiny_model

if TYPE_CHECKING:
    from pilotfish.model import TextModel

KEY = "sk-anything"
"""Clients want one, even if the server does not."""

SPOKEN = "A pilot fish swims ahead of a shark: naïve, 静か 🐟.\n" * 3
"""Characters of one to four bytes, and so of as many tokens; and repetitions, so that there are drafts."""


def reciting(text: str = SPOKEN, likely: float = SURE) -> Rule:
    """Return a rule that says a text, byte by byte, and then ends.

    It goes on with the longest beginning of the text that the tokens end with, so it begins anew where it was
    led astray.

    Parameters
    ----------
    likely
        The logit of what comes next, where 0 is that of the others: a small one lets the seed decide.
    """
    said = text.encode()

    def rule(tokens: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
        heard = bytes(min(token, 255) for token in tokens[-len(said) :])  # no text has the byte 255
        length = next((n for n in range(len(heard), 0, -1) if heard.endswith(said[:n])), 0)
        row = np.zeros(VOCAB_SIZE, dtype=np.float32)
        row[said[length] if length < len(said) else END] = likely
        return row

    return rule


WAVERING = reciting(likely=8.0)
"""At temperature 1 every tenth token or so is another one."""


def library(rule: Rule) -> LLM:
    """Return the library on such a model, plain: what a server must say too."""
    return LLM(tiny_model(rule))


@dataclass
class Server:
    """A server that runs, and the model that it serves."""

    url: str
    service: Service
    key: str = KEY

    @property
    def engine(self) -> ScriptedEngine:
        """The engine of its model."""
        engine = self.service.target.engine
        assert isinstance(engine, ScriptedEngine)
        return engine

    @property
    def model(self) -> str:
        """The model's name."""
        return self.service.target.name

    @functools.cached_property
    def client(self) -> openai.OpenAI:
        """A client of it, which does not try again."""
        return openai.OpenAI(base_url=self.url, api_key=self.key, max_retries=0)

    def async_client(self) -> openai.AsyncOpenAI:
        """Return another, for one event loop."""
        return openai.AsyncOpenAI(base_url=self.url, api_key=self.key, max_retries=0)

    def is_idle(self) -> bool:
        """Whether nobody is answered, waits, or holds a cache beside what is kept of old texts."""
        scheduler = self.service.scheduler
        return not scheduler.running and not scheduler.waiting


@contextlib.contextmanager
def served(target: TextModel, settings: Settings | None = None, *, draft_length: int = 4) -> Iterator[Server]:
    """Serve a model; the length of drafts is fixed, what is drafted would depend on the clock otherwise."""
    settings = settings or Settings()
    with (
        Service(target, Drafting(Wish.read("suffix")), settings, draft_length=draft_length) as service,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        config = uvicorn.Config(make_app(service, settings), log_level="warning", lifespan="off", ws="none")
        http = uvicorn.Server(config)
        thread = threading.Thread(target=http.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        try:
            yield Server(f"http://127.0.0.1:{port}/v1", service, next(iter(settings.api_keys), KEY))
        finally:
            http.should_exit = True
            http.force_exit = True
            thread.join(10)
            assert not thread.is_alive()


def joined(pieces: Sequence[str | None]) -> str:
    """Return the text of a stream's deltas."""
    return "".join(piece or "" for piece in pieces)
