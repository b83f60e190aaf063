"""Ask a server through litellm, and print what it said as JSON. Usage: ask_litellm.py URL MODEL."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no prices are fetched

import litellm

MESSAGES = [{"role": "user", "content": "Name a river."}]


def deltas(chunks: list[Any]) -> str:
    """Return the text of a stream."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def main(url: str, model: str) -> None:
    """Ask the server."""
    litellm.suppress_debug_info = True
    at: dict[str, Any] = {"api_base": url, "api_key": "none", "model": f"openai/{model}"}
    chat = {**at, "messages": MESSAGES, "temperature": 0, "max_tokens": 20, "seed": 1}
    whole = litellm.completion(**chat)
    chunks = list(litellm.completion(stream=True, stream_options={"include_usage": True}, **chat))
    said: dict[str, Any] = {
        "chat": whole.choices[0].message.content,
        "tokens": whole.usage.completion_tokens,
        "reason": whole.choices[0].finish_reason,
        "stream": deltas(chunks),
        "stream_tokens": chunks[-1].usage.completion_tokens,
        "async": asyncio.run(litellm.acompletion(**chat)).choices[0].message.content,
        "vllm": litellm.completion(**{**chat, "model": f"hosted_vllm/{model}"}).choices[0].message.content,
        "response": litellm.responses(**at, input="Name a river.", temperature=0, max_output_tokens=20)
        .output[0]
        .content[0]
        .text,
        "text": litellm.text_completion(
            **{**at, "model": f"text-completion-openai/{model}"},
            prompt="The largest city of France is",
            temperature=0,
            max_tokens=4,
        )
        .choices[0]
        .text,
    }
    mistakes: dict[str, dict[str, Any]] = {
        "unknown_model": {"model": "openai/no-such-model"},
        "tools": {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    }
    for name, wrong in mistakes.items():
        try:
            litellm.completion(**{**chat, **wrong})
        except Exception as error:
            said[name] = type(error).__name__
    json.dump(said, sys.stdout)


main(*sys.argv[1:])
