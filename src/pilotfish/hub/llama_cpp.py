"""llama.cpp's own cache, read only: what its programs fetched with `-hf` or `-mu`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pilotfish.hub.found import LLAMA_CPP_STORE, Found
from pilotfish.hub.names import LLAMA_CPP, is_plain
from pilotfish.hub.offered import RepoFile, models_among


def folder() -> Path:
    """Return where the cache is: `LLAMA_CACHE`, else the platform's; it need not exist."""
    if chosen := os.environ.get("LLAMA_CACHE"):
        return Path(os.path.expanduser(chosen))  # noqa: PTH111 - pathlib's raises on an unknown user
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama.cpp"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llama.cpp"


def models() -> list[Found]:
    """Return the models there, by name; one of whose files some are missing is none."""
    try:
        paths = [path for path in sorted(folder().iterdir()) if is_plain(path.name) and path.is_file()]
        files = [RepoFile(path.name, path.stat().st_size, "") for path in paths]
    except OSError:
        return []
    return [
        Found(LLAMA_CPP + m.file.removesuffix(".gguf"), LLAMA_CPP_STORE, folder() / m.file, m.size)
        for m in models_among(files)
    ]
