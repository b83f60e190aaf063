"""OpenAI's own client at /v1/responses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
import pytest

from pilotfish.errors import EngineError
from server.clients.loopback import SPOKEN, WAVERING, Server, joined, library, served
from tiny import tiny_model

if TYPE_CHECKING:
    from openai.types.responses import ResponseStreamEvent

LOGPROBS = ["message.output_text.logprobs"]
SAMPLED: dict[str, Any] = {"temperature": 1, "max_output_tokens": 60, "extra_body": {"seed": 11}}


def ask(server: Server, **options: Any) -> Any:
    return server.client.responses.create(
        **{
            "model": server.model,
            "input": "What is a pilot fish?",
            "extra_body": {"seed": 1},
            "temperature": 0,
            **options,
        }
    )


def stream(server: Server, **options: Any) -> list[ResponseStreamEvent]:
    return list(ask(server, stream=True, **options))


def deltas(events: list[Any]) -> list[Any]:
    return [event for event in events if event.type == "response.output_text.delta"]


def without_times(response: Any) -> Any:
    """Return what of a response depends on the request alone."""
    kept = response.to_dict(mode="json")
    for name in ("id", "created_at", "completed_at", "timings", "metrics", "usage"):
        kept.pop(name)
    kept["output"][0].pop("id")
    return kept


def test_a_response_is_the_answer_of_the_library(server: Server) -> None:
    """Text and usage are those of the same question in a chat."""
    response = ask(server)
    chat = server.client.chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": "What is a pilot fish?"}], temperature=0
    )
    assert response.output_text == chat.choices[0].message.content == SPOKEN
    assert response.status == response.output[0].status == "completed"
    assert chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == chat.usage.completion_tokens
    assert response.usage.total_tokens == chat.usage.total_tokens


def test_a_stream_has_the_events_of_openai_in_order(server: Server) -> None:
    """They are numbered without gaps, and name the same message; the last one has the whole response."""
    events: list[Any] = stream(server)
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert len({event.item_id for event in deltas(events)} | {events[2].item.id, events[-2].item.id}) == 1
    assert events[0].response.status == events[1].response.status == "in_progress"
    assert events[-4].text == events[-3].part.text == events[-2].item.content[0].text == SPOKEN
    assert without_times(events[-1].response) == without_times(ask(server))


def test_the_deltas_of_a_stream_are_the_response(wavering: Server) -> None:
    """The client's own accumulation and the concatenated deltas are the unstreamed text."""
    whole = ask(wavering, **SAMPLED).output_text
    assert joined([event.delta for event in deltas(stream(wavering, **SAMPLED))]) == whole
    with wavering.client.responses.stream(
        model=wavering.model, input="What is a pilot fish?", **SAMPLED
    ) as events:
        seen: list[Any] = list(events)
    assert deltas(seen)[-1].snapshot == whole


def test_the_async_client_gets_what_the_other_gets(wavering: Server) -> None:
    """Streamed or not."""

    async def both() -> tuple[str, str]:
        async with wavering.async_client() as client:
            asked: dict[str, Any] = {"model": wavering.model, "input": "What is a pilot fish?", **SAMPLED}
            whole = await client.responses.create(**asked)
            pieces = [event async for event in await client.responses.create(stream=True, **asked)]
        return whole.output_text, joined([event.delta for event in deltas(pieces)])

    assert asyncio.run(both()) == (ask(wavering, **SAMPLED).output_text,) * 2


def test_a_response_that_is_cut_is_incomplete(server: Server) -> None:
    """The limit on tokens ends it so, streamed or not, and the text so far is in it."""
    response = ask(server, max_output_tokens=5)
    assert (response.status, response.output_text) == ("incomplete", SPOKEN[:5])
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 5
    last: Any = stream(server, max_output_tokens=5)[-1]
    assert last.type == "response.incomplete"
    assert without_times(last.response) == without_times(response)


def test_every_token_has_its_log_probability(wavering: Server) -> None:
    """They are the library's, and come with the deltas; without `include` there are none."""
    said = library(WAVERING).chat(
        [{"role": "user", "content": "What is a pilot fish?"}],
        temperature=1,
        seed=11,
        max_tokens=60,
        logprobs=True,
        top_logprobs=2,
    )
    asked = {"include": LOGPROBS, "top_logprobs": 2, **SAMPLED}
    entries = ask(wavering, **asked).output[0].content[0].logprobs
    assert [entry.logprob for entry in entries] == said.logprobs
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    streamed = [entry for event in deltas(stream(wavering, **asked)) for entry in event.logprobs]
    assert [entry.logprob for entry in streamed] == said.logprobs
    assert ask(wavering, **SAMPLED).output[0].content[0].logprobs == []


def test_what_was_asked_for_is_said_back(server: Server) -> None:
    """Metadata, instructions and limits stand in the response, and that nothing is kept."""
    asked = {"metadata": {"a": "b"}, "instructions": "Be brief.", "top_p": 0.5, "max_output_tokens": 9}
    response = ask(server, **asked)
    assert {name: getattr(response, name) for name in asked} == asked
    assert response.store is False
    assert response.tools == []


PROMPTS: list[tuple[dict[str, Any], list[dict[str, str]]]] = [
    ({"input": "a"}, [{"role": "user", "content": "a"}]),
    (
        {"input": "a", "instructions": "b"},
        [{"role": "system", "content": "b"}, {"role": "user", "content": "a"}],
    ),
    (
        {"input": [{"role": "developer", "content": "c"}, {"role": "user", "content": "a"}]},
        [{"role": "system", "content": "c"}, {"role": "user", "content": "a"}],
    ),
    (
        {
            "instructions": "b",
            "input": [
                {"role": "system", "content": "c"},
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "d"}],
                },
            ],
        },
        [{"role": "system", "content": "b\n\nc"}, {"role": "user", "content": "a\nd"}],
    ),
]


@pytest.mark.parametrize(("asked", "messages"), PROMPTS)
def test_the_prompt_is_that_of_the_same_chat(
    server: Server, prompts: list[list[int]], asked: dict[str, Any], messages: list[Any]
) -> None:
    """Text, messages, parts, instructions: all ways to write a conversation give the model the same ids."""
    ask(server, max_output_tokens=1, **asked)
    server.client.chat.completions.create(model=server.model, messages=messages, max_tokens=1)
    assert prompts[0] == prompts[1]


def test_a_conversation_goes_on_with_what_was_answered(server: Server, prompts: list[list[int]]) -> None:
    """The output of a response may be sent back as it came, beside the next question."""
    first = ask(server)
    prompts.clear()
    question: dict[str, Any] = {"role": "user", "content": "What is a pilot fish?"}
    more: dict[str, Any] = {"role": "user", "content": "And then?"}
    ask(server, input=[question, *first.output, more], max_output_tokens=1)
    messages: list[Any] = [question, {"role": "assistant", "content": SPOKEN}, more]
    server.client.chat.completions.create(model=server.model, messages=messages, max_tokens=1)
    assert prompts[0] == prompts[1]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"background": True}, "background"),
    ({"store": True}, "store"),
    ({"tools": [{"type": "web_search"}]}, "tools"),
    ({"truncation": "auto"}, "truncation"),
    ({"reasoning": {"effort": "high"}}, "reasoning"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format.type"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"include": ["web_search_call.results"]}, "include[0]"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"extra_body": {"n": 2}}, "n"),
    ({"extra_body": {"no_such_field": 1}}, "no_such_field"),
    ({"stream_options": {"include_obfuscation": True}, "stream": True}, "stream_options.include_obfuscation"),
    ({"stream_options": {}, "stream": False}, "stream_options"),
    ({"input": []}, "input"),
    ({"input": [{"role": "user", "content": ""}, {"role": "tool", "content": "a"}]}, "input[1].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "input[0].type"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        "input[0].content[0].type",
    ),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"role": "user", "content": "a", "weight": 1}]}, "input[0].weight"),
    ({"input": "a" * 5000}, "input"),
]


@pytest.mark.parametrize(("asked", "param"), REFUSED, ids=[param for _, param in REFUSED])
def test_what_is_not_supported_is_refused_by_its_name(
    server: Server, asked: dict[str, Any], param: str
) -> None:
    """A field that can't be honoured is never ignored: the error names it, also when a stream is wanted."""
    for streams in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(server, **{"stream": streams, **asked})
        assert caught.value.param == param


ACCEPTED: list[dict[str, Any]] = [
    {"store": False},
    {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "max_tool_calls": 3},
    {"background": False, "truncation": "disabled", "service_tier": "auto", "user": "u"},
    {"reasoning": {"effort": "none"}},
    {"reasoning": None, "previous_response_id": None, "conversation": None, "prompt": None},
    {"text": {"format": {"type": "text"}, "verbosity": "medium"}},
    {"include": ["reasoning.encrypted_content"]},
    {"prompt_cache_key": "k", "safety_identifier": "s"},
    {"extra_body": {"seed": 3, "top_k": 40, "min_p": 0.1, "speculative": {"n_max": 0}, "cache_salt": "x"}},
]


@pytest.mark.parametrize("asked", ACCEPTED, ids=[" ".join(asked) for asked in ACCEPTED])
def test_what_changes_nothing_is_accepted(server: Server, asked: dict[str, Any]) -> None:
    """Fields that clients send as a matter of course do not change the answer."""
    assert ask(server, **asked).output_text == SPOKEN


def test_a_failure_in_mid_stream_is_the_last_event() -> None:
    """The response is failed, with an error that says why, and the stream ends."""
    with served(tiny_model(WAVERING)) as server:
        server.engine.failures[3] = EngineError("the pass broke")
        events: list[Any] = stream(server, **SAMPLED)
        assert deltas(events)
        assert events[-1].type == "response.failed"
        assert events[-1].response.status == "failed"
        assert "the pass broke" in events[-1].response.error.message
        assert ask(server, **SAMPLED).status == "incomplete"  # others are not concerned


def test_a_failure_of_an_unstreamed_response_is_an_error_of_the_server() -> None:
    """The client raises InternalServerError."""
    with served(tiny_model(WAVERING)) as server:
        server.engine.failures[3] = EngineError("the pass broke")
        with pytest.raises(openai.InternalServerError, match="the pass broke"):
            ask(server, **SAMPLED)
