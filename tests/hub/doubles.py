"""Stand-ins for the two sources: a hub on 127.0.0.1, and a pip that copies wheels from a shelf."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

from hub.local_server import LocalServer
from pilotfish.hub import Entry
from pilotfish.hub.registry import HubFile, Packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "tiny"


def entry_for(content: bytes, part_bytes: int, draft: str | None = None) -> Entry:
    """Return an entry for a file of this content."""
    parts = -(-len(content) // part_bytes)
    return Entry(
        name=NAME,
        title="Tiny Q4_1",
        file="tiny.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="Apache-2.0",
        family="llama",
        hub=HubFile("some/Tiny-GGUF", "tiny.gguf", "main"),
        packages=Packages("tiny-part{n}", "1.0", parts=parts, part_bytes=part_bytes),
        draft=draft,
    )


def write_wheel(path: Path, members: dict[str, bytes]) -> None:
    """Write a zip file of these members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@dataclass
class Stretch:
    """What a `Recorder` heard from one start to its finish."""

    label: str
    total: int
    done: int
    finished: bool = False


@dataclass
class Recorder:
    """A Progress that keeps what it hears, and calls `hook` with messages, `on_advance` with numbers."""

    messages: list[str] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    hook: Callable[[str], None] = lambda _: None
    on_advance: Callable[[int], None] = lambda _: None

    def start(self, label: str, total_bytes: int, done_bytes: int) -> None:
        """Begin; the stretch before has ended."""
        assert not self.stretches or self.stretches[-1].finished, "stretches do not nest"
        self.stretches.append(Stretch(label, total_bytes, done_bytes))

    def advance(self, n: int) -> None:
        """Count."""
        self.stretches[-1].done += n
        self.on_advance(n)

    def message(self, text: str) -> None:
        """Keep."""
        self.messages.append(text)
        self.hook(text)

    def finish(self) -> None:
        """End."""
        self.stretches[-1].finished = True

    @property
    def text(self) -> str:
        """Return all messages."""
        return "\n".join(self.messages)


@dataclass
class FakePip:
    """A program that takes pip's place.

    Attributes
    ----------
    shelf
        Folder of wheels, `REQUIREMENT.whl`.
    script
        The program. For each requirement it runs `REQUIREMENT.py` if there is one, then copies the wheel.
    log
        One requirement a line, in the order asked for.
    """

    shelf: Path
    script: Path
    log: Path

    @classmethod
    def create(cls, folder: Path) -> FakePip:
        """Write the program into the folder."""
        double = cls(folder / "shelf", folder / "fake_pip.py", folder / "pip.log")
        double.shelf.mkdir()
        double.script.write_text(
            "import os, pathlib, runpy, shutil, sys\n"
            f"shelf, log = pathlib.Path({str(double.shelf)!r}), pathlib.Path({str(double.log)!r})\n"
            "assert {'download', '--only-binary=:all:', '--no-deps'} <= set(sys.argv)\n"
            "requirement, dest = sys.argv[-1], pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
            "with log.open('a') as file: file.write(requirement + '\\n')\n"
            "before = shelf / (requirement + '.py')\n"
            "if before.exists(): runpy.run_path(str(before))\n"
            "shutil.copy(shelf / (requirement + '.whl'), dest / (requirement + '-py3-none-any.whl'))\n"
        )
        return double

    def command(self) -> list[str]:
        """Return the command that runs it."""
        return [sys.executable, "-I", "-S", str(self.script)]

    def stock(self, entry: Entry, content: bytes) -> None:
        """Put the parts of the content on the shelf."""
        size = entry.packages.part_bytes
        for part in range(1, entry.packages.parts + 1):
            data = content[(part - 1) * size : part * size]
            self.put(
                entry,
                part,
                {f"tiny_part{part}/__init__.py": b"raise SystemExit", f"t/data/p{part}.bin": data},
            )

    def put(self, entry: Entry, part: int, members: dict[str, bytes]) -> None:
        """Put one wheel on the shelf."""
        write_wheel(self.shelf / f"{entry.packages.requirement(part)}.whl", members)

    def before(self, entry: Entry, part: int, code: str) -> None:
        """Make it run Python code before it copies the wheel of this part."""
        (self.shelf / f"{entry.packages.requirement(part)}.py").write_text(code)

    def no_longer_before(self, entry: Entry, part: int) -> None:
        """Take the code back."""
        (self.shelf / f"{entry.packages.requirement(part)}.py").unlink()

    def asked(self) -> list[str]:
        """Return the requirements asked for."""
        return self.log.read_text().split() if self.log.exists() else []


@dataclass
class Request:
    """A request that a `FakeHub` got."""

    path: str
    first: int
    authorization: str | None


class FakeHub(LocalServer):
    """A web server that has one file.

    Attributes
    ----------
    content
        The file.
    status
        Another answer than 200, if not 0.
    breaks
        For each request in turn, after how many bytes the connection breaks; none left: it holds.
    ranges
        Whether requests for a part of the file are understood.
    linked
        `X-Linked-ETag` to send, if not empty.
    onward
        Address to redirect to, if not empty.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.status = 0
        self.breaks: list[int] = []
        self.ranges = True
        self.linked = ""
        self.onward = ""
        self.requests: list[Request] = []
        super().__init__()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        wanted = handler.headers.get("Range", "bytes=0-")
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if self.ranges else 0
        self.requests.append(Request(handler.path, first, handler.headers.get("Authorization")))
        if self.onward:
            handler.send_response(302)
            handler.send_header("Location", self.onward + handler.path)
        elif self.status:
            handler.send_response(self.status)
        else:
            handler.send_response(206 if first else 200)
            handler.send_header("Content-Length", str(len(self.content) - first))
            if first:
                last = len(self.content) - 1
                handler.send_header("Content-Range", f"bytes {first}-{last}/{len(self.content)}")
        if self.linked:
            handler.send_header("X-Linked-ETag", f'"{self.linked}"')
        handler.end_headers()
        if not self.onward and not self.status:
            length = self.breaks.pop(0) if self.breaks else len(self.content)
            handler.wfile.write(self.content[first : first + length])
