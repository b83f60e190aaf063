"""Clients that leave: what they asked for ends within a pass, and nobody else notices."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.server.settings import Settings
from server.clients.loopback import SPOKEN, Server, reciting, served
from tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pilotfish.answer import Choice
    from pilotfish.server.service import Reply

WAIT_S = 60
"""Beyond this a test has failed; nothing waits so long otherwise."""

LONG: Any = [{"role": "user", "content": "Say all of it."}]
SHORT: Any = [{"role": "user", "content": "?"}]


class Held:
    """A server whose passes stand still at a place in the answer to `LONG`, until they are let go on.

    Attributes
    ----------
    there
        Set once the passes stand still.
    left
        Set once the server has noticed that a client has gone.
    """

    def __init__(self) -> None:
        self.there, self.left = threading.Event(), threading.Event()
        self.replies: list[Reply] = []
        self.server: Server
        self._arrived = threading.Semaphore(0)
        self._go_on, self._ended = threading.Event(), threading.Event()
        self._recite = reciting()

    def rule(self, tokens: tuple[int, ...]) -> NDArray[Any]:
        """Recite, but stand still a few tokens behind the prompt."""
        if bytes(min(token, 255) for token in tokens[-9:]) == SPOKEN[:9].encode():
            self.there.set()
            assert self._go_on.wait(WAIT_S)
        return self._recite(tokens)  # type: ignore[return-value]

    def watch(self, server: Server) -> None:
        """Note requests, and when one is cancelled or ends."""
        self.server = server
        submit = server.service.submit

        def noting(choices: Sequence[Choice], **options: Any) -> Reply:
            reply = submit(choices, **options)
            cancel: Callable[[], None] = reply.cancel

            def cancelling() -> None:
                cancel()
                if not reply.ended:
                    self.left.set()

            reply.cancel = cancelling  # type: ignore[method-assign]
            self.replies.append(reply)
            self._arrived.release()
            return reply

        server.service.submit = noting  # type: ignore[method-assign]
        server.service.observers.append(self.finished)

    def finished(self, reply: Reply) -> None:
        """Hear that a request has ended."""
        if reply is self.replies[0]:
            self._ended.set()

    async def one_more(self) -> None:
        """Wait for the next request."""
        assert await asyncio.to_thread(self._arrived.acquire, timeout=WAIT_S)

    def go_on(self) -> int:
        """Let the passes go on, wait for the end of the first request, and return how many it took."""
        passes = self.server.service.scheduler.passes
        self._go_on.set()
        assert self._ended.wait(WAIT_S)
        return self.server.service.scheduler.passes - passes


@pytest.fixture
def held() -> Iterator[Held]:
    one = Held()
    with served(tiny_model(one.rule), Settings(prefix_tokens=0, most_running=2), draft_length=0) as server:
        one.watch(server)
        yield one
        one._go_on.set()


def chat(server: Server, messages: Any, **options: Any) -> Any:
    return server.client.chat.completions.create(
        model=server.model, messages=messages, temperature=0, **options
    )


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
def test_a_stream_that_is_closed_ends_its_answer_within_a_pass(held: Held, endpoint: str) -> None:
    """The pass under way is the last one, its cache is freed, and the server answers others."""
    client = held.server.client
    if endpoint == "chat":
        stream: Any = chat(held.server, LONG, stream=True)
    elif endpoint == "completions":
        stream = client.completions.create(model="tiny", prompt="x", max_tokens=99, stream=True)
    else:
        stream = client.responses.create(model="tiny", input="x", stream=True)
    assert next(iter(stream))
    assert held.there.wait(WAIT_S)
    stream.close()
    assert held.left.wait(WAIT_S)
    assert held.go_on() <= 1
    assert held.replies[0].ticket.cancelled
    assert not held.server.engine.sequences
    assert chat(held.server, SHORT).choices[0].message.content == SPOKEN


def test_a_call_that_is_given_up_ends_its_answer_within_a_pass(held: Held) -> None:
    """Also where nothing is streamed: the connection is closed, and that is noticed."""

    async def give_up() -> None:
        async with held.server.async_client() as client:
            call = asyncio.ensure_future(client.chat.completions.create(model="tiny", messages=LONG))
            assert await asyncio.to_thread(held.there.wait, WAIT_S)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(held.left.wait, WAIT_S)

    asyncio.run(give_up())
    assert held.go_on() <= 1
    assert not held.server.engine.sequences


def test_a_client_that_leaves_the_queue_is_never_answered(held: Held) -> None:
    """Nothing of its prompt is read, and those before and behind it get their answers."""

    async def queue() -> list[str]:
        async with held.server.async_client() as client:

            def asked(**options: Any) -> Any:
                return asyncio.ensure_future(
                    client.chat.completions.create(
                        **{"model": "tiny", "messages": SHORT, "temperature": 0, **options}
                    )
                )

            first = asked(messages=LONG, n=2)  # takes both places
            await held.one_more()
            assert await asyncio.to_thread(held.there.wait, WAIT_S)
            leaves = asked(messages=LONG)
            await held.one_more()
            stays = asked()
            await held.one_more()
            leaves.cancel()
            assert await asyncio.to_thread(held.left.wait, WAIT_S)
            await asyncio.to_thread(held.go_on)
            return [str(one.choices[0].message.content) for one in (await first, await stays)]

    assert asyncio.run(queue()) == [SPOKEN, SPOKEN]
    assert held.replies[1].ticket.begun_s is None
    assert held.replies[1].said == [0]
