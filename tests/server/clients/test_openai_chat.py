"""OpenAI's own client at /v1/chat/completions and /v1/models."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from server.clients.loopback import SPOKEN, WAVERING, Server, joined, library, reciting

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk

ASKED: list[Any] = [{"role": "user", "content": "What is a pilot fish?"}]
SEED = 11


def ask(server: Server, **options: Any) -> Any:
    return server.client.chat.completions.create(
        **{"model": server.model, "messages": ASKED, "temperature": 0, **options}
    )


def stream(server: Server, **options: Any) -> list[ChatCompletionChunk]:
    return list(ask(server, stream=True, **options))


def text_of(chunks: list[ChatCompletionChunk], choice: int = 0) -> str:
    found = [one for chunk in chunks for one in chunk.choices if one.index == choice]
    return joined([one.delta.content for one in found])


def test_an_answer_is_that_of_the_library(server: Server) -> None:
    """Text, finish reason and counted tokens are those of `llm.chat`."""
    said = library(reciting()).chat(ASKED)
    answer = ask(server, max_tokens=256)
    assert answer.choices[0].message.content == said.text == SPOKEN
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == said.finish_reason == "stop"
    assert answer.usage.completion_tokens == len(said.tokens)
    assert answer.usage.prompt_tokens == said.stats.prompt_tokens
    assert answer.usage.total_tokens == len(said.tokens) + said.stats.prompt_tokens


def test_the_deltas_of_a_stream_are_the_answer(wavering: Server) -> None:
    """Bytes of a character split over tokens come together, and nothing is lost or said twice."""
    for seed in range(4):
        options: dict[str, Any] = {"temperature": 1, "seed": seed, "max_tokens": 50}
        whole = ask(wavering, **options).choices[0]
        chunks = stream(wavering, **options)
        assert text_of(chunks) == whole.message.content
        assert chunks[-1].choices[0].finish_reason == whole.finish_reason


def test_a_stream_says_the_role_first_and_the_reason_last(server: Server) -> None:
    """The chunks have the order and the fields that OpenAI's have."""
    first, *middle, last = stream(server)
    assert first.choices[0].delta.role == "assistant"
    assert first.choices[0].delta.content == ""
    assert all(chunk.choices[0].delta.content for chunk in middle)
    assert all(chunk.choices[0].finish_reason is None for chunk in [first, *middle])
    assert last.choices[0].finish_reason == "stop"
    assert last.choices[0].delta.content is None
    assert {chunk.object for chunk in [first, *middle, last]} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in [first, *middle, last]}) == 1


def test_a_stream_has_an_event_a_pass(server: Server) -> None:
    """What a draft brings comes in one event, so there are fewer events than tokens."""
    passes = server.service.scheduler.passes
    chunks = stream(server)
    assert len(chunks) - 2 <= server.service.scheduler.passes - passes < len(SPOKEN.encode())


def test_a_stream_ends_with_its_usage_if_it_is_asked_for(server: Server) -> None:
    """The last chunk has no choices and the usage of the unstreamed answer; the others have none."""
    *chunks, last = stream(server, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage == ask(server).usage.model_copy(
        update={"prompt_tokens_details": last.usage.prompt_tokens_details if last.usage else None}
    )
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.usage is None for chunk in stream(server))


def test_the_async_client_gets_what_the_other_gets(wavering: Server) -> None:
    """Eight answers at once, streamed or not, are those that each gets alone."""
    options = [{"seed": seed, "temperature": 1, "max_tokens": 20} for seed in range(8)]

    async def one(client: Any, asked: dict[str, Any], *, streams: bool) -> str:
        answer = await client.chat.completions.create(
            model=wavering.model, messages=ASKED, stream=streams, **asked
        )
        if not streams:
            return str(answer.choices[0].message.content)
        return joined([chunk.choices[0].delta.content async for chunk in answer])

    async def all_at_once() -> list[str]:
        async with wavering.async_client() as client:
            return await asyncio.gather(
                *(one(client, asked, streams=i % 2 == 0) for i, asked in enumerate(options))
            )

    alone = [ask(wavering, **asked).choices[0].message.content for asked in options]
    assert asyncio.run(all_at_once()) == alone


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_that_is_cut_says_so(server: Server, name: str) -> None:
    """Both names of the limit end it with "length", after just so many tokens."""
    answer = ask(server, **{name: 7})
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == SPOKEN[:7]
    assert answer.usage.completion_tokens == 7


@pytest.mark.parametrize(
    "stop", [" ahead", ["never", "head of", "sha"], [str(i) for i in range(15)] + ["ïv"]]
)
def test_a_stop_string_ends_an_answer_before_it(server: Server, stop: str | list[str]) -> None:
    """One string or up to 16; in a stream no part of it is said."""
    stops = [stop] if isinstance(stop, str) else stop
    cut = min(SPOKEN.index(one) for one in stops if one in SPOKEN)
    answer = ask(server, stop=stop).choices[0]
    assert (answer.message.content, answer.finish_reason) == (SPOKEN[:cut], "stop")
    chunks = stream(server, stop=stop)
    assert (text_of(chunks), chunks[-1].choices[0].finish_reason) == (SPOKEN[:cut], "stop")


def test_every_token_has_its_log_probability(wavering: Server) -> None:
    """They are the library's, one entry a token, also where a stream's event has several or no text yet."""
    options: dict[str, Any] = {"temperature": 1, "seed": SEED, "max_tokens": 60}
    said = library(WAVERING).chat(ASKED, logprobs=True, top_logprobs=3, **options)
    asked = {"logprobs": True, "top_logprobs": 3, **options}
    whole = ask(wavering, **asked).choices[0].logprobs.content
    assert [entry.logprob for entry in whole] == said.logprobs
    assert [[top.logprob for top in entry.top_logprobs] for entry in whole] == [
        [logprob for _, logprob in top] for top in said.top_logprobs or []
    ]
    assert [entry.bytes for entry in whole if len(entry.bytes) == 1] == [[t] for t in said.tokens if t < 256]
    chunks = stream(wavering, **asked)
    streamed = [
        one
        for chunk in chunks
        if chunk.choices[0].logprobs
        for one in chunk.choices[0].logprobs.content or []
    ]
    assert streamed == whole


def test_a_choice_is_the_one_that_the_library_makes(wavering: Server) -> None:
    """Of n answers each has its own noise; streamed ones are told apart by their index."""
    options: dict[str, Any] = {"temperature": 1, "seed": SEED, "max_tokens": 40, "n": 3}
    said = [choice.text for choice in library(WAVERING).chat(ASKED, **options).choices]
    answer = ask(wavering, **options)
    assert [choice.message.content for choice in answer.choices] == said
    assert len(set(said)) == 3
    chunks = stream(wavering, **options)
    assert [text_of(chunks, i) for i in range(3)] == said
    reasons = [one.finish_reason for chunk in chunks for one in chunk.choices if one.finish_reason]
    assert len(reasons) == 3


def test_a_seed_repeats_an_answer(wavering: Server) -> None:
    """With the same seed it is the same; without one it is another each time, and says which seed it had."""
    fresh = [ask(wavering, temperature=1, max_tokens=40) for _ in range(4)]
    assert len({answer.choices[0].message.content for answer in fresh}) > 1
    for answer in fresh:
        again = ask(wavering, temperature=1, max_tokens=40, seed=answer.seed)
        assert again.choices[0].message.content == answer.choices[0].message.content


def test_an_answer_is_the_same_without_drafts(wavering: Server) -> None:
    """`speculative` changes the speed only, and the figures say that nothing was drafted."""
    options: dict[str, Any] = {"temperature": 1, "seed": SEED, "max_tokens": 60}
    drafted = ask(wavering, **options)
    plain = ask(wavering, extra_body={"speculative": {"n_max": 0}}, **options)
    assert plain.choices[0].message.content == drafted.choices[0].message.content
    assert drafted.timings["draft_n"] >= drafted.timings["draft_n_accepted"] > 0
    assert plain.timings["draft_n"] == 0


def test_the_client_lists_the_model(server: Server) -> None:
    """`models.list` and `models.retrieve` name what chat answers to."""
    models = server.client.models.list().data
    assert [model.id for model in models] == [server.model]
    assert server.client.models.retrieve(server.model) == models[0]
