"""`benchmarks/control_trace.py` writes down what the counters say too, and tells kinds of text apart."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.drafting import Drafting, Wish
from pilotfish.llm import LLM
from tiny import says, tiny_model

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "control_trace.py"
PROMPT = "class A:\n    x = 1\n    y = 2\n"
PARTS = ["A word. ", "```\nz = 3\n```", " Then, ", f"```py\n{PROMPT}```", " Done."]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("control_trace", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for themselves
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def report(script: ModuleType) -> dict[str, Any]:
    """What is written down of an answer in five parts; the clock ticks whenever it is looked at."""
    llm = LLM(tiny_model(says({PROMPT: "".join(PARTS)})), Drafting(Wish(suffix=True)))
    found = script.trace(llm, llm.encode(PROMPT), 200, itertools.count().__next__)
    assert isinstance(found, dict)
    return found


def test_the_steps_make_up_the_answer(report: dict[str, Any]) -> None:
    """The first token is the prompt's, and comes before all steps."""
    steps, stats = report["steps"], report["stats"]
    assert report["identical"]
    assert report["text"] == "".join(PARTS)
    assert len(steps) == stats["passes"]
    ends = itertools.accumulate((step["emitted"] for step in steps), initial=1)
    assert [step["position"] for step in steps] == list(ends)[:-1]
    assert sum(step["emitted"] for step in steps) == stats["tokens"] - 1
    assert sum(step["accepted"] for step in steps) == stats["accepted"] > len(PROMPT) / 2
    assert all(len(step["drafters"]) == step["drafted"] >= step["accepted"] for step in steps)
    assert all((step["reason"] is None) == (step["drafted"] > 0) for step in steps)


def test_parts_are_told_apart_by_their_fences_and_by_what_stands_in_the_prompt(
    script: ModuleType, report: dict[str, Any]
) -> None:
    sections = report["sections"]
    assert [section["kind"] for section in sections] == [
        script.PROSE, script.CODE, script.PROSE, script.COPY, script.PROSE,
    ]  # fmt: skip
    assert sections[0]["first"] == 0
    assert sections[-1]["last"] == report["stats"]["tokens"]
    assert all(before["last"] == after["first"] for before, after in itertools.pairwise(sections))
    assert sections[3]["drafter"] == "suffix"
    assert sections[3]["draft_length"] > sections[0]["draft_length"]


def test_a_stored_report_can_be_drawn(script: ModuleType, report: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    head = {
        "model": {"name": "tiny"},
        "drafts": [{"name": "suffix"}],
        "machine": {"cpu": "x", "isa": "y", "threads": 2},
    }
    script.draw(head | report, tmp_path / "trace.svg")
    drawn = (tmp_path / "trace.svg").read_text(encoding="utf-8")
    assert "suffix, accepted" in drawn
    assert drawn.count(script.COPY) == 1
