"""Ollama's store, read only: its manifests say which file is which model.

`manifests/HOST/NAMESPACE/MODEL/TAG` is JSON; its layer of type `...image.model` names the file in `blobs` by
its SHA-256. Adapters change what a model says and are not computed here, so a model with one is refused. The
template, parameters and system prompt that Ollama adds are not used: what the file itself holds is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pilotfish.errors import FormatError, HubError, PilotfishError, UnknownModel, UnsupportedError, UsageError
from pilotfish.hub.found import OLLAMA_STORE, Found, read_small
from pilotfish.hub.names import OLLAMA

_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_HOST_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MODEL_TYPE, _ADAPTER_TYPE = "application/vnd.ollama.image.model", "application/vnd.ollama.image.adapter"
_MOST_BYTES = 1 << 20
_MOST_MODELS = 10_000
_OF_THE_SERVICE = Path("/usr/share/ollama/.ollama/models")


def folder() -> Path:
    """Return where the store is: `OLLAMA_MODELS`, else the user's, else that of the service on Linux."""
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return Path(os.path.expanduser(chosen))  # noqa: PTH111 - pathlib's raises on an unknown user
    own = Path(os.path.expanduser("~/.ollama/models"))  # noqa: PTH111
    return own if own.is_dir() or not _OF_THE_SERVICE.is_dir() else _OF_THE_SERVICE


def models() -> list[Found]:
    """Return the models there, by name; one that can't be used has the reason."""
    return [_described(parts) for parts in _all()]


def find(text: str) -> Found:
    """Return the model that `ollama:NAME` or `ollama:NAME:TAG` names.

    Raises
    ------
    UsageError
        It is not of that form.
    UnknownModel
        There is none of that name; the hint lists those there.
    """
    parts = _read_name(text)
    if not _manifest(parts).exists():
        there = [_name(other) for other in _all()]
        more = f" and {len(there) - 8} more" if len(there) > 8 else ""
        raise UnknownModel(
            f"{_name(parts)} is not in Ollama's store at {folder()}",
            f"there: {', '.join(there[:8])}{more}"
            if there
            else "it is empty, or elsewhere: set OLLAMA_MODELS",
        )
    return _described(parts)


def _read_name(text: str) -> tuple[str, str, str, str]:
    """Return host, namespace, model and tag."""
    head, _, tail = text.removeprefix(OLLAMA).rpartition("/")
    model, _, tag = tail.partition(":")
    folders = head.split("/") if head else []
    host, space = [_HOST, _NAMESPACE][: 2 - len(folders)] + folders if len(folders) < 3 else ("", "")
    parts = (host, space, model, tag or _TAG)
    if not _fit(parts):
        raise UsageError(f"{text[:100]!r} names no model of Ollama", "write ollama:NAME or ollama:NAME:TAG")
    return parts


def _fit(parts: tuple[str, ...]) -> bool:
    return bool(_HOST_PART.fullmatch(parts[0])) and all(_PART.fullmatch(part) for part in parts[1:])


def _name(parts: tuple[str, str, str, str]) -> str:
    host, space, model, tag = parts
    front = "" if host == _HOST else f"{host}/"
    return f"{OLLAMA}{front}{'' if not front and space == _NAMESPACE else space + '/'}{model}:{tag}"


def _manifest(parts: tuple[str, str, str, str]) -> Path:
    return folder().joinpath("manifests", *parts)


def _all() -> Iterator[tuple[str, str, str, str]]:
    top = folder() / "manifests"
    count = 0
    for path in sorted(top.glob("*/*/*/*")):
        host, space, model, tag = path.relative_to(top).parts
        if _fit((host, space, model, tag)) and count < _MOST_MODELS:
            count += 1
            yield host, space, model, tag


def _described(parts: tuple[str, str, str, str]) -> Found:
    try:
        path, size, sha256 = _model_file(_manifest(parts))
    except PilotfishError as error:
        return Found(_name(parts), OLLAMA_STORE, problem=error)
    return Found(_name(parts), OLLAMA_STORE, path, size, sha256)


def _model_file(manifest: Path) -> tuple[Path, int, str]:
    """Return the file that a manifest names, its size and its SHA-256."""
    try:
        content = json.loads(read_small(manifest, _MOST_BYTES))
    except OSError as error:
        reason = error.strerror or error
        raise HubError(f"can't read {manifest}: {reason}", "check its permissions") from error
    except (ValueError, RecursionError):
        raise _damaged(manifest, "is no JSON") from None
    layers = content.get("layers") if isinstance(content, Mapping) else None
    if not isinstance(layers, list) or not all(isinstance(layer, Mapping) for layer in layers):
        raise _damaged(manifest, "lists no layers")
    if any(layer.get("mediaType") == _ADAPTER_TYPE for layer in layers):
        raise UnsupportedError(f"{manifest} adds an adapter to its model", "adapters are not supported")
    of_model = [layer for layer in layers if layer.get("mediaType") == _MODEL_TYPE]
    if len(of_model) != 1:
        raise _damaged(manifest, f"lists {len(of_model)} layers of type {_MODEL_TYPE}, not one")
    digest, size = of_model[0].get("digest"), of_model[0].get("size")
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None:
        raise _damaged(manifest, f"names its model {str(digest)[:80]!r}, which is no SHA-256")
    blobs = folder() / "blobs"
    places = (blobs / f"sha256-{found[1]}", blobs / f"sha256:{found[1]}")  # the second in old versions
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise _damaged(manifest, f"names the file sha256-{found[1]}, which is not in {blobs}")
    there = path.stat().st_size
    if there != size:
        raise _damaged(manifest, f"says that {path} has {str(size)[:20]} bytes, it has {there}")
    return path, there, found[1]


def _damaged(manifest: Path, how: str) -> FormatError:
    return FormatError(f"{manifest} {how}", "pull the model again with ollama")
