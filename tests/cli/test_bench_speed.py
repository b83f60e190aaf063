from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cli_calls import call
from pilotfish.bench.sets import read_set
from pilotfish.drafting import Wish
from pilotfish.engines.scripted import copying
from tiny import VOCAB_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = ("-m", "x", "--limit", "3", "--max-tokens", "8")
HEAD = ["kind", "schema", "version", "model", "drafts", "machine", "settings"]
BODY = ["identical", "plain_vs_plain", "valid", "prompts", "categories", "overall", "skipped"]


def test_the_report_is_one_line_of_json(tiny: Callable[..., Any]) -> None:
    loaded = tiny(copying(VOCAB_SIZE, 3))
    done = call("bench", "speed", *SMALL, "--repeats", "2", "--json")
    report = done.json
    assert done.code == 0
    assert list(report) == [*HEAD, *BODY]
    assert (report["kind"], report["identical"]) == ("bench speed", True)
    assert [draft["name"] for draft in report["drafts"]] == ["suffix", "tiny-draft"]
    assert report["settings"] == {
        "modes": ["plain", "suffix", "model", "auto"],
        "max_tokens": 8,
        "temperature": 0.0,
        "seed": 0,
        "turns": "first",
        "raw": False,
        "prompts": "edits",
        "limit": 3,
        "repeats": 2,
        "draft_corpus": None,
        "draft_slim": "auto",
        "context": 4096,
    }
    assert [p["category"] for p in report["prompts"]] == ["code", "data", "prose"]
    for prompt in report["prompts"]:
        assert len({mode["ids_sha256"] for mode in prompt["modes"].values()}) == 1
        assert all(mode["tokens"] == 8 for mode in prompt["modes"].values())
    assert list(report["overall"]) == ["plain", "suffix", "model", "auto"]
    assert loaded.target.engine.sequences == {}
    assert "overall" in done.err


@pytest.mark.parametrize("words", [("bench",), ("bench", "speed")])
def test_bench_alone_is_bench_speed(tiny: Callable[..., Any], words: tuple[str, ...]) -> None:
    tiny()
    assert call(*words, *SMALL, "--modes", "suffix", "--json").json["kind"] == "bench speed"


def test_bench_still_has_its_other_commands_and_its_help() -> None:
    for flag in ("-h", "--help"):
        done = call("bench", flag)
        assert done.code == 0
        assert "passes" in done.out
        assert "speed" in done.out
    assert "--plot" in call("bench", "passes", "--help").out
    assert "No such command 'pases'" in call("bench", "pases").error


def test_the_table_has_a_line_for_each_category_and_mode(tiny: Callable[..., Any]) -> None:
    tiny(copying(VOCAB_SIZE, 3))
    done = call("bench", *SMALL, "--modes", "suffix,auto")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][:2] == ["category", "mode"]
    assert [line[0] for line in lines[1:13:3]] == ["code", "data", "prose", "overall"]
    assert [next(word for word in line if word in {"plain", "suffix", "auto"}) for line in lines[1:13]] == [
        "plain",
        "suffix",
        "auto",
    ] * 4
    assert "plain decoding against itself: " in done.out
    assert max(map(len, done.out.splitlines())) < 80
    assert "\x1b" not in done.out


def test_only_what_the_modes_need_is_loaded(tiny: Callable[..., Any]) -> None:
    loaded = tiny()
    call("bench", *SMALL, "--modes", "suffix,plain", "-d", "some-model")
    assert loaded.asked[1] == [Wish(suffix=True)]
    call("bench", *SMALL, "-d", "some-model")
    assert loaded.asked[1] == [Wish(model="some-model")]
    call("bench", *SMALL)
    assert loaded.asked[1] == [Wish(auto=True)]


def test_without_a_draft_model_the_mode_is_left_out_unless_it_is_asked_for(tiny: Callable[..., Any]) -> None:
    tiny()
    report = call("bench", *SMALL, "-d", "suffix", "--json").json
    assert report["settings"]["modes"] == ["plain", "suffix", "auto"]
    assert [draft["name"] for draft in report["drafts"]] == ["suffix"]
    assert "there is no draft model" in call("bench", *SMALL, "-d", "suffix", "--modes", "model").error


def test_an_answer_that_differs_is_exit_code_1(
    tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of passes that verify are moved here, as by an engine that is not exact."""
    loaded = tiny(copying(VOCAB_SIZE, 3))
    engine = loaded.target.engine
    exact = type(engine).forward

    def forward(chunks: Any) -> Any:
        rows = exact(engine, chunks)
        if any(chunk.wanted > 1 for chunk in chunks):
            monkeypatch.setattr(rows, "choose", lambda *_: 7, raising=False)
        return rows

    monkeypatch.setattr(engine, "forward", forward)
    done = call("bench", *SMALL, "--modes", "suffix", "--prompts", "hard")
    assert done.code == 1
    assert "differ from plain decoding's" in done.out
    report = call("bench", *SMALL, "--modes", "suffix", "--prompts", "hard", "--json").json
    assert report["identical"] is False


def test_prompts_are_a_set_or_a_file(tiny: Callable[..., Any], tmp_path: Path) -> None:
    tiny()
    file = tmp_path / "prompts"
    file.write_text(
        "\n".join(map(json.dumps, [{"id": "[/red]", "prompt": "x" * 5000}, {"turns": ["a", "b"]}]))
    )
    done = call("bench", "-m", "x", "--prompts", str(file), "--turns", "all", "--max-tokens", "4", "--json")
    assert [p["id"] for p in done.json["prompts"]] == ["2", "2/2"]
    assert done.json["skipped"] == ["[/red]"]
    assert "skipped: ['[/red]']" in done.err
    hard = call("bench", *SMALL[:4], "--max-tokens", "2", "--prompts", "hard", "--json").json
    assert {p["id"] for p in hard["prompts"]} <= {p.id for p in read_set("hard")}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-d", "off"], "nothing to compare"),
        (["--modes", "plain,fast"], "modes has 'fast'"),
        (["--modes", ""], "modes has ''"),
        (["--limit", "0"], "limit is 0"),
        (["--repeats", "0"], "repeats is 0"),
        (["--max-tokens", "0"], "max_tokens is 0"),
        (["--temperature", "-1"], "temperature -1.0"),
        (["--seed", "-1"], "seed -1"),
        (["--prompts", "/nowhere"], "can't read the prompts file /nowhere"),
        (["--turns", "some"], "'some' is not one of"),
    ],
)
def test_bad_input_is_one_clear_line(tiny: Callable[..., Any], args: list[str], said: str) -> None:
    """And is found before a model is loaded."""
    loaded = tiny()
    assert said in call("bench", "-m", "x", *args).error
    assert loaded.asked == ()


def test_the_command_draws_what_it_prints(tiny: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    tiny()
    picture = tmp_path / "speed.svg"
    done = call(
        "bench", "-m", "x", "--limit", "3", "--max-tokens", "4", "--modes", "auto", "--json", "--plot",
        str(picture),
    )  # fmt: skip
    assert f"{done.json['overall']['auto']['ratio']:.2f}" in picture.read_text(encoding="utf-8")


def test_a_picture_that_can_not_be_drawn_is_refused_before_measuring(
    tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tiny()
    assert "'speed.doc'" in call("bench", "-m", "x", "--plot", "speed.doc").error
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert 'pip install "pilotfish[plot]"' in call("bench", "-m", "x", "--plot", "speed.png").error
    assert loaded.asked == ()


@pytest.mark.models
def test_a_real_model_answers_the_same_in_every_mode(smollm2: Path) -> None:
    args = ("bench", "-m", str(smollm2), "-d", str(smollm2), "--limit", "1", "--max-tokens", "6", "--json")
    report = call(*args, "--prompts", "hard", "--temperature", "1.5").json
    assert report["identical"] is True
    # A model that drafts for itself is right, but doesn't pay: control may leave it alone.
    assert report["overall"]["model"]["acceptance"] in {0.0, 1.0}
