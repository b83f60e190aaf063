"""The entries are complete and consistent."""

from __future__ import annotations

import re

import pytest

from pilotfish.errors import UnknownModel
from pilotfish.hub import DEFAULT_MODEL, REGISTRY
from pilotfish.hub.from_packages import part_size
from pilotfish.hub.names import HubName
from pilotfish.hub.quants import quant_of
from pilotfish.hub.registry import entry_of, find


def test_the_names_are_there_and_the_default_names_its_draft_model() -> None:
    assert list(REGISTRY) == ["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m", "gemma-3-270m"]
    assert REGISTRY[DEFAULT_MODEL].draft == "qwen2.5-coder-0.5b"


@pytest.mark.parametrize("name", REGISTRY)
def test_an_entry_is_consistent(name: str) -> None:
    entry = REGISTRY[name]
    sizes = [part_size(entry, part) for part in range(1, entry.packages.parts + 1)]
    assert entry.name == name
    assert re.fullmatch("[0-9a-f]{64}", entry.sha256)
    assert sum(sizes) == entry.size
    assert all(0 < size <= entry.packages.part_bytes for size in sizes)
    assert entry.draft is None or entry.draft in REGISTRY
    assert entry.licence == ("LicenseRef-Gemma" if name == "gemma-3-270m" else "Apache-2.0")


@pytest.mark.parametrize("name", REGISTRY)
def test_an_entrys_file_is_known_by_the_hubs_name_too(name: str) -> None:
    """Also without a quantization, if the entry's is the one that would be taken."""
    hub, quant = REGISTRY[name].hub, quant_of(REGISTRY[name].hub.file)
    for wanted in (quant, quant.lower(), hub.file, hub.file.removesuffix(".gguf")):
        assert entry_of(HubName(hub.repo, wanted)) is REGISTRY[name]
    assert (entry_of(HubName(hub.repo.lower())) is REGISTRY[name]) == (quant == "Q4_K_M")
    assert entry_of(HubName(hub.repo, "Q2_K")) is None
    assert entry_of(HubName("another/repo", quant)) is None


def test_files_in_the_cache_have_different_names() -> None:
    assert len({entry.file.lower() for entry in REGISTRY.values()}) == len(REGISTRY)


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("smollm2", "smollm2-135m"),
        ("qwen2.5-coder-1.5", "qwen2.5-coder-1.5b"),
        ("QWEN2.5-CODER-0.5B", "qwen2.5-coder-0.5b"),
    ],
)
def test_an_unknown_name_suggests_the_nearest_and_lists_all(asked: str, near: str) -> None:
    with pytest.raises(UnknownModel) as error:
        find(asked)
    assert repr(asked) in error.value.message
    assert f"did you mean {near}?" in error.value.hint
    assert all(name in error.value.hint for name in REGISTRY)


def test_a_name_like_no_other_suggests_none() -> None:
    with pytest.raises(UnknownModel) as error:
        find("\0zzz")
    assert "did you mean" not in error.value.hint
