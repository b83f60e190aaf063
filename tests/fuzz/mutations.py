"""Damages files: in their structure (keys, types, counts, shapes, texts) and then in their bytes.

A damaged file is a function of (seed, index) alone.
"""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fuzz.seeds import TEMPLATES, seeds
from fuzz.templates import template
from gguf_files import CODES, GgufFile, Tensor, Typed

if TYPE_CHECKING:
    from collections.abc import Callable

_TEMPLATE = "tokenizer.chat_template"

_WHOLE = (
    0,
    1,
    2,
    3,
    7,
    8,
    31,
    32,
    63,
    64,
    127,
    255,
    256,
    269,
    1000,
    4096,
    65_535,
    65_536,
    1 << 20,
    1 << 24,
    1 << 27,
)
_EDGES = tuple((1 << bits) + off for bits in (15, 16, 31, 32, 33, 47, 48, 62, 63, 64) for off in (-1, 0, 1))
_REALS = (0.0, -0.0, -1.0, 1e-45, 1e-5, 0.5, 1.0, 1e4, 3e38, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "", " ", "a", "gpt2", "llama", "qwen2", "mamba", "F32", "\0", "\x1b[2J", "\n", "é", "🐟", "Ġ", "Ġ Ġ",
    "a b", "a b c", "[PAD1]", "<|im_end|>", "<|endoftext|>", "</s>", b"\xff", b"\xed\xa0\x80",
    b"a\xffb c", "x" * 300, "🐟" * 99, "(" * 50, "(a|a)*$", "{{", "{% for", "%s" * 9, "../../etc/passwd",
    "blk.0.attn_q.weight",
)  # fmt: skip
_KEYS = (
    "general.architecture", "general.alignment", "split.count", "tokenizer.ggml.model",
    "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type",
    "tokenizer.ggml.scores", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id", "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_space_prefix", "llama.rope.scaling.type", "llama.rope.dimension_count",
    "llama.attention.key_length", "llama.vocab_size", "qwen2.attention.value_length", _TEMPLATE,
)  # fmt: skip
_PRE = ("gpt-2", "smollm", "starcoder", "qwen2", "llama-bpe", "llama3", "default", "")


def damaged(seed: int, index: int) -> bytes:
    """Return file `index` of the endless row that `seed` stands for."""
    rng = random.Random(f"{seed}/{index}")  # noqa: S311 - damage, not secrets
    file = _copy(rng.choice(seeds()))
    edits = rng.choice((0, 1, 1, 1, 2, 3))
    for _ in range(edits):
        rng.choice(_STRUCTURAL)(file, rng)
    data = sum(len(tensor.payload()) for tensor in file.tensors)
    raw = bytearray(file.build())
    header = max(len(raw) - data, 24)
    for _ in range(rng.choice((0, 0, 1, 1, 3)) if edits else rng.choice((1, 1, 2, 4, 16))):
        rng.choice(_BYTES)(raw, header, rng)
    return bytes(raw)


def _copy(file: GgufFile) -> GgufFile:
    return replace(file, entries=list(file.entries), tensors=list(file.tensors))


# Values.


def _whole(rng: random.Random) -> int:
    return rng.choice(rng.choice((_WHOLE, _EDGES))) * rng.choice((1, 1, 1, -1))


def _number(kind: str, rng: random.Random) -> int | float | bool:
    if kind == "bool":
        return rng.random() < 0.5
    if kind in {"f32", "f64"}:
        return rng.choice(_REALS)
    bits = 8 * struct.calcsize("<" + CODES[kind][1])
    value = _whole(rng) & ((1 << bits) - 1)
    return value - (1 << bits) if kind[0] == "i" and value >> (bits - 1) else value


def _text(rng: random.Random) -> str | bytes:
    text = rng.choice(_TEXTS)
    return text * rng.choice((1, 1, 1, 2, 50))


def _value(rng: random.Random) -> Any:
    kind = rng.choice(list(CODES))
    choice = rng.randrange(6)
    if choice <= 1:
        return Typed(kind, _number(kind, rng))
    if choice == 2:
        return _text(rng)
    if choice == 3:
        return [_text(rng) for _ in range(rng.choice((0, 1, 3, 269)))]
    if choice == 4:
        return Typed(kind, [_number(kind, rng) for _ in range(rng.choice((0, 1, 3, 269)))])
    nested: Any = [Typed("u8", 1)]
    for level in range(rng.choice((1, 2, 3, 5, 40))):
        nested = [nested] * (rng.choice((1, 1, 3)) if level < 5 else 1)
    return nested


def _of_same_kind(value: Any, rng: random.Random) -> Any:  # noqa: PLR0911 - one for each type
    """Return another value of the same type, lists changed in a few places."""
    if isinstance(value, Typed) and not isinstance(value.value, list):
        return Typed(value.type, _number(value.type, rng))
    if isinstance(value, Typed):
        return Typed(value.type, _other_list(value.value, rng, lambda _item: _number(value.type, rng)))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return Typed("u32", _number("u32", rng))
    if isinstance(value, float):
        return rng.choice(_REALS)
    if isinstance(value, str | bytes):
        return _other_text(value, rng)
    if all(isinstance(item, str | bytes) for item in value):
        return _other_list(value, rng, lambda item: _other_text(item, rng))
    return value * rng.choice((0, 2, 9))


def _other_text(text: str | bytes, rng: random.Random) -> str | bytes:
    choice = rng.randrange(5)
    if choice == 0 or not text:
        return _text(rng)
    at = rng.randrange(len(text))
    if choice == 1:
        return text[:at]
    if choice == 2:
        return text * rng.choice((2, 30))
    if isinstance(text, bytes):
        return text[at:] + text[:at]
    if choice == 3:
        return text[:at] + rng.choice("\0 aĠ'\"{%|~*([é🐟\n") + text[at + 1 :]
    return text[at:] + text[:at]


def _other_list(items: list[Any], rng: random.Random, other: Callable[[Any], Any]) -> list[Any]:
    items = list(items)
    for _ in range(rng.choice((1, 1, 3, 30))):
        at = rng.randrange(len(items)) if items else 0
        choice = rng.randrange(6)
        if choice <= 1 and items:
            items[at] = other(items[at])
        elif choice == 2 and items:
            del items[at : at + rng.choice((1, 1, 5, 500))]
        elif choice == 3 and items:
            items.insert(rng.randrange(len(items)), items[at])
        elif choice == 4 and items:
            items[at] = items[rng.randrange(len(items))]
        elif len(items) < 3000:
            items *= 2
    return items


# Structure.


def _at(items: list[Any], rng: random.Random) -> int | None:
    return rng.randrange(len(items)) if items else None


def _change_entry(file: GgufFile, rng: random.Random) -> None:
    if (at := _at(file.entries, rng)) is not None:
        key, value = file.entries[at]
        choice = rng.randrange(6)
        if choice == 0:
            del file.entries[at]
        elif choice == 1:
            file.entries.insert(at, (key, _value(rng)))
        elif choice == 2:
            file.entries[at] = (rng.choice((_text(rng), rng.choice(_KEYS))), value)
        elif choice == 3:
            file.entries[at] = (key, _value(rng))
        else:
            file.entries[at] = (key, _of_same_kind(value, rng))


def _add_entry(file: GgufFile, rng: random.Random) -> None:
    family = rng.choice(("llama", "qwen2", "odd", "general"))
    key = rng.choice((rng.choice(_KEYS), f"{family}.{rng.choice(_KEYS).rpartition('.')[2]}"))
    file.entries.insert(rng.randrange(len(file.entries) + 1), (key, _value(rng)))


def _set(file: GgufFile, key: str, value: Any) -> None:
    file.entries = [(its, old) for its, old in file.entries if its != key] + [(key, value)]


def _change_template(file: GgufFile, rng: random.Random) -> None:
    source: str | bytes = template(rng)
    if rng.random() < 0.3:
        source = rng.choice(TEMPLATES)
        for _ in range(rng.choice((1, 1, 5))):
            source = _other_text(source, rng)
    _set(file, _TEMPLATE, source)


def _change_tokenizer(file: GgufFile, rng: random.Random) -> None:
    """Change the vocabulary where most is made of it."""
    _set(file, "tokenizer.ggml.pre", rng.choice(_PRE))
    for key in ("tokens", "merges", "token_type", "bos_token_id"):
        for at, (its, value) in enumerate(file.entries):
            if its == f"tokenizer.ggml.{key}" and rng.random() < 0.4:
                file.entries[at] = (its, _of_same_kind(value, rng))


def _change_tensor(file: GgufFile, rng: random.Random) -> None:
    if (at := _at(file.tensors, rng)) is None:
        return
    tensor = file.tensors[at]
    payload = tensor.payload()
    choice = rng.randrange(9)
    if choice == 0:
        del file.tensors[at]
    elif choice == 1:
        file.tensors.insert(at, tensor)
    elif choice == 2:
        file.tensors[at] = replace(tensor, name=rng.choice((_text(rng), rng.choice(file.tensors).name)))
    elif choice == 3:
        shape = list(tensor.shape)
        shape[rng.randrange(len(shape))] = abs(_whole(rng)) & ((1 << 64) - 1)
        file.tensors[at] = replace(tensor, shape=tuple(shape), data=payload)
    elif choice == 4:
        dims = rng.choice((0, 1, 2, 3, 4, 5, 9))
        file.tensors[at] = replace(tensor, shape=(*tensor.shape, 1, 1, 1, 1, 1, 1, 1, 1)[:dims], data=payload)
    elif choice == 5:
        code = rng.choice((*range(41), 255, 1 << 31))
        file.tensors[at] = replace(tensor, code=code, data=payload)
    elif choice == 6:
        file.tensors[at] = replace(tensor, offset=abs(_whole(rng)) & ((1 << 64) - 1), data=payload)
    elif choice == 7:
        fill = bytes([rng.choice((0, 127, 128, 255))])
        file.tensors[at] = replace(tensor, data=fill * len(payload))
    else:
        cut = rng.choice((payload[:-1], payload[: len(payload) // 2], payload + bytes(64), b""))
        file.tensors[at] = replace(tensor, data=cut)


def _retype(file: GgufFile, rng: random.Random) -> None:
    """Give a matrix a type and a shape of the same number of bytes, so that it gets past the header."""
    if (at := _at(file.tensors, rng)) is not None:
        tensor = file.tensors[at]
        size = len(tensor.payload())
        shape: tuple[int, ...] = rng.choice(
            ((size // 4,), (32, size // 128), (size // 128, 32), tensor.shape[::-1])
        )
        file.tensors[at] = replace(tensor, shape=shape, code=0, data=tensor.payload())


def _change_counts(file: GgufFile, rng: random.Random) -> None:
    choice = rng.randrange(5)
    count = abs(_whole(rng)) & ((1 << 64) - 1)
    if choice == 0:
        file.tensor_count = count
    elif choice == 1:
        file.entry_count = count
    elif choice == 2:
        file.version = rng.choice((0, 1, 2, 3, 4, 1 << 24, (1 << 32) - 1))
    elif choice == 3:
        file.alignment = rng.choice((8, 32, 64, 128))
    else:
        _set(file, "general.alignment", rng.choice((0, 1, 8, 24, 48, 64, 1 << 31, "32")))


def _many(file: GgufFile, rng: random.Random) -> None:
    """Add many entries or tensors."""
    count = rng.choice((10, 300))
    if rng.random() < 0.5:
        file.entries += [(f"k{i}", _value(rng)) for i in range(count // 10)]
    else:
        file.tensors += [Tensor(f"t{i}", (i + 1,)) for i in range(count)]


_STRUCTURAL: tuple[Callable[[GgufFile, random.Random], None], ...] = (
    _change_entry,
    _change_entry,
    _change_entry,
    _add_entry,
    _change_template,
    _change_template,
    _change_tokenizer,
    _change_tokenizer,
    _change_tensor,
    _change_tensor,
    _retype,
    _change_counts,
    _many,
)


# Bytes.


def _place(raw: bytearray, header: int, rng: random.Random) -> int:
    """Return a place, mostly in the header."""
    return rng.randrange(min(header, len(raw)) if rng.random() < 0.85 else len(raw)) if raw else 0


def _flip(raw: bytearray, header: int, rng: random.Random) -> None:
    if raw:
        raw[_place(raw, header, rng)] ^= 1 << rng.randrange(8)


def _overwrite(raw: bytearray, header: int, rng: random.Random) -> None:
    at = _place(raw, header, rng)
    number = struct.pack(rng.choice(("<Q", "<q")), int(_number("i64", rng)) & ((1 << 63) - 1))
    raw[at : at + rng.choice((1, 4, 8))] = number[: rng.choice((1, 4, 8))]


def _edit_length(raw: bytearray, header: int, rng: random.Random) -> None:
    """Change eight bytes that look like a length or a count."""
    start = rng.randrange(8, max(min(header, len(raw)), 9))
    for at in range(start, min(start + 200, len(raw) - 8)):
        if not raw[at] or any(raw[at + 2 : at + 8]):
            continue
        old = int.from_bytes(raw[at : at + 8], "little")
        new = rng.choice((old - 1, old + 1, old * 2, old << 32, abs(_whole(rng)), (1 << 64) - old))
        raw[at : at + 8] = (new & ((1 << 64) - 1)).to_bytes(8, "little")
        return


def _truncate(raw: bytearray, header: int, rng: random.Random) -> None:
    del raw[_place(raw, header, rng) :]


def _append(raw: bytearray, _header: int, rng: random.Random) -> None:
    raw += rng.choice((b"\0", bytes(4096), b"GGUF", rng.randbytes(100)))


def _delete(raw: bytearray, header: int, rng: random.Random) -> None:
    at = _place(raw, header, rng)
    del raw[at : at + rng.choice((1, 4, 8, 100))]


def _repeat(raw: bytearray, header: int, rng: random.Random) -> None:
    at = _place(raw, header, rng)
    raw[at:at] = raw[at : at + rng.choice((1, 4, 8, 100))]


def _scramble(raw: bytearray, header: int, rng: random.Random) -> None:
    at = _place(raw, header, rng)
    size = min(rng.choice((1, 8, 64)), len(raw) - at)
    raw[at : at + size] = rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size))


def _splice(raw: bytearray, header: int, rng: random.Random) -> None:
    """Put the end of another file behind the beginning of this one."""
    other = _built(rng.randrange(len(seeds())))
    raw[_place(raw, header, rng) :] = other[rng.randrange(len(other)) :]


_BUILT: dict[int, bytes] = {}


def _built(index: int) -> bytes:
    if index not in _BUILT:
        _BUILT[index] = seeds()[index].build()
    return _BUILT[index]


_BYTES: tuple[Callable[[bytearray, int, random.Random], None], ...] = (
    _flip,
    _flip,
    _overwrite,
    _edit_length,
    _edit_length,
    _truncate,
    _append,
    _delete,
    _repeat,
    _scramble,
    _splice,
)
