from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cli_calls import call
from oracle.changed import with_keys, written_with
from oracle.tiny import Tiny, write_tiny
from tiny import metadata, write_header

if TYPE_CHECKING:
    from pathlib import Path


def whole(folder: Path, **more: Any) -> str:
    """Write a model that can be run, or could but for what is added."""
    tokenizer = {**metadata(), "tokenizer.ggml.merges": ["a b"]}
    tokenizer["tokenizer.ggml.tokens"][-1] = "ab"  # type: ignore[index]
    tokenizer["tokenizer.ggml.token_type"][-1] = 1  # type: ignore[index]
    keys = tokenizer | {key.replace("__", "."): value for key, value in more.items()}
    with written_with(with_keys(keys)):
        return str(write_tiny(folder / "target.gguf", Tiny(vocab_size=261)))


@pytest.mark.parametrize("flag", [("-m",), ()], ids=["flag", "argument"])
def test_info_describes_a_file_from_its_header(tmp_path: Path, flag: tuple[str, ...]) -> None:
    path = whole(tmp_path)
    done = call("info", *flag, path, "--threads", "3")
    assert (done.code, done.err) == (0, "")
    for said in (
        "llama",
        "512 (the model's: 512)",
        "0.4 million",
        "3 threads",
        path,
        "bits: tokens and logits",
    ):
        assert said in done.out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"llama__rope__scaling__type": "yarn"}, "yarn"),
        ({"tokenizer__ggml__pre": "odd"}, "pre-tokenizer 'odd' is not known"),
        ({"tokenizer__ggml__model": "bert"}, "tokenizer model 'bert' is not supported"),
    ],
)
def test_info_promises_nothing_of_a_file_that_run_would_refuse(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    path = whole(tmp_path, **change)
    facts = call("info", path, "--json").json["info"]
    assert facts["promise"] is None
    assert words in facts["refusal"]
    assert words in call("run", "-m", path, "hi").error
    assert "none, it can't be run: " in call("info", path).out


def test_info_of_a_file_that_runs_promises_bits(tmp_path: Path) -> None:
    path = whole(tmp_path)
    facts = call("info", path, "--json").json["info"]
    assert (facts["promise"], facts["refusal"]) == ("bits", None)
    assert call("run", "-m", path, "hi", "--raw", "--max-tokens", "2", "--json").json["tokens"]


def test_two_models_are_one_too_many(tmp_path: Path) -> None:
    assert "two models are named" in call("info", "a", "-m", "b").error
    path = write_header(tmp_path)
    assert call("info", path, "--json", PILOTFISH_MODEL="other").json["model"]["name"] == "target"


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
    assert facts["server_memory_bytes"] > facts["memory_bytes"]
    assert (facts["family"], facts["context"], facts["context_max"]) == ("llama", 100, 20_000)


@pytest.mark.parametrize("threads", ["0", "-3"])
def test_a_number_of_threads_that_makes_no_sense_is_an_error(tmp_path: Path, threads: str) -> None:
    assert f"threads is {threads}" in call("info", "-m", write_header(tmp_path), "--threads", threads).error


@pytest.mark.models
def test_info_of_a_real_model(smollm2: Path) -> None:
    facts = call("info", "-m", str(smollm2), "--json").json["info"]
    assert set(facts["tensor_types"]) == {"F32", "Q4_1", "Q8_0"}
    assert facts["chat_template"] is True
