"""The header of a GGUF file: parses it without trusting a byte of it.

Format: versions 2 and 3, little-endian, as in ggml's docs/gguf.md. Every count, length and offset is compared
with what is left of the file before anything of that size is allocated.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pilotfish.engines.native.tensor_types import REMOVED_TYPES, TENSOR_TYPES
from pilotfish.errors import FormatError, UnsupportedError, shown

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterable
    from pathlib import Path

Value: TypeAlias = "int | float | bool | str | list[Value]"

_SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<B"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_SMALLEST: Final = {code: scalar.size for code, scalar in _SCALARS.items()} | {_STRING: 8, _ARRAY: 12}
_SMALLEST_ENTRY = 13  # empty key, type, one byte
_SMALLEST_TENSOR = 32  # empty name, number of dimensions, one dimension, type, offset

# Real vocabularies hold some 10^6 items in all, 800,000 of them strings. These bound the memory and the time
# that a hostile header can ask for: four times the file's size and 128 MB, a second or two.
_MOST_ITEMS = 1 << 21
_MOST_STRINGS = 1 << 20
_MOST_NESTED = 1 << 12
_MOST_ENTRIES = 1 << 16
_LONGEST_STRING = 1 << 26
_LONGEST_NAME = 65_535
_DEEPEST_ARRAY = 4

_LOOKS_LIKE: Final = (
    (b"version https://git-lfs", "a git-lfs pointer instead of the file it stands for"),
    (b"PK\x03\x04", "a zip archive (a wheel or a PyTorch checkpoint)"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"\x80", "a Python pickle"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"FUGG", "a GGUF file in an unknown byte order"),
    (b"lmgg", "a GGML file, the format before GGUF"),
    (b"tjgg", "a GGJT file, the format before GGUF"),
    (b"{", "a JSON file"),
    (b"<", "an HTML or XML page"),
    (bytes(24), "filled with zeros (an unfinished download)"),
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies.

    Attributes
    ----------
    name
        As in the file.
    shape
        1..4 dimensions in GGUF order: `shape[0]` is the length of a row, whose items are adjacent.
    type
        ggml's name of the type, such as "F32" or "Q4_K".
    offset
        First byte, counted from the start of the file.
    nbytes
        Number of bytes.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int


class Header:
    """Parses front to back, on construction.

    Attributes
    ----------
    metadata
        Key to value.
    tensors
        Name to `TensorInfo`, in file order, checked to lie within the file and apart from each other.
    """

    def __init__(self, path: Path, mapped: mmap.mmap) -> None:
        self._path = path
        self._mapped = mapped
        self._size = len(mapped)
        self._at = 0
        self._items = self._strings_read = self._nested = 0
        self.metadata: dict[str, Value] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._check_magic()
        tensors, entries = self._number(_U64), self._number(_U64)
        self._check_count(entries, _SMALLEST_ENTRY, "metadata entries", 16, _MOST_ENTRIES)
        self._check_count(tensors, _SMALLEST_TENSOR, "tensors", 8, _MOST_ENTRIES)
        for _ in range(entries):
            self._read_entry()
        alignment = self._alignment()
        relative = [self._read_tensor(alignment) for _ in range(tensors)]
        start = -(-self._at // alignment) * alignment
        self._place(start, relative)

    def _error(self, what: str, at: int) -> FormatError:
        return FormatError(
            f"{self._path}: {what} at byte {at}", "the file is damaged or incomplete; fetch it again"
        )

    def _check_magic(self) -> None:
        if self._mapped[:4] != b"GGUF":
            raise FormatError(f"{self._path} is not a GGUF file: {_looks_like(self._mapped[:64])}")
        self._at = 4
        version = self._number(_U32)
        if version & 0xFFFF == 0 and version:
            raise FormatError(
                f"{self._path} is a big-endian GGUF file (version {version:#x} at byte 4)",
                "convert it to little-endian",
            )
        if version not in {2, 3}:
            raise FormatError(
                f"{self._path} has GGUF version {version} at byte 4; versions 2 and 3 are known",
                "convert the model again with current tools",
            )

    def _scalar(self, scalar: struct.Struct) -> int | float:
        at = self._at
        self._at = at + scalar.size
        if self._at > self._size:
            raise self._error(f"the file ends inside a number of {scalar.size} bytes", at)
        number: int | float = scalar.unpack_from(self._mapped, at)[0]
        return number

    def _number(self, scalar: struct.Struct) -> int:
        return int(self._scalar(scalar))

    def _check_count(self, count: int, smallest: int, what: str, at: int, most: int) -> None:
        room = (self._size - self._at) // smallest if smallest else count
        if count > room:
            raise self._error(f"{count} {what}, but the rest of the file has room for {room},", at)
        if count > most:
            raise self._error(f"{count} {what} (at most {most} are accepted)", at)

    def _span(self, longest: int, what: str) -> tuple[int, int]:
        """Read a length, and return where what has it begins and ends."""
        at = self._at
        length = self._number(_U64)
        if length > self._size - self._at:
            raise self._error(f"a {what} of {length} bytes reaches beyond the file's {self._size} bytes", at)
        if length > longest:
            raise self._error(f"a {what} of {length} bytes (at most {longest} are accepted)", at)
        self._at += length
        return self._at - length, self._at

    def _name(self, what: str, taken: Iterable[str]) -> str:
        at = self._at
        begin, end = self._span(_LONGEST_NAME, what)
        raw = self._mapped[begin:end]
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._error(f"a {what} that is not UTF-8, {raw[:64]!r},", at) from None
        if name in taken:
            raise self._error(f"a second {what} {shown(name)}", at)
        return name

    def _read_entry(self) -> None:
        key = self._name("metadata key", self.metadata)
        self.metadata[key] = self._value(key, self._number(_U32))

    def _value(self, key: str, code: int) -> Value:
        at = self._at
        if code == _STRING:
            begin, end = self._span(_LONGEST_STRING, f"string in {shown(key)}")
            with memoryview(self._mapped) as whole, whole[begin:end] as part:  # no copy: it may be long
                return str(part, "utf-8", "replace")
        if code == _ARRAY:
            return self._array(key, 1)
        scalar = _SCALARS.get(code)
        if scalar is None:
            raise self._error(f"unknown value type {code} of {shown(key)}", at - 4)
        number = self._scalar(scalar)
        return self._bools(key, [number], at)[0] if code == _BOOL else number

    def _bools(self, key: str, numbers: list[Value], at: int) -> list[Value]:
        values: list[Value] = []
        for number in numbers:
            if number not in {0, 1}:
                raise self._error(f"a bool of value {number} in {shown(key)}", at + len(values))
            values.append(bool(number))
        return values

    def _array(self, key: str, depth: int) -> list[Value]:
        at = self._at
        code, count = self._number(_U32), self._number(_U64)
        if code not in _SMALLEST:
            raise self._error(f"unknown item type {code} of the array {shown(key)}", at)
        self._check_count(count, _SMALLEST[code], f"items in {shown(key)}", at + 4, _MOST_ITEMS - self._items)
        self._items += count
        if code == _STRING:
            return self._strings(key, count, at + 4)
        if code == _ARRAY:
            if depth == _DEEPEST_ARRAY:
                raise self._error(f"arrays nested deeper than {_DEEPEST_ARRAY} in {shown(key)}", at)
            self._nested += count
            self._check_count(self._nested, 0, "arrays within arrays", at + 4, _MOST_NESTED)
            return [self._array(key, depth + 1) for _ in range(count)]
        scalar = _SCALARS[code]
        at = self._at
        self._at += count * scalar.size
        numbers = _numbers(scalar.format[1:], self._mapped[at : self._at])
        return self._bools(key, numbers, at) if code == _BOOL else numbers

    def _strings(self, key: str, count: int, counted_at: int) -> list[Value]:
        """Read the strings of an array: the one loop that must be fast (300,000 strings in a vocabulary)."""
        self._strings_read += count
        self._check_count(self._strings_read, 0, "strings in arrays", counted_at, _MOST_STRINGS)
        mapped, size, at, length_at = self._mapped, self._size, self._at, _U64.unpack_from
        strings: list[Value] = []
        for _ in range(count):
            if size - at < 8:
                raise self._error(f"the file ends inside string {len(strings)} of {shown(key)}", at)
            end = at + 8 + length_at(mapped, at)[0]
            if end > size or end - at > _LONGEST_STRING:
                raise self._error(
                    f"string {len(strings)} of {shown(key)} has {end - at - 8} bytes, too many,", at
                )
            strings.append(mapped[at + 8 : end].decode("utf-8", "surrogateescape"))
            at = end
        self._at = at
        return strings

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 8 <= alignment <= 1 << 30 or alignment % 8:
            raise self._error(
                f"general.alignment is {shown(alignment)}, not a multiple of 8, in the metadata", self._at
            )
        return alignment

    def _read_tensor(self, alignment: int) -> TensorInfo:
        """Read one description; its offset is still relative to the start of the tensors' data."""
        name = self._name("tensor name", self.tensors)
        at = self._at
        dims = self._number(_U32)
        if not 1 <= dims <= 4:
            raise self._error(f"tensor {shown(name)} has {dims} dimensions (1 to 4 are possible)", at)
        at = self._at
        shape = tuple(self._number(_U64) for _ in range(dims))
        code = self._number(_U32)
        if code in REMOVED_TYPES:
            raise UnsupportedError(
                f"{self._path}: tensor {shown(name)} has type {REMOVED_TYPES[code]}, which GGUF lacks now",
                "take the model's Q4_0 file, which is repacked for the processor at load",
            )
        if code not in TENSOR_TYPES:
            raise UnsupportedError(
                f"{self._path}: tensor {shown(name)} has the unknown type {code}",
                "take a file of the model in another quantization, such as Q4_K_M",
            )
        kind = TENSOR_TYPES[code]
        items = 1
        for length in shape:
            items *= length
        if not 0 < items < 1 << 63:
            raise self._error(f"tensor {shown(name)} has the impossible shape {shape}", at)
        if shape[0] % kind.block:
            raise self._error(
                f"tensor {shown(name)} has rows of {shape[0]}, not a multiple of {kind.name}'s {kind.block},",
                at,
            )
        at = self._at
        offset = self._number(_U64)
        if offset % alignment:
            raise self._error(f"tensor {shown(name)} starts at {offset}, not a multiple of {alignment},", at)
        info = TensorInfo(name, shape, kind.name, offset, items // kind.block * kind.nbytes)
        self.tensors[name] = info
        return info

    def _place(self, start: int, relative: list[TensorInfo]) -> None:
        for info in relative:
            offset = start + info.offset
            if offset + info.nbytes > self._size:
                raise self._error(
                    f"tensor {shown(info.name)} needs {info.nbytes} bytes, beyond the "
                    f"file's {self._size} bytes,",
                    offset,
                )
            self.tensors[info.name] = TensorInfo(info.name, info.shape, info.type, offset, info.nbytes)
        end, last = start, ""
        for info in sorted(self.tensors.values(), key=lambda info: info.offset):
            if info.offset < end:
                raise self._error(f"tensor {shown(info.name)} overlaps tensor {shown(last)}", info.offset)
            end, last = info.offset + info.nbytes, info.name


def _numbers(letter: str, raw: bytes) -> list[Value]:
    """Return little-endian numbers, with no tuple on the way as from `struct`, whose letter `letter` is."""
    numbers = array(letter, raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    values: list[Value] = list(numbers)
    return values


def _looks_like(head: bytes) -> str:
    for magic, what in _LOOKS_LIKE:
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(magic) or head.startswith(magic):
            return f"it seems to be {what}"
    if head[8:10] == b'{"':
        return "it seems to be a safetensors file"
    return f"it starts with {head[:8]!r}"
