"""The hub: what is asked of it, and every way it can fail."""

from __future__ import annotations

import hashlib
import socket
from typing import TYPE_CHECKING

import pytest

from hub.doubles import FakeHub
from pilotfish.errors import ChecksumError, HubError, OfflineError, UsageError
from pilotfish.hub import Entry, cached_path, pull, web

if TYPE_CHECKING:
    from pathlib import Path

    from hub.doubles import Recorder


def test_the_file_is_fetched_and_named(
    entry: Entry, fake_hub: FakeHub, content: bytes, recorder: Recorder, cache: Path
) -> None:
    path = pull(entry.name, source="hub", progress=recorder)
    assert path == cached_path(entry.name)
    assert path.read_bytes() == content
    assert [request.path for request in fake_hub.requests] == ["/some/Tiny-GGUF/resolve/main/tiny.gguf"]
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]
    assert "Apache-2.0" in recorder.text
    assert f"{fake_hub.address}/some/Tiny-GGUF" in recorder.text
    assert entry.sha256 in recorder.text


def test_progress_adds_up_to_the_size(entry: Entry, fake_hub: FakeHub, recorder: Recorder) -> None:
    del fake_hub
    pull(entry.name, source="hub", progress=recorder)
    assert [(s.label, s.total, s.done, s.finished) for s in recorder.stretches] == [
        ("tiny", 1000, 1000, True),
        ("checking tiny", 1000, 1000, True),
    ]


def test_a_cached_model_is_not_asked_for(entry: Entry, fake_hub: FakeHub) -> None:
    first = pull(entry.name)
    assert pull(entry.name) == first
    assert len(fake_hub.requests) == 1


def test_a_break_is_mended_by_asking_for_the_rest(
    entry: Entry, fake_hub: FakeHub, content: bytes, recorder: Recorder
) -> None:
    fake_hub.breaks = [350, 1]
    path = pull(entry.name, source="hub", progress=recorder)
    assert path.read_bytes() == content
    assert [request.first for request in fake_hub.requests] == [0, 350, 351]
    assert "broke at byte 350" in recorder.text


def test_breaks_without_end_are_given_up_and_the_next_pull_goes_on(
    entry: Entry, fake_hub: FakeHub, content: bytes
) -> None:
    fake_hub.breaks = [500, 0, 0, 0]
    with pytest.raises(HubError, match="keeps breaking, now at byte 500 of 1,000"):
        pull(entry.name, source="hub")
    assert cached_path(entry.name) is None
    assert pull(entry.name, source="hub").read_bytes() == content
    assert fake_hub.requests[-1].first == 500


def test_a_hub_that_sends_a_byte_at_a_time_and_breaks_is_given_up(entry: Entry, fake_hub: FakeHub) -> None:
    fake_hub.breaks = [1] * 50
    with pytest.raises(HubError, match="keeps breaking"):
        pull(entry.name, source="hub")


def test_a_hub_without_ranges_starts_over(
    entry: Entry, fake_hub: FakeHub, content: bytes, recorder: Recorder
) -> None:
    fake_hub.breaks, fake_hub.ranges = [500], False
    assert pull(entry.name, source="hub", progress=recorder).read_bytes() == content
    assert "starting from the first byte" in recorder.text
    assert [s.done for s in recorder.stretches] == [500, 1000, 1000]


@pytest.mark.parametrize("status", [401, 404, 416, 429, 500])
def test_a_refusal_names_the_status_and_the_address(entry: Entry, fake_hub: FakeHub, status: int) -> None:
    fake_hub.status = status
    with pytest.raises(HubError, match=f"{status} .*tiny.gguf") as error:
        pull(entry.name, source="hub")
    assert ("HF_TOKEN" in error.value.hint) == (status == 401)
    assert "hf_secret" not in str(error.value)
    assert len(fake_hub.requests) == 1


def test_wrong_bytes_are_removed_and_both_checksums_named(
    entry: Entry, fake_hub: FakeHub, content: bytes, cache: Path
) -> None:
    fake_hub.content = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(ChecksumError) as error:
        pull(entry.name, source="hub")
    assert entry.sha256 in error.value.message
    assert hashlib.sha256(fake_hub.content).hexdigest() in error.value.message
    assert [file.name for file in cache.iterdir()] == ["tiny.gguf.lock"]


@pytest.mark.parametrize("length", [999, 1001])
def test_a_file_of_another_size_is_refused(entry: Entry, fake_hub: FakeHub, length: int) -> None:
    fake_hub.content = bytes(length)
    with pytest.raises(HubError, match=rf"{length:,} bytes instead of 1,000"):
        pull(entry.name, source="hub")
    assert cached_path(entry.name) is None


def test_another_checksum_in_the_hubs_answer_is_refused_before_a_byte_is_kept(
    entry: Entry, fake_hub: FakeHub, recorder: Recorder
) -> None:
    fake_hub.linked = "0" * 64
    with pytest.raises(ChecksumError, match="0" * 64):
        pull(entry.name, source="hub", progress=recorder)
    assert recorder.stretches == []


def test_the_token_goes_to_the_hub_but_not_to_where_it_redirects(
    entry: Entry, fake_hub: FakeHub, content: bytes
) -> None:
    store = FakeHub(content)
    try:
        fake_hub.onward, fake_hub.linked = store.address, entry.sha256
        pull(entry.name, source="hub")
        assert [request.authorization for request in fake_hub.requests] == ["Bearer hf_secret"]
        assert [request.authorization for request in store.requests] == [None]
    finally:
        store.close()


def test_the_checksum_is_looked_for_in_the_redirect_too(
    entry: Entry, fake_hub: FakeHub, content: bytes
) -> None:
    store = FakeHub(content)
    try:
        fake_hub.onward, fake_hub.linked = store.address, "0" * 64
        with pytest.raises(ChecksumError):
            pull(entry.name, source="hub")
    finally:
        store.close()


@pytest.mark.parametrize("onward", ["ftp://127.0.0.1:1", "file:///etc"])
def test_a_redirect_to_something_else_than_the_web_is_refused(
    entry: Entry, fake_hub: FakeHub, onward: str
) -> None:
    fake_hub.onward = onward
    with pytest.raises(HubError):
        pull(entry.name, source="hub")


def test_redirects_in_a_circle_end(entry: Entry, fake_hub: FakeHub) -> None:
    fake_hub.onward = fake_hub.address
    with pytest.raises(HubError):
        pull(entry.name, source="hub")


@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_is_not_there_is_an_offline_error(entry: Entry) -> None:
    with pytest.raises(OfflineError, match=r"can't be reached: http://127\.0\.0\.1:1"):
        pull(entry.name, source="hub")


def test_a_hub_that_does_not_answer_is_given_up(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(web, "CONNECT_S", 0.1)
        with pytest.raises(OfflineError, match="no answer"):
            pull(entry.name, source="hub")


@pytest.mark.parametrize(
    "address", ["huggingface.co", "file:///etc", "http://", "http://host:port", "http://[::1"]
)
def test_an_address_that_is_none_is_refused_by_name(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(UsageError, match="HF_ENDPOINT"):
        pull(entry.name)


def test_a_token_that_can_be_none_is_refused_without_being_shown(
    entry: Entry, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fake_hub
    monkeypatch.setenv("HF_TOKEN", "hf_sécret→")
    with pytest.raises(HubError, match="HF_TOKEN") as error:
        pull(entry.name, source="hub")
    assert "cret" not in str(error.value)
