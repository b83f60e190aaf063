"""Writes small GGUF files, right and wrong ones, for tests; knows nothing of the reader under test."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

CODES = {
    "u8": (0, "B"),
    "i8": (1, "b"),
    "u16": (2, "H"),
    "i16": (3, "h"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "?"),
    "u64": (10, "Q"),
    "i64": (11, "q"),
    "f64": (12, "d"),
}
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_1": (3, 32, 20), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144)}


@dataclass(frozen=True)
class Tensor:
    """A tensor to write; `offset` and `code` override what a correct writer would put there."""

    name: str | bytes
    shape: tuple[int, ...]
    type: str = "F32"
    data: bytes | None = None
    offset: int | None = None
    code: int | None = None

    def payload(self) -> bytes:
        """Return the tensor's bytes."""
        if self.data is not None:
            return self.data
        _, block, nbytes = TYPES[self.type]
        items = 1
        for length in self.shape:
            items *= length
        return bytes(index * 7 % 251 for index in range(items // block * nbytes))


@dataclass(frozen=True)
class Typed:
    """A value with its GGUF type named, such as `Typed("u16", 7)` or `Typed("i8", [1, 2])`."""

    type: str
    value: Any


@dataclass
class GgufFile:
    """A file to be; `build` gives its bytes. `entries` may repeat keys, counts may be wrong."""

    entries: list[tuple[str | bytes, Any]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    version: int = 3
    alignment: int = 32
    tensor_count: int | None = None
    entry_count: int | None = None

    def build(self) -> bytes:
        """Return the whole file."""
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        entry_count = len(self.entries) if self.entry_count is None else self.entry_count
        out = bytearray(b"GGUF" + struct.pack("<IQQ", self.version, tensor_count, entry_count))
        for key, value in self.entries:
            out += string(key) + encode(value)
        data = bytearray()
        for tensor in self.tensors:
            offset = len(data) if tensor.offset is None else tensor.offset
            code = TYPES[tensor.type][0] if tensor.code is None else tensor.code
            out += string(tensor.name) + struct.pack("<I", len(tensor.shape))
            out += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape) + struct.pack("<IQ", code, offset)
            data += tensor.payload()
            data += bytes(-len(data) % self.alignment)
        out += bytes(-len(out) % self.alignment)
        return bytes(out + data)


def string(text: str | bytes) -> bytes:
    raw = text.encode("utf-8") if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def encode(value: Any) -> bytes:
    """Encode a value with its type in front; Python values get the usual GGUF type."""
    code, body = _typed(value)
    return struct.pack("<I", code) + body


def _typed(value: Any) -> tuple[int, bytes]:  # noqa: PLR0911 - one for each type
    if isinstance(value, Typed) and not isinstance(value.value, list):
        code, letter = CODES[value.type]
        return code, struct.pack("<" + letter, value.value)
    if isinstance(value, Typed):
        code, letter = CODES[value.type]
        count = len(value.value)
        return 9, struct.pack("<IQ", code, count) + struct.pack(f"<{count}{letter}", *value.value)
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str | bytes):
        return 8, string(value)
    items = [_typed(item) for item in value]
    code = items[0][0] if items else 8
    assert all(item[0] == code for item in items)
    return 9, struct.pack("<IQ", code, len(items)) + b"".join(body for _, body in items)
