"""Ask a server through LangChain, and print what it said as JSON. Usage: ask_langchain.py URL MODEL."""

from __future__ import annotations

import json
import sys

from langchain_openai import ChatOpenAI


def main(url: str, model: str) -> None:
    """Ask the server at both of its interfaces for chat."""
    said: dict[str, object] = {}
    for name, responses in ("chat", False), ("responses", True):
        chat = ChatOpenAI(
            base_url=url,
            api_key="none",
            model=model,
            temperature=0,
            max_tokens=20,
            use_responses_api=responses,
        )
        whole = chat.invoke("Name a river.")
        said[name] = whole.text
        said[f"{name}_stream"] = "".join(chunk.text for chunk in chat.stream("Name a river."))
        said[f"{name}_tokens"] = whole.usage_metadata["output_tokens"]
    json.dump(said, sys.stdout)


main(*sys.argv[1:])
