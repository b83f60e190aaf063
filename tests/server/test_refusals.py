"""Whatever is wrong with a request is said in OpenAI's shape, with the field's name; others go on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.server.fields import HARMLESS, UNSUPPORTED
from pilotfish.server.settings import Settings
from server.asgi import CHAT, COMPLETIONS, Call, Server, ask, look, running, server, settled
from tiny import tiny_model

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def made() -> Server:
    return server({})


def asked(made: Server, **fields: Any) -> Call:
    return ask(made, CHAT, {"messages": MESSAGES, "max_tokens": 1, **fields})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe{}",
        b'{"messages": "\xff"}',
        b'{"messages": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"temperature": NaN, "messages": []}',
        b'{"temperature": -Infinity, "messages": []}',
        b'{"temperature": 1e999, "messages": []}',
        b'{"seed": ' + b"9" * 5000 + b', "messages": []}',
        b"[" * 60_000,
        b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
        b'{"messages": []} {}',
        b"{'messages': []}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_is_no_json_object_is_refused(made: Server, body: bytes) -> None:
    call = ask(made, CHAT, body)
    assert call.status == 400
    assert call.error["type"] == "invalid_request_error"
    assert len(call.text) < 1000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("temperature", True),
        ("temperature", 10**400),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_k", 2**40),
        ("min_p", 1),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("stop", ""),
        ("stop", ["a"] * 17),
        ("stop", [1]),
        ("stop", {"a": 1}),
        ("n", 0),
        ("n", 17),
        ("n", 10**30),
        ("n", "2"),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("max_tokens", 2.5),
        ("max_completion_tokens", 0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -3),
        ("repetition_penalty", 0),
        ("repeat_penalty", 1000),
        ("repeat_last_n", -2),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"five": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"99999999999999999999": 1}),
        ("logit_bias", {"300": 1}),
        ("logit_bias", [5]),
        ("bad_words", [""]),
        ("bad_words", "word"),
        ("bad_words", [5]),
        ("min_tokens", 2),
        ("min_tokens", -1),
        ("ignore_eos", "yes"),
        ("logprobs", 5),
        ("top_logprobs", 21),
        ("stream", "true"),
        ("stream_options", {"include_usage": True}),
        ("cache_salt", ""),
        ("cache_salt", "a" * 257),
        ("cache_salt", 5),
        ("model", 5),
        ("messages", None),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_and_the_field_is_named(
    made: Server, field: str, value: Any
) -> None:
    usual = {} if field == "max_completion_tokens" else {"max_tokens": 1}
    call = ask(made, CHAT, {"messages": MESSAGES, **usual, field: value})
    assert call.status == 400
    named = call.error["param"]
    if not (field == "temperature" and value == 10**400):
        assert named is not None
        assert named.split(".")[0].split("[")[0] == field


@pytest.mark.parametrize(
    "field", sorted({*UNSUPPORTED, "foo", "temprature", "x" * 200, "n_probs", "samplers", "é\n"})
)
def test_what_is_not_supported_is_refused_by_name_and_never_ignored(made: Server, field: str) -> None:
    value: Any = {"type": "json_object"} if field == "response_format" else [{"type": "function"}]
    call = asked(made, **{field: value})
    assert call.status == 400
    assert (call.error["param"], call.error["code"]) == (field[:80], "unsupported_parameter")
    assert len(call.error["message"]) < 300


HARMLESS_VALUES = {
    "user": "me",
    "metadata": {"a": "b"},
    "safety_identifier": "x",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "cache_prompt": True,
    "service_tier": "auto",
    "store": False,
    "background": False,
    "max_tool_calls": 3,
    "reasoning": {"effort": "none", "summary": None},
    "truncation": "disabled",
    "tools": [],
    "functions": [],
    "tool_choice": "auto",
    "function_call": "none",
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "best_of": 1,
    "suffix": "",
    "add_generation_prompt": True,
    "continue_final_message": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
    "return_token_ids": False,
    "return_tokens_as_token_ids": False,
    "timings_per_token": False,
    "use_beam_search": False,
    "typical_p": 1.0,
    "tfs_z": 1,
    "mirostat": 0,
    "dry_multiplier": 0.0,
    "xtc_probability": 0,
}


def test_fields_that_change_nothing_are_accepted_as_are_nulls(made: Server) -> None:
    assert HARMLESS_VALUES.keys() == HARMLESS.keys()
    assert len(ANY_VALUE) == 6
    assert asked(made, **HARMLESS_VALUES).status == 200
    assert asked(made, **dict.fromkeys([*HARMLESS, *UNSUPPORTED])).status == 200
    assert asked(made, foo=None).error["param"] == "foo"


ANY_VALUE = {name for name, takes in HARMLESS.items() if takes(object())}


@pytest.mark.parametrize("field", sorted(set(HARMLESS) - ANY_VALUE))
def test_the_same_fields_with_a_value_that_would_change_something_are_refused(
    made: Server, field: str
) -> None:
    for value in (["other"], {"type": "json_object"}, 7, "other"):
        assert asked(made, **{field: value}).error["param"] == field
    if HARMLESS_VALUES[field] is True or HARMLESS_VALUES[field] is False:
        for number in (0, 1):
            assert asked(made, **{field: number}).status == 400


def pieces_of(size: int, piece: int) -> Any:
    """Yield a body of JSON of a size, bit by bit."""
    start = b'{"messages": [{"role": "user", "content": "'
    yield start
    for _ in range((size - len(start)) // piece):
        yield b"a" * piece
    yield b'"}]}'


@pytest.mark.parametrize("told", [True, False])
def test_a_body_beyond_the_limit_is_refused_while_it_is_read_and_not_kept(told: bool) -> None:
    """With and without a Content-Length; after four times the limit nothing more is read."""

    async def scenario(size: int) -> Call:
        small = server({}, settings=Settings(most_body_bytes=10_000))
        headers = {"content-type": "application/json"}
        if told:
            headers["content-length"] = str(size)
        return await Call(small.app, CHAT, pieces_of(size, 1000), headers=headers).end()

    for size in (20_000, 200_000):
        call = running(lambda size=size: scenario(size))  # type: ignore[misc]
        assert (call.status, call.error["code"]) == (413, "request_too_large")
        assert call.response_headers["connection"] == "close"
        assert call.read_bytes <= 42_000
    call = running(lambda: scenario(9_000))
    assert call.error["code"] == "context_length_exceeded"


def test_a_body_that_does_not_arrive_is_not_waited_for_for_ever() -> None:
    async def scenario() -> Call:
        made = server({}, settings=Settings(body_s=33))
        call = Call(made.app, CHAT, b'{"messages":', stalls=True)
        await settled()
        assert made.naps.lengths == [33]
        assert call.messages == []
        made.naps.end()
        return await call.end()

    assert running(scenario).status == 408


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; a=b"]
)
def test_only_json_is_read_so_that_pages_of_others_can_not_ask(made: Server, kind: str) -> None:
    body = {"messages": MESSAGES, "max_tokens": 1}
    assert ask(made, CHAT, body, **{"content-type": kind}).status == 415
    assert ask(made, CHAT, body, **{"content-type": "", "origin": "https://evil.example"}).status == 415
    for good in ("application/json", "Application/JSON; charset=utf-8", "application/problem+json", ""):
        assert ask(made, CHAT, body, **{"content-type": good}).status == 200
    assert ask(made, CHAT, body, **{"content-encoding": "gzip"}).status == 415


def test_unknown_paths_and_methods_have_the_same_shape(made: Server) -> None:
    for path in ("/", "/v1", "/v1/embeddings", "/v1/chat/completions/x"):
        call = look(made, path)
        assert (call.status, call.error["code"]) == (404, "unknown_url")
    for path, method in ((CHAT, "GET"), (COMPLETIONS, "DELETE"), ("/v1/models", "POST"), ("/health", "PUT")):
        call = look(made, path, method)
        assert (call.status, call.error["code"]) == (405, "method_not_allowed")
        assert call.response_headers["allow"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10**20) | st.floats(-10, 10) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
parts = st.lists(st.fixed_dictionaries({}, optional={"type": json_values, "text": json_values}), max_size=2)
turns = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"]) | json_values}, optional={"content": parts}
    ),
    max_size=2,
)
TEXTS = ("messages", "prompt", "content", "tokens", "input", "stop", "bad_words", "cache_salt", "model")
NUMBERS = ("temperature", "top_p", "top_k", "min_p", "seed", "n", "min_tokens", "logprobs", "top_logprobs")
OTHERS = ("stream", "stream_options", "echo", "speculative", "logit_bias", "tools", "response_format")
MORE = ("reasoning", "text", "include", "metadata", "instructions")
USUAL = {CHAT: ("messages", MESSAGES), "/v1/responses": ("input", "hello")}


@settings(max_examples=80, deadline=None)
@given(
    path=st.sampled_from([CHAT, COMPLETIONS, "/v1/responses", "/tokenize", "/detokenize"]),
    fields=st.dictionaries(
        st.sampled_from([*TEXTS, *NUMBERS, *OTHERS, *MORE]), json_values | turns, max_size=4
    ),
)
def test_no_body_is_the_servers_fault(path: str, fields: dict[str, Any]) -> None:
    """Whatever is sent: an answer, or a refusal of OpenAI's shape; and the server goes on."""
    usual: dict[str, Any] = dict([USUAL.get(path, ("prompt", "hello"))])
    limits = {CHAT: "max_tokens", COMPLETIONS: "max_tokens", "/v1/responses": "max_output_tokens"}
    limited = {limits[path]: 2} if path in limits else {}
    call = ask(SHARED, path, {**usual, **limited, **fields})
    assert call.status in {200, 400, 404}
    if call.status != 200:
        assert call.error["type"] == "invalid_request_error"


SHARED = server(target=tiny_model(context=200))
