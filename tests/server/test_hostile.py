"""Requests that are meant to harm: they cost whoever sends them little, and others nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pilotfish.server.settings import Settings
from server.asgi import CHAT, COMPLETIONS, Server, ask, server
from tiny import tiny_model

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def made() -> Server:
    return server(target=tiny_model(context=300))


@pytest.mark.parametrize("value", [[], {}, [[]], 1.5, True])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            CHAT,
            lambda value: {"messages": [{"role": "user", "content": [{"type": value}]}]},
            "messages[0].content[0].type",
        ),
        (CHAT, lambda value: {"messages": MESSAGES, "reasoning": {"effort": value}}, "reasoning"),
        (
            "/v1/responses",
            lambda value: {"input": [{"role": "user", "content": [{"type": value}]}]},
            "input[0].content[0].type",
        ),
        ("/v1/responses", lambda value: {"input": [{"role": value, "content": "a"}]}, "input[0].role"),
        ("/v1/responses", lambda value: {"input": [{"type": value}]}, "input[0].type"),
        ("/v1/responses", lambda value: {"input": "a", "reasoning": {"effort": value}}, "reasoning"),
    ],
)
def test_a_value_of_any_kind_where_a_word_stands_is_the_clients_fault(
    made: Server, path: str, body: Any, param: str, value: object
) -> None:
    """Lists and objects can't be looked up in a set, as words can."""
    call = ask(made, path, body(value))
    assert (call.status, call.error["param"]) == (400, param)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": MESSAGES, "a\n2026-01-30 forged\x1b[31m": 1},
        {"messages": [{**MESSAGES[0], "a\n2026-01-30 forged\x1b[31m": 1}]},
        {"messages": MESSAGES, "stop": {"a\n": 1}},
    ],
)
def test_names_that_a_client_makes_up_add_no_lines_to_the_log(
    made: Server, caplog: pytest.LogCaptureFixture, body: dict[str, Any]
) -> None:
    with caplog.at_level(logging.INFO, logger="pilotfish.requests"):
        assert ask(made, CHAT, body).status == 400
    [line] = [record.getMessage() for record in caplog.records if record.name == "pilotfish.requests"]
    assert line.isprintable()


@pytest.mark.parametrize(
    ("field", "within", "beyond"),
    [
        ("bad_words", ["word"] * 64, ["word"] * 65),
        ("bad_words", ["w" * 1000], ["w" * 1001]),
        ("stop", "w" * 1000, "w" * 1001),
        ("stop", ["a", "w" * 1000], ["a", "w" * 1001]),
        (
            "logit_bias",
            {f"{token % 200:0{4 + token // 200}}": 1 for token in range(1024)},
            {f"{token % 200:0{4 + token // 200}}": 1 for token in range(1025)},
        ),
    ],
)
def test_what_is_looked_at_for_each_token_is_bounded(
    made: Server, field: str, within: object, beyond: object
) -> None:
    body = {"messages": MESSAGES, "max_tokens": 2}
    assert ask(made, CHAT, {**body, field: within}).status == 200
    call = ask(made, CHAT, {**body, field: beyond})
    assert (call.status, call.error["param"]) == (400, field)


def test_of_a_prompt_that_is_too_long_no_copies_are_made(
    made: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are not tokenized, so their number is known at once; sixteen answers would have a copy each."""
    monkeypatch.setattr("pilotfish.server.service.choices_of", None)
    for prompt in ([5] * 300, [[5] * 100_000, [5]]):
        call = ask(made, COMPLETIONS, {"prompt": prompt, "n": 16})
        assert (call.error["code"], call.error["param"]) == ("context_length_exceeded", "prompt")


def test_of_more_messages_than_the_context_has_tokens_no_template_is_made(
    made: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(made.service.target.template), "render", None)
    for path in (CHAT, "/tokenize"):
        call = ask(made, path, {"messages": [{"role": "user", "content": ""}] * 300})
        assert (call.error["code"], call.error["param"]) == ("context_length_exceeded", "messages")


def test_the_text_of_ids_is_no_larger_than_a_request_may_be() -> None:
    made = server({}, settings=Settings(most_body_bytes=1200))
    assert made.service.longest_token == 12
    assert ask(made, "/detokenize", {"tokens": [5] * 100}).status == 200
    call = ask(made, "/detokenize", {"tokens": [5] * 101})
    assert (call.status, call.error["param"]) == (400, "tokens")


def test_more_prompts_than_may_wait_are_refused_for_good_and_not_told_to_come_again() -> None:
    made = server({}, settings=Settings(most_waiting=2))
    assert ask(made, COMPLETIONS, {"prompt": ["a", "b"], "max_tokens": 1}).status == 200
    call = ask(made, COMPLETIONS, {"prompt": ["a", "b", "c"], "max_tokens": 1})
    assert (call.status, call.error["param"]) == (400, "prompt")
