"""The client that loads servers hears what was said, leaves when it is told to, and sees what is wrong."""

# ruff: noqa: D102 - short, and read beside the tests

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from pilotfish.bench.http_stream import Address, HttpError, fetch
from pilotfish.bench.load import Ask, Heard, Report, Target, alone, draw, load, percentile

T = TypeVar("T")

STREAM = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def delta(text: str, reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": reason}]}


def chunked(*pieces: str) -> str:
    return STREAM + "".join(f"{len(p.encode()):x}\r\n{p}\r\n" for p in pieces) + "0\r\n\r\n"


def event(said: object) -> str:
    return f"data: {said if isinstance(said, str) else json.dumps(said)}\n\n"


def whole(said: object, status: str = "200 OK") -> str:
    body = json.dumps(said)
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}"


@dataclass
class Double:
    """A server that answers every request with the same bytes, and knows when a client is gone."""

    answer: str | Callable[[dict[str, object]], str]
    asked: list[dict[str, object]] = field(default_factory=list)
    all_gone: asyncio.Event = field(default_factory=asyncio.Event)
    gone: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0]) if "content-length" in head else 0
        body = json.loads(await reader.readexactly(length) or b"{}")
        self.asked.append({"path": head.split()[1], "authorized": "authorization: bearer k" in head, **body})
        writer.write((self.answer if isinstance(self.answer, str) else self.answer(body)).encode())
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.gone += 1
        if self.gone == len(self.asked):
            self.all_gone.set()
        writer.close()

    def run(self, talk: Callable[[Target], Awaitable[T]]) -> T:
        async def main() -> T:
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            async with server:
                port = server.sockets[0].getsockname()[1]
                said = await talk(Target(Address("127.0.0.1", port, "k"), "m"))
                if self.asked:
                    await self.all_gone.wait()
                return said

        return asyncio.run(main())


def ask(answer: str, one: Ask | None = None, leave_after: int | None = None) -> Heard:
    return Double(answer).run(lambda target: target.ask(one or Ask("hi", 5), leave_after=leave_after))


def test_a_stream_is_put_together_however_it_is_cut() -> None:
    said = ": ping\n\n" + event(delta("")) + event(delta("né")) + event(delta("xt", "stop")) + event(USAGE)
    said += event("[DONE]")
    for size in (1, 7, len(said)):
        heard = ask(chunked(*(said[i : i + size] for i in range(0, len(said), size))))
        assert heard.error == ""
        assert heard.answer == ("néxt", "stop", 2)
        assert heard.first_s is not None
        assert not heard.left


def test_an_answer_in_one_piece_is_heard_too() -> None:
    chat = whole({"choices": [{"message": {"content": "yes"}, "finish_reason": "length"}], **USAGE_ONLY})
    text = whole({"choices": [{"text": "yes", "finish_reason": "length"}], **USAGE_ONLY})
    for answer, chats in ((chat, True), (text, False)):
        heard = ask(answer, Ask("hi", 5, chat=chats, stream=False))
        assert (heard.answer, heard.first_s, heard.error) == (("yes", "length", 2), None, "")


USAGE_ONLY = {"usage": USAGE["usage"]}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (whole({"error": {"message": "too many"}}, "429 Too Many Requests"), "status 429: .*too many"),
        (chunked(event(delta("a")), event({"error": {"message": "oh"}})), "the answer is an error: .*oh"),
        (chunked(event(delta("a", "stop"))), "without .DONE."),
        (chunked(event("{")), "JSONDecodeError"),
        (STREAM + "5\r\ndata:", "broke off"),
        ("", "broke off"),
        (whole([1]), "Error"),
    ],
    ids=["status", "error event", "no end", "no json", "cut", "nothing", "no object"],
)
def test_what_goes_wrong_is_told(answer: str, error: str) -> None:
    one = Ask("hi", 5, stream="stream" in answer)
    heard = Cutting(answer).run(lambda target: target.ask(one))
    assert re.search(error, heard.error)


class Cutting(Double):
    """A server that hangs up when it has said what it says."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(self.answer, str)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer.encode())
        await writer.drain()
        writer.close()


def test_whoever_leaves_hangs_up_after_so_many_events() -> None:
    endless = STREAM + "".join(f"{len(event(delta('a'))):x}\r\n{event(delta('a'))}\r\n" for _ in range(9))
    for after in range(4):
        heard = ask(endless, leave_after=after)  # the double waits until the client is gone
        assert heard.left
        assert heard.text == "a" * after


def test_a_server_that_is_not_there_is_an_error() -> None:
    async def talk() -> Heard:
        return await Target(Address("127.0.0.1", 1), "m").ask(Ask("hi", 5))

    assert "no connection" in asyncio.run(talk()).error
    with pytest.raises(HttpError, match="no connection"):
        asyncio.run(fetch(Address("127.0.0.1", 1), "/health"))


def test_a_load_finds_answers_that_depend_on_others() -> None:
    """The server says something else to whoever may draft, and to who asks for more than 20 tokens."""

    def answer(body: dict[str, object]) -> str:
        plain = "speculative" in body
        odd = not plain and int(str(body["max_tokens"])) > 20
        text = f"{body['seed']}{'!' if odd else ''}"
        return chunked(event(delta(text, "stop")), event(USAGE), event("[DONE]"))

    asks = [Ask("hi", size, seed=size) for size in (5, 25, 15)]

    async def talk(target: Target) -> tuple[Report, Report]:
        answers = await alone(target, asks)
        stays = await load(target, asks, answers, clients=2, goes_on=lambda i: i < 30, leaves=None)
        return stays, await load(target, asks, answers, clients=2, goes_on=lambda i: i < 30)

    stays, leaves = Double(answer).run(talk)
    assert (stays.errors, stays.left, stays.completed, stays.tokens) == ([], 0, 30, 60)
    assert len(stays.different) == 10
    assert all("25!" in one for one in stays.different)
    assert (leaves.errors, leaves.left, leaves.completed) == ([], 3, 27)


def test_requests_are_drawn_the_same_every_time_and_cover_all_kinds() -> None:
    asks = draw(["a", "b", "c"], 60, seed=1, most_tokens=40)
    assert asks == draw(["a", "b", "c"], 60, seed=1, most_tokens=40)
    assert asks != draw(["a", "b", "c"], 60, seed=2, most_tokens=40)
    assert {(a.chat, a.stream, a.temperature) for a in asks} >= {
        (chat, stream, t) for chat in (True, False) for stream in (True, False) for t in (0.0, 0.8)
    }
    assert {a.prompt for a in asks} == {"a", "b", "c"}
    assert all(1 <= a.max_tokens <= 40 for a in asks)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([], 0.5) is None
    assert [percentile([3.0, 1.0, 2.0, 4.0], share) for share in (0, 0.5, 0.9, 1)] == [1.0, 3.0, 4.0, 4.0]
