"""`/v1/chat/completions`: OpenAI's shapes, streamed and whole, and what a request may say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.scripted import copying
from pilotfish.server.settings import Settings
from server.asgi import CHAT, Call, Server, ask, prompt_of, running, server, speaking
from tiny import VOCAB_SIZE, tiny_model

HELLO = [{"role": "user", "content": "hello"}]
SCRIPT = {prompt_of("hello"): "Hi there, né 🐟!", prompt_of("a\nb"): "two parts"}
GREEDY = {"messages": HELLO, "temperature": 0}


@pytest.fixture(scope="module")
def talker() -> Server:
    """It answers by the script, drafting from its own text."""
    return server(SCRIPT, drafting=Drafting(Wish(suffix=True)), settings=Settings(aliases=("gpt-4o",)))


@pytest.fixture(scope="module")
def copier() -> Server:
    """It repeats the third last token, which the suffix drafter finds out, so passes bring several tokens."""
    return server(target=tiny_model(copying(VOCAB_SIZE, 3)), drafting=Drafting(Wish(suffix=True)))


def streamed(call: Call) -> list[Any]:
    """Return the events before the end, having checked what they have in common."""
    assert call.response_headers["content-type"].startswith("text/event-stream")
    *events, end = call.events
    assert end is None
    assert (
        len({(e["id"], e["created"], e["model"], e["system_fingerprint"], e["object"]) for e in events}) == 1
    )
    assert all(
        set(choice) == {"index", "delta", "logprobs", "finish_reason"}
        for e in events
        for choice in e["choices"]
    )
    return events


def said(events: list[Any], index: int = 0) -> str:
    choices = [choice for event in events for choice in event["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def test_an_answer_has_the_shape_of_openai(talker: Server) -> None:
    found = ask(talker, CHAT, GREEDY).json
    assert found["id"].startswith("chatcmpl-")
    assert (found["object"], found["created"], found["model"]) == ("chat.completion", 1_700_000_000, "tiny")
    assert found["system_fingerprint"].startswith("fp_")
    assert found["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi there, né 🐟!", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    usage = found["usage"]
    assert usage["completion_tokens"] == len("Hi there, né 🐟!".encode()) + 1
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_stream_has_the_role_then_content_then_the_reason_with_an_empty_delta(talker: Server) -> None:
    call = ask(talker, CHAT, {**GREEDY, "stream": True})
    events = streamed(call)
    assert events[0]["object"] == "chat.completion.chunk"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    for event in events[1:-1]:
        assert list(event["choices"][0]["delta"]) == ["content"]
        assert event["choices"][0]["delta"]["content"]
        assert event["choices"][0]["finish_reason"] is None
    assert events[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert said(events) == "Hi there, né 🐟!"
    assert call.frames[-1] == "data: [DONE]"
    assert all("usage" not in event for event in events)


def test_the_usage_comes_last_in_an_event_without_choices_if_it_is_asked_for(talker: Server) -> None:
    whole = ask(talker, CHAT, GREEDY).json
    body = {**GREEDY, "stream": True, "stream_options": {"include_usage": True}}
    *others, last = streamed(ask(talker, CHAT, body))
    assert all(event["usage"] is None for event in others)
    assert last["choices"] == []
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert last["usage"][count] == whole["usage"][count]
    assert ask(talker, CHAT, {**GREEDY, "stream_options": {}}).error["param"] == "stream_options"


def test_a_pass_is_one_event_with_one_log_probability_a_token() -> None:
    """Also where drafts were kept, and a pass brought several tokens."""

    async def scenario() -> Call:
        made = server(
            target=tiny_model(copying(VOCAB_SIZE, 3)), drafting=Drafting(Wish(suffix=True)), run=False
        )
        body = {**GREEDY, "max_tokens": 40, "stream": True, "logprobs": True, "top_logprobs": 2}
        call = made.post(CHAT, body)
        await made.submitted()
        await made.finish(call)
        return call

    events = streamed(running(scenario))
    contents = [event["choices"][0] for event in events[1:-1]]
    counts = [len(choice["logprobs"]["content"]) for choice in contents]
    figures = events[-1]["metrics"]["speculative_decoding"]
    assert sum(counts) == 40
    assert max(counts) == 4
    assert events[-1]["timings"]["draft_n_accepted"] == 40 - len(counts)
    assert figures["num_accepted_draft_tokens"] == 40 - len(counts)


def test_log_probabilities_tell_each_token_as_text_and_bytes_and_are_the_same_streamed(
    talker: Server,
) -> None:
    body = {**GREEDY, "logprobs": True, "top_logprobs": 3}
    found = ask(talker, CHAT, body).json
    entries = found["choices"][0]["logprobs"]["content"]
    assert len(entries) == found["usage"]["completion_tokens"]
    shown = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert shown.decode() == "Hi there, né 🐟!<|im_end|>"
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)
    assert all(entry["top_logprobs"][0]["logprob"] == entry["logprob"] for entry in entries)
    events = streamed(ask(talker, CHAT, {**body, "stream": True}))
    parts = [event["choices"][0]["logprobs"] for event in events]
    assert [entry for part in parts if part for entry in part["content"]] == entries
    assert ask(talker, CHAT, {**GREEDY, "top_logprobs": 3}).error["param"] == "top_logprobs"


def test_n_answers_have_their_own_noise_role_and_reason(copier: Server) -> None:
    body = {"messages": HELLO, "seed": 5, "n": 3, "max_tokens": 6, "temperature": 9}
    found = ask(copier, CHAT, body).json
    texts = [choice["message"]["content"] for choice in found["choices"]]
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert found["usage"]["completion_tokens"] == 18
    events = streamed(ask(copier, CHAT, {**body, "stream": True}))
    for i, text in enumerate(texts):
        mine = [c for event in events for c in event["choices"] if c["index"] == i]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert mine[-1]["finish_reason"] == "length"
        assert [c["finish_reason"] for c in mine[:-1]] == [None] * (len(mine) - 1)
        assert said(events, i) == text
    assert [("timings" in event) for event in events] == [False] * (len(events) - 1) + [True]


def test_the_seed_that_was_drawn_is_told_and_gives_the_answer_again(copier: Server) -> None:
    body = {"messages": HELLO, "max_tokens": 20, "temperature": 7}
    first, second = ask(copier, CHAT, body).json, ask(copier, CHAT, body).json
    assert first["seed"] != second["seed"]
    assert first["seed"] < 2**53
    again = ask(copier, CHAT, {**body, "seed": first["seed"]}).json
    assert again["choices"] == first["choices"] != second["choices"]


def test_temperature_is_1_unless_told() -> None:
    """On a model that holds two tokens for about equally likely, greedy answers have no other tokens."""

    def torn(_tokens: object) -> list[float]:
        return [8.0 if i in {65, 66} else -30.0 for i in range(VOCAB_SIZE)]

    made = server(target=tiny_model(torn))
    assert set(ask(made, CHAT, {**GREEDY, "max_tokens": 30}).json["choices"][0]["message"]["content"]) == {
        "A"
    }
    both = ask(made, CHAT, {"messages": HELLO, "max_tokens": 60, "seed": 1}).json
    assert set(both["choices"][0]["message"]["content"]) == {"A", "B"}


def test_an_answer_may_fill_the_context_unless_max_tokens_is_less() -> None:
    made = server(target=tiny_model(copying(VOCAB_SIZE, 3), context=100))
    full = ask(made, CHAT, GREEDY).json
    assert full["usage"]["total_tokens"] == 100
    assert full["choices"][0]["finish_reason"] == "length"
    for name in ("max_tokens", "max_completion_tokens"):
        assert ask(made, CHAT, {**GREEDY, name: 3}).json["usage"]["completion_tokens"] == 3
        assert ask(made, CHAT, {**GREEDY, name: 10**30}).json["usage"]["total_tokens"] == 100
    assert ask(made, CHAT, {**GREEDY, "max_tokens": 3, "max_completion_tokens": 4}).status == 400


def test_a_prompt_that_is_too_long_is_refused_with_openais_code() -> None:
    made = server(target=tiny_model(context=50))
    error = ask(made, CHAT, {"messages": [{"role": "user", "content": "a" * 60}]}).error
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    error = ask(made, CHAT, {"messages": [{"role": "user", "content": "a" * 6_000_000}]}).error
    assert error["code"] == "context_length_exceeded"
    assert "at least" in error["message"]


def test_content_may_be_parts_of_text_which_are_lines(talker: Server) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = ask(talker, CHAT, {"messages": [{"role": "user", "content": parts}], "temperature": 0})
    assert found.json["choices"][0]["message"]["content"] == "two parts"


IMAGE = [{"type": "image_url", "image_url": {"url": "http://x"}}]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "user", "content": IMAGE}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "tool", "content": "4"}], "messages[0].role"),
        ([{"role": 7, "content": "4"}], "messages[0].role"),
        ([{"content": "4"}], "messages[0].role"),
        ([{"role": "assistant", "content": "4", "tool_calls": [{}]}], "messages[0].tool_calls"),
        ([{"role": "user", "content": "4", "mood": "good"}], "messages[0].mood"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ("hello", "messages"),
    ],
)
def test_messages_that_are_not_text_are_refused_by_name(talker: Server, messages: Any, param: str) -> None:
    call = ask(talker, CHAT, {"messages": messages})
    assert call.status == 400
    assert call.error["param"] == param


def test_an_answer_can_be_sent_back_as_the_client_got_it() -> None:
    """With the empty fields that OpenAI's answers have."""
    made = server({prompt_of("hello", "Hi", "more"): "sure"})
    back: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
    }
    back |= {"function_call": None, "tool_calls": None}
    messages = [HELLO[0], back, {"role": "user", "content": "more"}]
    found = ask(made, CHAT, {"messages": messages, "temperature": 0})
    assert found.json["choices"][0]["message"]["content"] == "sure"


def test_a_developer_is_the_system() -> None:
    text = (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    made = server({text: "yes"})
    for role in ("system", "developer"):
        body = {"messages": [{"role": role, "content": "be brief"}, *HELLO], "temperature": 0}
        assert ask(made, CHAT, body).json["choices"][0]["message"]["content"] == "yes"


def test_a_stop_string_ends_the_answer_before_it_and_is_never_streamed(talker: Server) -> None:
    for stop in (", n", ["zz", ", n"]):
        found = ask(talker, CHAT, {**GREEDY, "stop": stop}).json["choices"][0]
        assert (found["message"]["content"], found["finish_reason"]) == ("Hi there", "stop")
        assert said(streamed(ask(talker, CHAT, {**GREEDY, "stop": stop, "stream": True}))) == "Hi there"


def test_speculation_may_be_limited_and_changes_nothing_but_the_figures(copier: Server) -> None:
    body = {**GREEDY, "max_tokens": 30}
    answers = {}
    for limit in ({"n_max": 0}, {"n_max": 2}, {"n_max": None}, None):
        found = ask(copier, CHAT, {**body, "speculative": limit}).json
        answers[json.dumps(limit)] = found["choices"]
        figures = found["metrics"]["speculative_decoding"]
        most = 3 if limit is None or limit["n_max"] is None else limit["n_max"]
        assert figures["num_spec_tokens"] == most
        assert (found["timings"]["draft_n"] > 0) == (most > 0)
    assert len({json.dumps(choices) for choices in answers.values()}) == 1
    assert ask(copier, CHAT, {**body, "speculative.n_max": 0}).json["timings"]["draft_n"] == 0
    assert ask(copier, CHAT, {**body, "speculative": {"n_max": -1}}).error["param"] == "speculative.n_max"
    assert ask(copier, CHAT, {**body, "speculative": {"p_min": 0.5}}).error["param"] == "speculative.p_min"


def test_the_model_is_known_by_its_name_and_its_aliases_only(talker: Server) -> None:
    assert ask(talker, CHAT, {**GREEDY, "model": "gpt-4o"}).json["model"] == "gpt-4o"
    call = ask(talker, CHAT, {**GREEDY, "model": "gpt-5"})
    assert call.status == 404
    assert (call.error["code"], call.error["param"]) == ("model_not_found", "model")
    assert "tiny, gpt-4o" in call.error["message"]


def test_a_base_model_refuses_to_chat() -> None:
    made = server(target=tiny_model(template=False))
    call = ask(made, CHAT, GREEDY)
    assert call.status == 400
    assert "no chat template" in call.error["message"]


def test_characters_in_the_making_are_held_back_and_flushed_at_the_end() -> None:
    made = server(target=speaking({prompt_of("hello"): "é".encode() + b"\xf0\x9f"}))
    events = streamed(ask(made, CHAT, {**GREEDY, "stream": True}))
    assert said(events) == "é\ufffd"
    assert {event["choices"][0]["delta"].get("content") for event in events} <= {
        "",
        "é",
        "\ufffd",
        "é\ufffd",
        None,
    }
