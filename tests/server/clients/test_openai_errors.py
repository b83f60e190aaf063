"""What is refused, or fails, reaches OpenAI's client as an exception of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import openai
import pytest

from pilotfish.errors import EngineError
from pilotfish.server.settings import Settings
from server.clients.loopback import SPOKEN, Server, reciting, served
from tiny import tiny_model

ASKED: Any = [{"role": "user", "content": "What is a pilot fish?"}]


def chat(server: Server, **options: Any) -> Any:
    return server.client.chat.completions.create(
        **{"model": server.model, "messages": ASKED, "temperature": 0, **options}
    )


def complete(server: Server, **options: Any) -> Any:
    return server.client.completions.create(
        **{"model": server.model, "prompt": "A", "temperature": 0, "max_tokens": 60, **options}
    )


def respond(server: Server, **options: Any) -> Any:
    return server.client.responses.create(
        **{"model": server.model, "input": "a", "temperature": 0, **options}
    )


ENDPOINTS = pytest.mark.parametrize("ask", [chat, complete, respond])
Ask = Callable[..., Any]


@ENDPOINTS
@pytest.mark.parametrize(
    ("field", "value"),
    [("no_such_field", 1), ("top_p", 7), ("temperature", "hot"), ("logit_bias", {"-1": 1})],
)
def test_a_field_that_makes_no_sense_is_a_bad_request(
    server: Server, ask: Ask, field: str, value: object
) -> None:
    """The exception names the field, whether a stream is wanted or not."""
    for streams in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(server, extra_body={field: value}, stream=streams)
        assert (caught.value.param or "").startswith(field)
        assert field in caught.value.message
        assert caught.value.type == "invalid_request_error"


@ENDPOINTS
def test_another_model_is_not_found(server: Server, ask: Ask) -> None:
    """The exception says what is served."""
    with pytest.raises(openai.NotFoundError, match=f"served here: {server.model}") as caught:
        ask(server, model="gpt-4")
    assert caught.value.code == "model_not_found"


def test_an_endpoint_that_does_not_exist_is_not_found(server: Server) -> None:
    """What the server has not, such as embeddings, is an exception and no text of a web server."""
    with pytest.raises(openai.NotFoundError, match="/v1/embeddings"):
        server.client.embeddings.create(model=server.model, input="a")


@ENDPOINTS
def test_a_prompt_beyond_the_context_is_a_bad_request(server: Server, ask: Ask) -> None:
    """Its code is OpenAI's, by which programs know that they have to shorten it."""
    long = "a" * 5000
    field = {chat: "messages", complete: "prompt", respond: "input"}[ask]
    prompt = [{"role": "user", "content": long}] if ask is chat else long
    with pytest.raises(openai.BadRequestError) as caught:
        ask(server, **{field: prompt})
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", field)


def test_a_wrong_key_is_an_authentication_error() -> None:
    """With keys, nothing is told without one of them, not even the model's name."""
    with served(tiny_model(reciting()), Settings(api_keys=("one", "two"))) as server:
        wrong = server.client.with_options(api_key="three")
        with pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        with pytest.raises(openai.AuthenticationError):
            wrong.chat.completions.create(model="tiny", messages=ASKED)
        with pytest.raises(openai.AuthenticationError):
            wrong.responses.create(model="tiny", input="a")
        for key in ("one", "two"):
            right = server.client.with_options(api_key=key)
            assert right.models.list().data[0].id == "tiny"


@ENDPOINTS
def test_a_failure_in_mid_stream_is_raised_there(ask: Ask) -> None:
    """What was said before it has arrived; the next request is answered."""
    with served(tiny_model(reciting())) as server:
        server.engine.failures[6] = EngineError("the pass broke")
        said: list[Any] = []
        stream = ask(server, stream=True)
        if ask is respond:  # its failures are events
            said = list(stream)
            assert said[-1].type == "response.failed"
        else:
            with pytest.raises(openai.APIError, match="the pass broke"):
                said.extend(stream)
        assert said
        assert ask(server).model == server.model


@ENDPOINTS
def test_a_failure_of_an_unstreamed_answer_is_an_error_of_the_server(ask: Ask) -> None:
    """It says why, and concerns that answer only."""
    with served(tiny_model(reciting())) as server:
        server.engine.failures[6] = EngineError("the pass broke")
        with pytest.raises(openai.InternalServerError, match="the pass broke"):
            ask(server)
        assert ask(server).model == server.model


def test_one_request_too_many_is_a_rate_limit_error() -> None:
    """It is refused at once and told when to come again; those before it are answered in full."""
    there, opened = threading.Event(), threading.Event()
    recite = reciting()

    def rule(tokens: tuple[int, ...]) -> Any:
        there.set()
        assert opened.wait(60)
        return recite(tokens)

    with served(tiny_model(rule), Settings(most_running=1, most_waiting=2)) as server:

        async def crowd() -> list[Any]:
            async with server.async_client() as client:

                def ask() -> asyncio.Future[Any]:
                    return asyncio.ensure_future(
                        client.chat.completions.create(model="tiny", messages=ASKED, temperature=0)
                    )

                asked = [ask()]
                assert await asyncio.to_thread(there.wait, 60)
                asked += [ask(), ask(), ask()]
                refused, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                assert len(refused) == 1
                opened.set()
                return await asyncio.gather(*asked, return_exceptions=True)

        answers = asyncio.run(crowd())
    errors: list[Any] = [one for one in answers if isinstance(one, BaseException)]
    assert [type(one) for one in errors] == [openai.RateLimitError]
    assert errors[0].response.headers["Retry-After"] == "1"
    said = [one.choices[0].message.content for one in answers if not isinstance(one, BaseException)]
    assert said == [SPOKEN] * 3
