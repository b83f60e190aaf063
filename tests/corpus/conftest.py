"""A cache of its own, and a folder of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PILOTFISH_CACHE", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two texts, one below, and what is none."""
    root = tmp_path / "texts"
    (root / "below").mkdir(parents=True)
    (root / "a.txt").write_text("the cat sat on the mat")
    (root / "below" / "b.py").write_text("def cat(): return 'sat'")
    return root
