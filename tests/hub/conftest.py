"""A model of 1,000 bytes in 4 parts, and both its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hub.doubles import NAME, FakeHub, FakePip, Recorder, entry_for
from pilotfish.hub import REGISTRY, Entry, from_packages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def content() -> bytes:
    return bytes((i * i + i // 7) % 256 for i in range(1000))


@pytest.fixture
def entry(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Entry:
    entry = entry_for(content, part_bytes=300)
    monkeypatch.setitem(REGISTRY, NAME, entry)
    return entry


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no other program's folders, and no setting of the machine's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PILOTFISH_CACHE", str(folder))
    for name in ("PILOTFISH_OFFLINE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, folder_name in (
        ("HF_HUB_CACHE", "hf"),
        ("OLLAMA_MODELS", "ollama"),
        ("LLAMA_CACHE", "llama.cpp"),
    ):
        monkeypatch.setenv(name, str(tmp_path / folder_name))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("no_proxy", "*")
    return folder


@pytest.fixture
def fake_pip(tmp_path: Path, entry: Entry, content: bytes, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    double = FakePip.create(tmp_path)
    double.stock(entry, content)
    monkeypatch.setattr(from_packages, "pip", double.command)
    return double


@pytest.fixture
def fake_hub(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    hub = FakeHub(content)
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    yield hub
    hub.close()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the hub's address."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
