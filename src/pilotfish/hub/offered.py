"""Files of a repository, and the models that they are: one file each, or several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pilotfish.hub.quants import quant_of
from pilotfish.shards import shard_of


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a repository.

    Attributes
    ----------
    path
        In the repository.
    size
        Bytes.
    sha256
        64 hex digits; empty if the hub states none.
    """

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Offered:
    """A model of a repository: one file, or several in order.

    Attributes
    ----------
    parts
        Its files.
    """

    parts: tuple[RepoFile, ...]

    @property
    def file(self) -> str:
        """The path of its first file."""
        return self.parts[0].path

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(part.size for part in self.parts)


def models_among(files: Iterable[RepoFile]) -> tuple[Offered, ...]:
    """Return the models among files, in order of their names; one of whose files some are missing is none."""
    whole: list[Offered] = []
    split: dict[tuple[str, str, int], list[RepoFile]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if not name.endswith(".gguf") or _is_no_model(name.lower()):
            continue
        shard = shard_of(name)
        if shard is None:
            whole.append(Offered((file,)))
        else:
            split.setdefault((folder, shard.stem, shard.count), []).append(file)
    for (_, _, count), parts in split.items():
        if len({part.path for part in parts}) == len(parts) == count:
            whole.append(Offered(tuple(sorted(parts, key=lambda part: part.path))))
    return tuple(sorted(whole, key=lambda offered: offered.file))


def _is_no_model(name: str) -> bool:
    """Tell whether a file of the format holds something else: an image encoder, or an importance matrix.

    A model that was made with such a matrix may say so too, beside its quantization.
    """
    return name.startswith("mmproj") or ("imatrix" in name and not quant_of(name))
