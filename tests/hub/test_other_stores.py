"""Models that other programs fetched are found where they are; nothing is written there, nothing believed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.errors import FormatError, HubError, PilotfishError, UnknownModel, UnsupportedError, UsageError
from pilotfish.hub import cached_path, hf_cache, llama_cpp, models_here, ollama, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotfish.hub import Entry

DATA = b"some model"
SHA256 = hashlib.sha256(DATA).hexdigest()
MODEL = "application/vnd.ollama.image.model"


def layer(kind: str = MODEL, **changes: Any) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{SHA256}", "size": len(DATA)} | changes


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ollama's, with one file."""
    blobs = tmp_path / "ollama" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"sha256-{SHA256}").write_bytes(DATA)
    return tmp_path / "ollama"


@pytest.fixture
def manifest(store: Path) -> Callable[..., Path]:
    def write(content: object, *parts: str) -> Path:
        path = store.joinpath("manifests", *(parts or ("registry.ollama.ai", "library", "m", "latest")))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


GOOD = {"schemaVersion": 2, "layers": [layer("application/vnd.ollama.image.template"), layer()]}


@pytest.mark.parametrize(
    ("parts", "name", "asked"),
    [
        (("registry.ollama.ai", "library", "m", "latest"), "ollama:m:latest", ["ollama:m"]),
        (("registry.ollama.ai", "library", "qwen2.5", "1.5b-q4_0"), "ollama:qwen2.5:1.5b-q4_0", []),
        (("registry.ollama.ai", "some.one", "m", "7b"), "ollama:some.one/m:7b", []),
        (("hf.co", "Org", "M-GGUF", "Q4_K_M"), "ollama:hf.co/Org/M-GGUF:Q4_K_M", []),
        (("host:5000", "library", "m", "latest"), "ollama:host:5000/library/m:latest", []),
    ],
)
def test_a_model_of_ollama_is_found_by_its_name(
    store: Path, manifest: Callable[..., Path], parts: tuple[str, ...], name: str, asked: list[str]
) -> None:
    manifest(GOOD, *parts)
    for one in (name, *asked):
        ref = resolve(one)
        assert (ref.path, ref.name, ref.sha256) == (store / "blobs" / f"sha256-{SHA256}", name, SHA256)
    (found,) = models_here()
    assert (found.name, found.store, found.size) == (name, "ollama", len(DATA))


def test_a_file_that_the_registry_knows_is_known_in_ollamas_store_too(
    entry: Entry, content: bytes, store: Path, manifest: Callable[..., Path]
) -> None:
    """So it has its draft model. Its old spelling of file names is understood."""
    (store / "blobs" / f"sha256:{entry.sha256}").write_bytes(content)
    manifest({"layers": [layer(digest=f"sha256:{entry.sha256}", size=len(content))]})
    assert resolve("ollama:m").entry is entry


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"", FormatError, "is no JSON"),
        (b"\xff", FormatError, "is no JSON"),
        (b"[" * 100_000, FormatError, "is no JSON"),
        (b" " * ((1 << 20) + 1), HubError, "more than 1048576 bytes"),
        ([], FormatError, "lists no layers"),
        ({"layers": {}}, FormatError, "lists no layers"),
        ({"layers": [3]}, FormatError, "lists no layers"),
        ({"layers": []}, FormatError, "lists 0 layers"),
        ({"layers": [layer(), layer()]}, FormatError, "lists 2 layers"),
        ({"layers": [layer(digest=None)]}, FormatError, "no SHA-256"),
        ({"layers": [layer(digest="sha256:../../../etc/passwd")]}, FormatError, "no SHA-256"),
        ({"layers": [layer(digest="sha256:" + "0" * 64)]}, FormatError, "which is not in"),
        ({"layers": [layer(size=len(DATA) + 1)]}, FormatError, "says that .* has 11 bytes, it has 10"),
        ({"layers": [layer(size="x" * 500)]}, FormatError, "has x{20} bytes"),
        (
            {"layers": [layer(), layer("application/vnd.ollama.image.adapter")]},
            UnsupportedError,
            "adds an adapter",
        ),
    ],
)
def test_a_manifest_that_can_not_be_believed_is_refused_by_name(
    manifest: Callable[..., Path], content: object, error: type[PilotfishError], words: str
) -> None:
    """It also stands in the list, with the reason."""
    path = manifest(content)
    with pytest.raises(error, match=words) as refused:
        resolve("ollama:m")
    assert str(path) in refused.value.message
    (found,) = models_here()
    assert (found.path, str(found.problem)) == (None, str(refused.value))


def test_a_manifest_that_is_a_pipe_is_not_waited_for(store: Path) -> None:
    folder = store / "manifests" / "registry.ollama.ai" / "library" / "m"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "latest")
    with pytest.raises(HubError, match="no regular file"):
        resolve("ollama:m")


@pytest.mark.parametrize(
    "name",
    [
        "ollama:",
        "ollama:../m",
        "ollama:a/../m:x",
        "ollama:m:../x",
        "ollama:m:a:b",
        "ollama:a/b/c/d",
        "ollama:.hidden",
        "ollama:m\0",
        "ollama:" + "x" * 5000,
    ],
)
def test_names_that_leave_the_store_are_refused(store: Path, name: str) -> None:
    del store
    with pytest.raises(UsageError, match="write ollama:NAME"):
        resolve(name)


def test_a_model_that_ollama_has_not_is_answered_by_those_it_has(manifest: Callable[..., Path]) -> None:
    with pytest.raises(UnknownModel, match="OLLAMA_MODELS"):
        resolve("ollama:m")
    for index in range(12):
        manifest(GOOD, "registry.ollama.ai", "library", f"n{index:02d}", "1b")
    with pytest.raises(UnknownModel, match=r"there: ollama:n00:1b, .*n07:1b and 4 more"):
        resolve("ollama:m")


def test_names_of_files_that_ollama_would_not_write_are_not_listed(manifest: Callable[..., Path]) -> None:
    manifest(GOOD, "registry.ollama.ai", "library", "m\x1b[2J", "x")
    manifest(GOOD, "registry.ollama.ai", "library", "m", ".DS_Store")
    assert ollama.models() == []


@pytest.mark.parametrize(
    ("module", "variables", "expected"),
    [
        (ollama, {}, "/home/me/.ollama/models"),
        (ollama, {"OLLAMA_MODELS": "~/x"}, "/home/me/x"),
        (llama_cpp, {}, "/home/me/.cache/llama.cpp"),
        (llama_cpp, {"XDG_CACHE_HOME": "/xdg"}, "/xdg/llama.cpp"),
        (llama_cpp, {"LLAMA_CACHE": "~nobody-here/x"}, "~nobody-here/x"),
        (hf_cache, {}, "/home/me/.cache/huggingface/hub"),
        (hf_cache, {"HF_HOME": "/hf"}, "/hf/hub"),
        (hf_cache, {"XDG_CACHE_HOME": "/xdg"}, "/xdg/huggingface/hub"),
        (hf_cache, {"HF_HOME": "/hf", "HF_HUB_CACHE": "/hub"}, "/hub"),
    ],
)
def test_folders_are_those_of_the_programs(
    monkeypatch: pytest.MonkeyPatch, module: Any, variables: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ollama, "_OF_THE_SERVICE", Path("/none"))
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/me"} | variables).items():
        monkeypatch.setenv(name, value)
    assert module.folder() == Path(expected)
    assert module.models() == []


def test_a_model_in_llama_cpps_cache_is_found_by_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "llama.cpp"
    folder.mkdir()
    names = ["org_m-Q4_K_M.gguf", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf", "t-00001-of-00002.gguf"]
    for name in [*names, "manifest=org=m=latest.json", "half.gguf.downloadInProgress", ".x.gguf"]:
        (folder / name).write_bytes(DATA)
    (folder / "a-folder.gguf").mkdir()
    assert [(m.name, m.size) for m in models_here()] == [
        ("llama.cpp:org_m-Q4_K_M", 10),
        ("llama.cpp:s-00001-of-00002", 20),
    ]
    assert resolve("llama.cpp:org_m-Q4_K_M.gguf").path == folder / "org_m-Q4_K_M.gguf"
    for name in ("llama.cpp:../x", "llama.cpp:", "llama.cpp:m\0"):
        with pytest.raises(UnknownModel, match=r"there: llama\.cpp:org_m"):
            resolve(name)


@pytest.fixture
def hugging_face(tmp_path: Path) -> Path:
    """Two snapshots of a repository, of which the older is `main`, with links as in a real one."""
    place = tmp_path / "hf" / "models--org--M-GGUF"
    (place / "blobs").mkdir(parents=True)
    (place / "blobs" / SHA256).write_bytes(DATA)
    for commit in ("aaa", "bbb"):
        folder = place / "snapshots" / commit / "deep"
        folder.mkdir(parents=True)
        (folder / f"m-{commit}-Q4_K_M.gguf").symlink_to(place / "blobs" / SHA256)
        (folder / "README.md").write_bytes(b"")
    os.utime(place / "snapshots" / "aaa", (1, 1))
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("aaa")
    return place


def test_a_model_in_hugging_faces_cache_is_found_by_its_repository(hugging_face: Path) -> None:
    path = hugging_face / "snapshots" / "aaa" / "deep" / "m-aaa-Q4_K_M.gguf"
    for name in ("hf:org/M-GGUF", "hf:org/M-GGUF:q4_k_m", "hf:org/M-GGUF:m-aaa-Q4_K_M.gguf"):
        ref = resolve(name)
        assert (ref.path, ref.name, ref.sha256) == (path, "hf:org/M-GGUF:Q4_K_M", SHA256)
    assert [(m.name, m.store) for m in models_here()] == [("hf:org/M-GGUF:Q4_K_M", "huggingface")]
    with pytest.raises(HubError, match="pilotfish pull hf:org/M-GGUF:Q8_0"):
        resolve("hf:org/M-GGUF:Q8_0")


@pytest.mark.parametrize("main", [b"../../..", b"ccc", b"\xff", b"a" * 200, None])
def test_without_a_main_that_is_there_it_is_the_newest_snapshot(
    hugging_face: Path, main: bytes | None
) -> None:
    ref = hugging_face / "refs" / "main"
    ref.unlink()
    if main is not None:
        ref.write_bytes(main)
    assert "bbb" in str(resolve("hf:org/M-GGUF").path)


def test_links_that_lead_nowhere_or_in_a_circle_are_no_models(hugging_face: Path) -> None:
    folder = hugging_face / "snapshots" / "aaa" / "deep"
    (hugging_face / "blobs" / SHA256).unlink()
    (folder / "loop-Q8_0.gguf").symlink_to("loop-Q8_0.gguf")
    assert hf_cache.models() == []
    assert cached_path("smollm2-135m") is None
