"""A model split into several files is the model; files that don't belong together are refused."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from gguf_files import GgufFile, Tensor, Typed
from oracle.changed import written_with
from oracle.tiny import Tiny, write_tiny
from pilotfish.engines.base import Chunk
from pilotfish.engines.native import NativeEngine
from pilotfish.engines.native.container import Container
from pilotfish.errors import FormatError, ModelError, UnsupportedError, UsageError
from pilotfish.model import file_sha256
from pilotfish.shards import shard_of, shard_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MODEL = Tiny(kind="Q8_0")


def digest(path: Path) -> int:
    engine = NativeEngine.load(path, threads=1)
    return engine.forward([Chunk(engine.open(), [1, 96, 5], 1)]).digest(0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("whole") / "m.gguf", MODEL)


@pytest.mark.parametrize("more", [{}, {"small_first_shard": True}], ids=["all", "first without tensors"])
def test_a_split_model_is_the_model_whichever_of_its_files_is_named(
    whole: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    """The files are written by the format's own library; logits are the same bits, tensors the same bytes."""
    with written_with(split_max_tensors=5, **more):
        write_tiny(tmp_path / "m.gguf", MODEL)
    files = sorted(tmp_path.iterdir())
    assert len(files) > 3
    assert len({digest(whole), *map(digest, files)}) == 1
    with Container.open(files[2]) as split, Container.open(whole) as one:
        assert split.path == files[0]
        assert split.size_bytes == sum(file.stat().st_size for file in files)
        assert split.tensors.keys() == one.tensors.keys()
        for name in one.tensors:
            split.read_ahead(name)
            split.release(name)
            assert bytes(split.data(name)) == bytes(one.data(name))


def test_a_closed_split_model_gives_nothing(tmp_path: Path) -> None:
    container = Container.open(written(tmp_path, [{}, {}])[0])
    container.close()
    container.read_ahead("t0")
    container.release("t0")
    with pytest.raises(UsageError, match="is closed"):
        container.data("t0")


def test_the_checksum_of_a_split_model_is_that_of_all_its_bytes_in_order(tmp_path: Path) -> None:
    files = written(tmp_path, [{}, {}, {}])
    both = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    assert [file_sha256(file) for file in files] == [both] * 3
    shutil.copy(files[0], tmp_path / "m.gguf")
    assert file_sha256(tmp_path / "m.gguf") == hashlib.sha256(files[0].read_bytes()).hexdigest()


def written(
    folder: Path, changes: Sequence[dict[str, object]], tensors: Sequence[str] | None = None
) -> list[Path]:
    """Write a split model of one tensor a file, with keys of each header replaced, or left out if None."""
    files = []
    for number, change in enumerate(changes):
        keys: dict[str, object] = {
            "split.no": Typed("u16", number),
            "split.count": Typed("u16", len(changes)),
            "split.tensors.count": Typed("i32", len(changes)),
        } | change
        path = folder / f"m-{number + 1:05d}-of-{len(changes):05d}.gguf"
        name = f"t{number}" if tensors is None else tensors[number]
        path.write_bytes(
            GgufFile([(k, v) for k, v in keys.items() if v is not None], [Tensor(name, (4,))]).build()
        )
        files.append(path)
    return files


def test_files_of_a_split_model_that_fit_are_opened(tmp_path: Path) -> None:
    with Container.open(written(tmp_path, [{}, {"split.tensors.count": None}])[1]) as container:
        assert list(container.tensors) == ["t0", "t1"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([{}, {"split.no": Typed("u16", 0)}], "m-00002-of-00002.gguf says it is file 0 .* of 2, not 1 of 2"),
        ([{}, {"split.no": None}], "says it is file no "),
        ([{}, {"split.count": Typed("u16", 3)}], "says it is file 1 .* of 3"),
        ([{}, {"split.count": None}], "says it is file 1 .* of 1"),
        ([{"split.tensors.count": Typed("i32", 7)}, {}], "promises 7 tensors, its 2 files have 2"),
        ([{"split.tensors.count": Typed("i32", -1)}, {}], "split.tensors.count is -1"),
        ([{"split.count": "two"}, {}], "split.count is 'two'"),
        ([{"split.count": True}, {}], "split.count is True"),
    ],
)
def test_files_that_do_not_fit_each_other_are_refused_by_name(
    tmp_path: Path, changes: list[dict[str, object]], words: str
) -> None:
    with pytest.raises(FormatError, match=words):
        Container.open(written(tmp_path, changes)[0])


def test_a_tensor_that_two_files_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"m-00002-of-00002\.gguf has the tensor 'same'"):
        Container.open(written(tmp_path, [{}, {}], ["same", "same"])[0])


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_file_is_named(tmp_path: Path, missing: int) -> None:
    files = written(tmp_path, [{}, {}, {}])
    files[missing].unlink()
    with pytest.raises(ModelError, match=f"no such file: .*m-0000{missing + 1}-of-00003.gguf"):
        Container.open(files[missing - 1])


@pytest.mark.parametrize("name", ["model.gguf", "m-00001-of-00003.gguf", "m-00003-of-00002.gguf"])
def test_a_split_model_whose_files_are_not_named_as_such_is_refused(tmp_path: Path, name: str) -> None:
    """The others could not be found: it is never run as if it were whole."""
    written(tmp_path, [{}, {}])[0].rename(tmp_path / name)
    with pytest.raises(UnsupportedError, match=f"{name} is one of the 2 files of a split model"):
        Container.open(tmp_path / name)


def test_a_count_beyond_all_measure_costs_nothing(written_one: Callable[[int], Path]) -> None:
    with pytest.raises(ModelError, match="no such file"):
        Container.open(written_one(99_999))


@pytest.fixture
def written_one(tmp_path: Path) -> Callable[[int], Path]:
    def write(count: int) -> Path:
        path = tmp_path / f"m-00001-of-{count:05d}.gguf"
        path.write_bytes(GgufFile([("split.no", 0), ("split.count", count)]).build())
        return path

    return write


def test_names_that_are_no_shards_stand_alone(tmp_path: Path) -> None:
    for name in ("m.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-1-of-2.gguf", "-.gguf"):
        assert shard_of(name) is None
        assert shard_paths(tmp_path / name) == [tmp_path / name]
    assert [path.name for path in shard_paths(tmp_path / "a-b-00002-of-00003.gguf")] == [
        "a-b-00001-of-00003.gguf",
        "a-b-00002-of-00003.gguf",
        "a-b-00003-of-00003.gguf",
    ]
