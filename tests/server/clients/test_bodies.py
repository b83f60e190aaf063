"""Requests as other programs send them: none may be refused for what its user did not ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from server.clients.loopback import Server

USER = {"role": "user", "content": "What is a pilot fish?"}
SYSTEM = {"role": "system", "content": "Be brief."}
TEXT_PARTS = {"role": "user", "content": [{"type": "text", "text": "What is a pilot fish?"}]}
SAID = {"role": "assistant", "content": "A fish.", "refusal": None, "tool_calls": None}
USAGE = {"include_usage": True}

BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("litellm", "chat/completions", {"messages": [USER], "temperature": 0, "max_tokens": 20, "stream": True}),
    ("litellm responses", "responses", {"input": "a", "max_output_tokens": 16}),
    (
        "LangChain",
        "chat/completions",
        {"messages": [USER], "max_completion_tokens": 20, "temperature": 0.0, "stream": False},
    ),
    (
        "LangChain responses",
        "responses",
        {"input": [{**USER, "type": "message"}], "max_output_tokens": 20, "temperature": 0.0, "stream": True},
    ),
    ("llm", "chat/completions", {"messages": [SYSTEM, USER], "stream": True, "stream_options": USAGE}),
    ("llm responses", "responses", {"input": [USER], "instructions": "Be brief.", "store": False, "seed": 1}),
    (
        "Aider",
        "chat/completions",
        {"messages": [SYSTEM, USER, SAID, USER], "temperature": 0, "stream": True, "stream_options": USAGE},
    ),
    (
        "Continue",
        "chat/completions",
        {
            "messages": [SYSTEM, TEXT_PARTS],
            "max_tokens": 4096,
            "temperature": 0.5,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "stream": True,
            "stop": None,
            "stream_options": USAGE,
        },
    ),
    (
        "Continue autocomplete",
        "completions",
        {
            "prompt": "def add(a, b):",
            "max_tokens": 256,
            "temperature": 0.01,
            "stream": True,
            "stop": ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "/src/", "#- coding: utf-8", "```"],
        },
    ),
    (
        "Open WebUI",
        "chat/completions",
        {"messages": [SYSTEM, USER, SAID, USER], "stream": True, "stream_options": USAGE},
    ),
    (
        "Open WebUI, with its user's settings",
        "chat/completions",
        {
            "messages": [USER],
            "stream": True,
            "temperature": 0.8,
            "top_p": 0.9,
            "min_p": 0.05,
            "top_k": 40,
            "repeat_penalty": 1.1,
            "repeat_last_n": 64,
            "seed": 1,
            "stop": ["###"],
            "logit_bias": {},
        },
    ),
    ("Open WebUI titles", "chat/completions", {"messages": [USER], "stream": False, "max_tokens": 1000}),
    (
        "lm_eval choices",
        "completions",
        {"prompt": [[65, 66]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True},
    ),
    (
        "lm_eval texts",
        "completions",
        {
            "prompt": [[65, 66]],
            "max_tokens": 12,
            "temperature": 0,
            "stop": ["\n", "<|im_end|>"],
            "seed": 1234,
        },
    ),
    ("lm_eval texts, many at once", "completions", {"prompt": [[65]], "max_tokens": 12, "stop": []}),
    (
        "empty fields of a chat",
        "chat/completions",
        {"messages": [TEXT_PARTS], "stream": True, "stream_options": USAGE, "user": "u", "tools": None},
    ),
    (
        "empty fields of a response",
        "responses",
        {
            "input": [USER],
            "instructions": None,
            "include": [],
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "metadata": {"a": "b"},
            "stream": True,
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), [one[1:] for one in BODIES], ids=[name for name, *_ in BODIES])
def test_a_request_as_programs_send_it_is_answered(server: Server, path: str, body: dict[str, Any]) -> None:
    """Defaults, empty lists, nulls and parts included."""
    answer = server.client.post(f"/{path}", cast_to=str, body={"model": server.model, **body})
    assert '"error":{' not in answer
    assert answer.endswith("}" if not body.get("stream") else "\n\n")
