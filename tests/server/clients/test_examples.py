"""The examples of docs/clients.md with OpenAI's client run; `make clients` runs the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.server.settings import Settings
from server.clients.loopback import SPOKEN, reciting, served
from tiny import tiny_model

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"
URL = "http://127.0.0.1:8000/v1"
MODEL = "qwen2.5-coder-1.5b"


def examples(kind: str, url: str) -> list[str]:
    """Return the blocks of Python for one client, for a server at another URL."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(rf"^```python {kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found
    return [block.replace(URL, url) for block in found]


def test_the_examples_with_openai_run(capsys: pytest.CaptureFixture[str]) -> None:
    """In order, on a model without weights; what they print is what it says."""
    names: dict[str, object] = {}
    with served(tiny_model(reciting()), Settings(aliases=(MODEL,))) as server:
        for block in examples("openai", server.url):
            exec(compile(block, "clients.md", "exec"), names)  # noqa: S102 - our own documentation
    said = capsys.readouterr().out
    assert said.startswith(SPOKEN[:30])
    assert said.count("\n") == 3
