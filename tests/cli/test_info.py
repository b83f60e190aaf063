from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli_calls import call
from tiny import write_header

if TYPE_CHECKING:
    from pathlib import Path


def test_info_describes_a_file_from_its_header(tmp_path: Path) -> None:
    path = write_header(tmp_path)
    done = call("info", "-m", path, "--threads", "3")
    assert (done.code, done.err) == (0, "")
    for said in ("llama", "8192 (the model's: 20000)", "3 threads", path, "bits"):
        assert said in done.out


def test_a_name_in_a_file_can_not_steer_the_terminal(tmp_path: Path) -> None:
    done = call("info", "-m", write_header(tmp_path, general__name="fine\x1b]0;title\x07\nsize 3 MB"))
    assert "fine\ufffd]0;title\ufffd size 3 MB" in done.out
    assert "\x1b" not in done.out


def test_info_as_json_is_one_line(tmp_path: Path) -> None:
    report = call("info", "-m", write_header(tmp_path), "--context", "100", "--json").json
    assert (report["kind"], report["model"]["name"]) == ("info", "target")
    assert len(report["model"]["sha256"]) == 64
    facts = report["info"]
    assert facts["kv_bytes"] == 128 * 128
    assert facts["memory_bytes"] > facts["weights_bytes"] + facts["kv_bytes"] + facts["work_bytes"]
    assert (facts["family"], facts["context"], facts["context_max"]) == ("llama", 100, 20_000)


@pytest.mark.parametrize("threads", ["0", "-3"])
def test_a_number_of_threads_that_makes_no_sense_is_an_error(tmp_path: Path, threads: str) -> None:
    assert f"threads is {threads}" in call("info", "-m", write_header(tmp_path), "--threads", threads).error


@pytest.mark.models
def test_info_of_a_real_model(smollm2: Path) -> None:
    facts = call("info", "-m", str(smollm2), "--json").json["info"]
    assert set(facts["tensor_types"]) == {"F32", "Q4_1", "Q8_0"}
    assert facts["chat_template"] is True
