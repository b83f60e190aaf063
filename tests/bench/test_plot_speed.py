"""The picture of `bench speed` shows the ratios of the report, and refuses what is none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pilotfish.bench.plot_speed import plot
from pilotfish.errors import UsageError

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"


def report(**changes: Any) -> Any:
    found = json.loads((RESULTS / "speed-edits-avx2.json").read_text(encoding="utf-8"))
    return {**found, **changes}


def written_in(path: Path) -> list[str]:
    """Return the texts of an SVG picture: matplotlib draws them, and writes them as comments beside."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pytest.importorskip("matplotlib")
    return tmp_path / "speed.svg"


def test_each_category_and_mode_has_its_ratio(picture: Path) -> None:
    found = report()
    plot(found, picture)
    said = written_in(picture)
    for rates in (*found["categories"].values(), found["overall"]):
        for mode, rate in rates.items():
            assert mode == "plain" or f"{rate['ratio']:.2f}" in said
    assert {*found["categories"], "overall", "plain decoding"} <= set(said)
    assert any(f"against itself: {found['plain_vs_plain']:.3f}" in text for text in said)


def test_names_are_shown_as_they_are(picture: Path) -> None:
    """A category from a prompts file may look like a formula, or be called as all of them together."""
    overall = report()["overall"]
    plot(report(categories={"$x_{$": overall, "overall": overall}), picture)
    said = written_in(picture)
    assert "$x_{$" in [text.replace("\\$", "$") for text in said]
    assert said.count("overall") == 2


def test_a_ratio_that_no_time_was_taken_for_is_none(picture: Path) -> None:
    rates = {**report()["overall"]["auto"], "ratio": None, "ratio_ci95": None}
    plot(report(overall={"plain": rates, "auto": rates}), picture)
    assert "none" in written_in(picture)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        [],
        report(categories=[]),
        report(overall={"auto": {}}),
        report(overall={"auto": {"ratio": "fast", "ratio_ci95": None}}, categories={}),
        report(overall={"plain": {}}, categories={}),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, broken: Any) -> None:
    with pytest.raises(UsageError, match=r"no report of bench speed|plain decoding only"):
        plot(broken, tmp_path / "speed.png")
    assert list(tmp_path.iterdir()) == []
