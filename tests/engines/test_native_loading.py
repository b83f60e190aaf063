"""Loading tells how far it is, and keeps no second copy of the weights."""

from __future__ import annotations

import itertools
import mmap
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine, builder
from pilotfish.engines.native import container as container_module
from pilotfish.engines.native.container import Container
from pilotfish.engines.native.kernel_types import KERNEL_TYPES

MB = 1 << 20
LARGE = Tiny(layers=4, width=512, mlp_width=2048)
"""63 MB."""

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("large") / "m.gguf", LARGE)


def digest(engine: NativeEngine) -> int:
    """Hash of a row of logits that every matrix takes part in."""
    return engine.forward([Chunk(engine.open(), [1, 96, 5], 1)]).digest(0)


@pytest.mark.parametrize("part_bytes", [1, 20_000, builder._PART_BYTES])
def test_progress_rises_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int) -> None:
    """Each call tells more than the one before, and the last one tells that all is loaded."""
    monkeypatch.setattr(builder, "_PART_BYTES", part_bytes)
    path, shares = write_tiny(tmp_path / "m.gguf"), list[float]()
    NativeEngine.load(path, progress=shares.append)
    assert shares == sorted(set(shares))
    assert shares[0] > 0
    assert shares[-1] == 1
    assert len(shares) >= 16  # the matrices of the model


def test_progress_is_told_within_a_matrix(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is never more than a part, however large the matrix."""
    monkeypatch.setattr(builder, "_PART_BYTES", MB)
    shares = [0.0]
    NativeEngine.load(large, progress=shares.append)
    steps = [after - before for before, after in itertools.pairwise(shares)]
    assert max(steps) * large.stat().st_size <= 1.1 * MB


@pytest.mark.parametrize("kind", sorted(KERNEL_TYPES))
def test_a_model_packed_in_parts_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Parts of 16 rows give the bits that whole matrices give, the last rows of 97 included."""
    path = write_tiny(tmp_path / "m.gguf", Tiny(kind=kind, embedding_kind=kind, width=256))
    whole = digest(NativeEngine.load(path))
    monkeypatch.setattr(builder, "_PART_BYTES", 1)
    assert digest(NativeEngine.load(path)) == whole


def test_the_system_is_asked_once_to_read_each_page_ahead(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in the file's order, a part is asked for before it is packed, and no byte twice."""
    monkeypatch.setattr(container_module, "_AHEAD", 8 * MB)
    with Container.open(large) as container:
        asked = Recorder(container)
        first, last = min(info.offset for info in container.tensors.values()), 0
        for info in sorted(container.tensors.values(), key=lambda info: info.offset):
            for begin in range(0, info.nbytes, MB):
                container.read_ahead(info.name, begin)
                last = min(info.offset + begin + MB, info.offset + info.nbytes)
                assert asked.ranges[-1][1] >= last
        assert asked.ranges[0][0] <= first
        assert asked.ranges[-1][1] == container.size_bytes
        for (_, end), (begin, _) in itertools.pairwise(asked.ranges):
            assert end - mmap.PAGESIZE < begin <= end
        assert len(asked.ranges) <= 2 * container.size_bytes / (8 * MB) + 1


def test_bytes_of_a_tensor_can_be_read_after_they_were_released(large: Path) -> None:
    """Releasing is a hint: any range, at the edge of pages or not, leaves the bytes as they are."""
    with Container.open(large) as container:
        name = "blk.0.ffn_up.weight"
        before = bytes(container.data(name))
        for begin, end in (
            (0, None),
            (0, 1),
            (5, 4096),
            (4097, 3 * 4096 + 1),
            (len(before) - 1, len(before)),
        ):
            container.release(name, begin, end)
            assert bytes(container.data(name)) == before


@needs_proc
def test_pages_of_the_file_are_released_as_they_are_packed(large: Path) -> None:
    """While a model loads, no more of its file is in this process's memory than one part or matrix."""
    seen: list[int] = []
    with Container.open(large) as container:
        NativeEngine.load(container, progress=lambda _share: seen.append(resident_bytes(large)))
    assert max(seen) < MB


@needs_proc
def test_no_second_copy_of_the_weights_is_kept(large: Path) -> None:
    """Loading takes at most 1.4 times the file at its peak, beside 8 MB for all else."""
    script = """
import re, sys
from pathlib import Path
from pilotfish.engines.native import NativeEngine

def peak():  # not ru_maxrss, which a process inherits from the one that started it
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = peak()
engine = NativeEngine.load(sys.argv[1], threads=2)
print(peak() - before, engine.weights_bytes)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(large)], check=True, capture_output=True, text=True, timeout=120
    )
    grown, weights = map(int, done.stdout.split())
    assert weights <= grown <= 1.4 * large.stat().st_size + 8 * MB


class Recorder:
    """Stands before a container's mapping and notes what is asked of the system: (first byte, end)."""

    def __init__(self, container: Container) -> None:
        self.ranges: list[tuple[int, int]] = []
        file = container._files[0]
        self._mapped = file.mapped
        file.mapped = cast("mmap.mmap", self)

    def madvise(self, _advice: int, start: int, length: int) -> None:
        """Note one call."""
        self.ranges.append((start, start + length))

    def close(self) -> None:
        """Close the mapping itself."""
        self._mapped.close()

    def __len__(self) -> int:
        return len(self._mapped)


def resident_bytes(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total
