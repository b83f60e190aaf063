"""Models written otherwise than usual: split into several files, with other keys or more tensors."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any
from unittest import mock

import gguf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def written_with(change: Callable[[gguf.GGUFWriter], None] | None = None, **options: Any) -> Iterator[None]:
    """Let every writer of the format's library take options, and make a change last, which counts."""
    plain = gguf.GGUFWriter.write_header_to_file

    def changed(self: gguf.GGUFWriter) -> None:
        for keys in self.kv_data:
            before = dict(keys)
            keys.clear()
            if change is not None:
                change(self)
            keys.update({**before, **keys})
        plain(self)

    with (
        mock.patch.object(gguf.GGUFWriter, "write_header_to_file", changed),
        mock.patch.object(gguf, "GGUFWriter", functools.partial(gguf.GGUFWriter, **options)),
    ):
        yield


def with_keys(keys: Mapping[str, Any]) -> Callable[[gguf.GGUFWriter], None]:
    """Return the change that sets keys."""

    def change(writer: gguf.GGUFWriter) -> None:
        for key, value in keys.items():
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))

    return change
