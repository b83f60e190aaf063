"""The keys of a model's architecture, each read at most by name and none silently ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotfish.engines.native.container import Value
from pilotfish.errors import FormatError, UnsupportedError, shown, shown_name


class Config:
    """Keys ``{architecture}.*`` of the file's metadata.

    Attributes
    ----------
    architecture
        `general.architecture`, the name of the model family.
    """

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        name = metadata.get("general.architecture")
        if not isinstance(name, str) or not name:
            raise FormatError(f"general.architecture is {shown(name)}", "the file names no model family")
        self.architecture = name
        prefix = name + "."
        self._values = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def integer(self, key: str, default: int | None = None, *, least: int = 1, most: int = 1 << 24) -> int:
        """Return a whole number in least..most."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise FormatError(f"{self.architecture}.{key} is {shown(value)}, not a number in {least}..{most}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """Return a positive, finite number."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise FormatError(f"{self.architecture}.{key} is {shown(value)}, not a positive number")
        return float(value)

    def expect(self, key: str, value: float) -> None:
        """Accept the key only if it is absent or says `value`."""
        found = self._get(key, value)
        if found != value:
            raise UnsupportedError(
                f"{self.architecture}.{key} is {shown(found)}; only {value!r} is supported here",
                "this model needs a newer version of pilotfish",
            )

    def one_of(self, key: str, choices: Sequence[str], default: str) -> str:
        """Return the key's text, which is one of the choices."""
        value = self._get(key, default)
        if value not in choices:
            raise UnsupportedError(
                f"the key {self.architecture}.{key} = {value!r} is not supported",
                f"supported are {', '.join(choices)}",
            )
        return str(value)

    def refuse_unread(self) -> None:
        """Raise UnsupportedError if the file sets a key that the family didn't read."""
        unread = sorted(self._values.keys() - self._read)
        if unread:
            key = f"{self.architecture}.{unread[0]}"
            raise UnsupportedError(
                f"the key {shown_name(key)} = {shown(self._values[unread[0]])} is not supported",
                f"it changes what a {self.architecture} model computes",
            )

    def _get(self, key: str, default: float | str | None) -> Value:
        self._read.add(key)
        value = self._values.get(key, default)
        if value is None:
            raise FormatError(
                f"the key {self.architecture}.{key} is missing", "the file is not a complete model"
            )
        return value
