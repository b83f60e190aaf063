"""`pilotfish rm` asks, frees, and says how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli_calls import call
from pilotfish.hub import REGISTRY

if TYPE_CHECKING:
    from pathlib import Path

NAME = "smollm2-135m"


@pytest.fixture
def part(empty_cache: Path) -> Path:
    """What is left of a pull that broke off."""
    empty_cache.mkdir()
    path = empty_cache / f"{REGISTRY[NAME].file}.part"
    path.write_bytes(bytes(2_500_000))
    return path


def test_with_yes_it_frees_and_says_how_much(part: Path) -> None:
    done = call("rm", NAME, "--yes")
    assert (done.code, done.out, done.err) == (0, f"{NAME}: 2.5 MB freed\n", "")
    assert not part.exists()


def test_as_json_it_is_one_line(part: Path) -> None:
    report = call("rm", NAME, NAME, "-y", "--json").json
    assert (report["kind"], report["freed_bytes"]) == ("rm", 2_500_000)
    assert report["models"] == [{"name": NAME, "freed_bytes": 2_500_000, "files": [str(part)]}]


def test_where_nobody_can_be_asked_it_wants_yes(part: Path) -> None:
    error = call("rm", NAME).error
    assert f"removing {NAME} (2.5 MB) is not confirmed" in error
    assert "--yes" in error
    assert part.exists()


@pytest.mark.parametrize(("said", "stays"), [("y\n", False), ("n\n", True), ("\n", True)])
def test_on_a_terminal_it_asks(part: Path, monkeypatch: pytest.MonkeyPatch, said: str, stays: bool) -> None:
    monkeypatch.setattr("pilotfish.cli.rm._is_terminal", lambda: True)
    done = call("rm", NAME, text=said)
    assert f"Remove {NAME} (2.5 MB)?" in done.err
    assert (part.exists(), "nothing was removed" in done.err) == (stays, stays)
    assert done.code == 0


def test_nothing_is_removed_if_one_name_can_not_be(part: Path) -> None:
    assert "did you mean smollm2-135m" in call("rm", NAME, "smolm2-135m", "--yes").error
    assert "another program" in call("rm", NAME, "ollama:x", "--yes").error
    assert part.exists()


def test_what_is_not_there_is_said() -> None:
    assert f"{NAME} is not in the cache" in call("rm", NAME, "--yes").error
