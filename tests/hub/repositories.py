"""A hub on 127.0.0.1 with repositories: its API's listings, and the files in ranges."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from hub.local_server import LocalServer

COMMIT = "c0ffee" * 6 + "cafe"


@dataclass
class Repository:
    """Files of a repository, and what its listing says besides.

    Attributes
    ----------
    files
        By path.
    stated
        For some paths, another SHA-256 than the file's.
    more
        Entries of the listing as they are.
    facts
        Keys of the answer to replace.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    stated: dict[str, str | None] = field(default_factory=dict)
    more: list[Any] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def listing(self) -> dict[str, Any]:
        """Return what the API answers."""
        siblings = []
        for path, content in self.files.items():
            entry: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": "0" * 40}
            sha256 = self.stated.get(path, hashlib.sha256(content).hexdigest())
            if sha256 is not None:
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 135}
            siblings.append(entry)
        facts = {"sha": COMMIT, "cardData": {"license": "mit"}, "gguf": {"architecture": "llama"}}
        return {"id": "x", **facts, "siblings": siblings + self.more, **self.facts}


class FakeApi(LocalServer):
    """The hub.

    Attributes
    ----------
    repositories
        By name.
    refusals
        For the beginning of a path, the status and `X-Error-Code` of the answer.
    breaks
        For each answer with a body in turn, after how many bytes the connection breaks.
    raw
        For a path, the bytes to answer with.
    asked
        Path and first byte of each request.
    tokens
        `Authorization` of each request.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.breaks: list[int] = []
        self.raw: dict[str, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        self.tokens: list[str | None] = []
        super().__init__()

    @property
    def paths(self) -> list[str]:
        """Paths asked for."""
        return [path for path, _ in self.asked]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        path = unquote(handler.path)
        first = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.asked.append((path, first))
        self.tokens.append(handler.headers.get("Authorization"))
        refusal = next((says for start, says in self.refusals.items() if path.startswith(start)), None)
        content = self._content(path)
        if refusal is None and content is None:
            refusal = (404, "RepoNotFound")
        if refusal is not None or content is None:
            assert refusal is not None
            handler.send_response(refusal[0])
            if refusal[1]:
                handler.send_header("X-Error-Code", refusal[1])
            handler.end_headers()
            return
        handler.send_response(206 if first else 200)
        handler.send_header("Content-Length", str(len(content) - first))
        if first:
            handler.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        length = self.breaks.pop(0) if self.breaks else len(content)
        handler.wfile.write(content[first : first + length])

    def _content(self, path: str) -> bytes | None:
        if path in self.raw:
            return self.raw[path]
        for name, repository in self.repositories.items():
            if path == f"/api/models/{name}?blobs=true":
                return json.dumps(repository.listing()).encode()
            front = f"/{name}/resolve/{repository.facts.get('sha', COMMIT)}/"
            if path.startswith(front):
                return repository.files.get(path.removeprefix(front))
        return None
