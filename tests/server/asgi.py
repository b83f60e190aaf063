"""Calls an application as a server would: clients that pause, leave, and a clock that a test moves."""

# ruff: noqa: D102 - short, and read beside the tests

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pilotfish.engines.scripted import answers
from pilotfish.server.app import Clock, make_app
from pilotfish.server.service import Service
from pilotfish.server.settings import Settings
from tiny import END, VOCAB_SIZE, tiny_model

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from pilotfish.drafting import Drafting
    from pilotfish.model import TextModel

T = TypeVar("T")
JSON = {"content-type": "application/json"}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PATIENCE_S = 20.0
"""How long a test waits for what must happen; then it fails."""


class Naps:
    """Sleeps that end when the test says so; `lengths` are those asked for."""

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self._sleeping: list[asyncio.Future[None]] = []

    async def sleep(self, seconds: float) -> None:
        self.lengths.append(seconds)
        nap: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append(nap)
        await nap

    def end(self) -> None:
        """Let all that sleep wake up."""
        sleeping, self._sleeping = self._sleeping, []
        for nap in sleeping:
            if not nap.done():
                nap.set_result(None)

    @property
    def sleeping(self) -> int:
        return sum(not nap.done() for nap in self._sleeping)


@dataclass
class Call:
    """A request in the making, and what has come of it."""

    app: Starlette
    path: str
    body: bytes | Iterable[bytes] = b""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: dict(JSON))
    stalls: bool = False
    """Whether the body never ends."""

    def __post_init__(self) -> None:
        pieces = [self.body] if isinstance(self.body, bytes) else self.body
        self._pieces = iter(pieces)
        self._ahead = next(self._pieces, b"")
        self._all_read = False
        self._left = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        self.messages: list[dict[str, Any]] = []
        self.read_bytes = 0
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        headers = {"host": "localhost", **self.headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await self.app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._all_read:
            await self._left.wait()
            return {"type": "http.disconnect"}
        piece, following = self._ahead, next(self._pieces, None)
        self.read_bytes += len(piece)
        self._all_read = following is None
        self._ahead = following or b""
        return {"type": "http.request", "body": piece, "more_body": self.stalls or not self._all_read}

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self._reads.wait()
        self.messages.append(dict(message))

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()

    def pause(self) -> None:
        """Read no more until `resume`."""
        self._reads.clear()

    def resume(self) -> None:
        self._reads.set()

    async def end(self) -> Call:
        await asyncio.wait_for(self.task, PATIENCE_S)
        return self

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def response_headers(self) -> dict[str, str]:
        return {k.decode().lower(): v.decode() for k, v in self.messages[0]["headers"]}

    @property
    def text(self) -> str:
        return b"".join(m.get("body", b"") for m in self.messages[1:]).decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def frames(self) -> list[str]:
        """What has been streamed, frame by frame, comments included."""
        return [frame for frame in self.text.split("\n\n") if frame]

    @property
    def events(self) -> list[Any]:
        """The streamed objects; the end of the stream is None."""
        data = [frame.removeprefix("data: ") for frame in self.frames if frame.startswith("data: ")]
        return [None if one == "[DONE]" else json.loads(one) for one in data]

    @property
    def error(self) -> dict[str, Any]:
        found = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return dict(found)


@dataclass
class Server:
    """An application over a tiny model; without a worker the test makes the passes, by `step`."""

    service: Service
    app: Starlette
    naps: Naps

    def post(self, path: str, body: object, **headers: str) -> Call:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Call(self.app, path, raw, headers={**JSON, **headers})

    def get(self, path: str, **headers: str) -> Call:
        return Call(self.app, path, method="GET", headers=headers)

    async def step(self, passes: int = 1) -> None:
        for _ in range(passes):
            self.service.scheduler.step()
            await settled()

    async def submitted(self, requests: int = 1) -> None:
        """Wait until so many requests wait or run."""
        scheduler = self.service.scheduler
        await until(lambda: scheduler.waiting + len(scheduler._running) >= requests)

    async def finish(self, *calls: Call) -> None:
        """Make passes until these calls have ended."""
        for _ in range(20_000):
            if all(call.task.done() for call in calls):
                break
            await self.step()
        for call in calls:
            await call.end()


def speaking(script: Mapping[str, str | bytes]) -> TextModel:
    """Return a model that answers each prompt, special tokens in it, with its text."""
    encode = tiny_model().tokenizer.encode
    said = {p: a.encode() if isinstance(a, str) else a for p, a in script.items()}
    ids = {tuple(encode(prompt, special=True)): list(answer) for prompt, answer in said.items()}
    return tiny_model(answers(ids, VOCAB_SIZE, END))


def server(
    script: Mapping[str, str | bytes] | None = None,
    *,
    target: TextModel | None = None,
    drafting: Drafting | None = None,
    settings: Settings | None = None,
    draft_length: int = 3,
    run: bool = True,
) -> Server:
    """Return a server whose model answers by a script, or babbles."""
    settings = settings or Settings()
    target = target or (tiny_model() if script is None else speaking(script))
    service = Service(target, drafting, settings, draft_length=draft_length if drafting else "auto", run=run)
    naps = Naps()
    clock = Clock(now=lambda: 1_700_000_000.5, sleep=naps.sleep)
    return Server(service, make_app(service, settings, clock=clock), naps)


def ask(made: Server, path: str, body: object, **headers: str) -> Call:
    """Return a request's answer, in a loop of its own."""

    async def call() -> Call:
        return await made.post(path, body, **headers).end()

    return asyncio.run(call())


def look(made: Server, path: str, method: str = "GET", **headers: str) -> Call:
    """Return what is found at a path."""

    async def call() -> Call:
        return await Call(made.app, path, method=method, headers=headers).end()

    return asyncio.run(call())


def running(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario; it fails rather than hangs."""

    async def bounded() -> T:
        return await asyncio.wait_for(scenario(), 3 * PATIENCE_S)

    return asyncio.run(bounded())


async def settled(turns: int = 30) -> None:
    """Let everything happen that can happen without waiting."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(what: Callable[[], bool]) -> None:
    """Wait until something that other threads do is so."""

    async def look_again() -> None:
        while not what():  # noqa: ASYNC110 - what is waited for happens in other threads
            await asyncio.sleep(0.001)

    await asyncio.wait_for(look_again(), PATIENCE_S)


async def both(*waiting: Awaitable[T]) -> list[T]:
    return list(await asyncio.gather(*waiting))


def prompt_of(*texts: str) -> str:
    """Return the prompt that the tiny template makes of a user's messages and our answers, in turns."""
    roles = ("user", "assistant")
    turns = [f"<|im_start|>{roles[i % 2]}\n{text}<|im_end|>\n" for i, text in enumerate(texts)]
    return "".join(turns) + "<|im_start|>assistant\n"
