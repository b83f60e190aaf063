from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pilotfish
from cli_calls import call
from pilotfish.engines.scripted import answers, uniform
from tiny import END, VOCAB_SIZE, says, write_header

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FISH = "ein 🐟 für zwei"


def test_the_answer_goes_to_stdout_and_nothing_else(tiny: Callable[..., Any]) -> None:
    tiny(says({"hi": FISH}))
    done = call("run", "-m", "x", "--raw", "hi")
    assert (done.code, done.out, done.err) == (0, f"{FISH}\n", "")


def test_the_prompt_goes_through_the_chat_template_unless_raw(tiny: Callable[..., Any]) -> None:
    loaded = tiny()
    ids = loaded.target.tokenizer.encode(
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", special=True
    )
    script: Any = {tuple(ids): list(b"templated"), tuple(b"hi"): list(b"raw")}
    tiny(answers(script, VOCAB_SIZE, END))
    assert call("run", "-m", "x", "hi").out == "templated\n"
    assert call("run", "-m", "x", "hi", "--raw").out == "raw\n"
    tiny(answers(script, VOCAB_SIZE, END), template=False)
    assert call("run", "-m", "x", "hi").out == "raw\n"


def test_the_prompt_comes_from_stdin_or_a_file(tiny: Callable[..., Any], tmp_path: Path) -> None:
    tiny(says({FISH: "yes"}))
    assert call("run", "-m", "x", "--raw", "-", text=f"{FISH}\n").out == "yes\n"
    file = tmp_path / "prompt"
    file.write_text(FISH)
    assert call("run", "-m", "x", "--raw", "-f", str(file)).out == "yes\n"


def test_json_is_one_line_with_the_envelope(tiny: Callable[..., Any]) -> None:
    tiny(says({"hi": FISH}))
    done = call("run", "-m", "x", "--raw", "hi", "--json", "--seed", "5", "-d", "model")
    report = done.json
    assert list(report)[:8] == [
        "kind", "schema", "version", "model", "drafts", "machine", "settings", "text",
    ]  # fmt: skip
    assert (report["kind"], report["schema"]) == ("run", 1)
    assert report["model"]["name"] == "tiny"
    assert [draft["name"] for draft in report["drafts"]] == ["suffix", "tiny-draft"]
    assert set(report["machine"]) == {"cpu", "isa", "threads", "read_gb_s"}
    assert report["settings"]["temperature"] == 0.0
    assert (report["text"], report["finish_reason"], report["seed"]) == (FISH, "stop", 5)
    assert report["stats"]["tokens"] == len(report["tokens"]) == len(report["drafted_by"])
    assert "tiny-draft" in report["drafted_by"]
    assert set(report["stats"]["parts_s"]) == {"draft", "pass", "sample", "control", "other"}


def test_show_draft_prints_statistics_to_stderr_and_no_colour_into_a_pipe(tiny: Callable[..., Any]) -> None:
    tiny(says({"hi": FISH}))
    done = call("run", "-m", "x", "--raw", "hi", "--show-draft", "-d", "model")
    assert done.out == f"{FISH}\n"
    assert "tokens per pass" in done.err
    assert done.err.count("\n") == 1


def test_every_option_of_the_sampler_reaches_the_answer(tiny: Callable[..., Any]) -> None:
    tiny(says({"hi": "hello world"}))
    args = ("run", "-m", "x", "--raw", "hi", "--json", "-d", "m")
    assert call(*args, "--bad-word", "lo", "--max-tokens", "4").json["text"][:3] == "hel"
    assert "lo" not in call(*args, "--bad-word", "lo", "--bad-word", "x").json["text"]
    assert call(*args, "--logit-bias", "120:90", "--max-tokens", "3").json["text"] == "xxx"
    assert call(*args, "--ignore-eos", "--max-tokens", "20").json["finish_reason"] == "length"
    assert call(*args, "--min-tokens", "13", "--max-tokens", "20").json["stats"]["tokens"] > 12
    penalties = ("--presence-penalty", "0.5", "--frequency-penalty", "-0.5", "--repeat-penalty", "1.5")
    found = call(*args, *penalties, "--repeat-last-n", "3").json["settings"]
    assert (found["presence_penalty"], found["frequency_penalty"]) == (0.5, -0.5)
    assert (found["repeat_penalty"], found["repeat_last_n"]) == (1.5, 3)
    # Of tokens that are all alike, the first that has not been said.
    tiny(uniform(VOCAB_SIZE))
    said = call(*args, "--presence-penalty", "1", "--max-tokens", "4").json["tokens"]
    assert said == call(*args, "--frequency-penalty", "1", "--max-tokens", "4").json["tokens"] == [0, 1, 2, 3]


def test_several_answers_come_one_after_another(tiny: Callable[..., Any]) -> None:
    tiny(says({"hi": FISH}))
    args = ("run", "-m", "x", "--raw", "hi", "-n", "3", "-d", "m")
    assert call(*args).out == f"{FISH}\n" * 3
    report = call(*args, "--json").json
    assert [choice["text"] for choice in report["choices"]] == [FISH] * 3
    assert report["text"] == FISH


def test_log_probabilities_and_the_prompt_are_in_the_report(tiny: Callable[..., Any]) -> None:
    tiny(says({"hi": "ok"}))
    args = ("run", "-m", "x", "--raw", "hi", "--echo", "-d", "m")
    assert call(*args).out == "hiok\n"
    report = call(*args, "--json", "--logprobs", "--top-logprobs", "2").json
    assert report["text"] == "hiok"
    assert [len(report[key]) for key in ("tokens", "logprobs", "top_logprobs", "drafted_by")] == [5] * 4
    assert report["logprobs"][0] is None
    assert [top[0][0] for top in report["top_logprobs"][2:]] == report["tokens"][2:]
    assert "logprobs" not in call(*args, "--json").json


def test_every_option_reaches_the_answer(tiny: Callable[..., Any]) -> None:
    loaded = tiny(says({"hi": "hello world"}))
    args = ("run", "-m", "x", "--raw", "hi", "--json")
    assert call(*args, "--max-tokens", "3").json["text"] == "hel"
    assert call(*args, "--stop", "o w", "--stop", "zzz").json["text"] == "hell"
    assert call(*args, "-d", "m", "--draft-length", "3").json["stats"]["drafted_at"] == [3, 3, 3]
    assert call(*args, "-d", "off").json["stats"]["drafted"] == 0
    settings = ("--temperature", "0.5", "--top-k", "7", "--top-p", "0.9", "--min-p", "0.1")
    found = call(*args, *settings).json["settings"]
    assert [found[k] for k in ("temperature", "top_k", "top_p", "min_p")] == [0.5, 7, 0.9, 0.1]
    call(*args, "--context", "77", "--threads", "3", "-d", "suffix", "--draft-model", "m", "-md", "auto")
    assert loaded.asked == ("x", ["suffix", "m", "auto"], 77, 3)


def test_the_environment_gives_defaults_and_a_flag_goes_first(tiny: Callable[..., Any]) -> None:
    loaded = tiny(says({"hi": "hello"}))
    call("run", "--raw", "hi", PILOTFISH_MODEL="env", PILOTFISH_THREADS="2", PILOTFISH_DRAFT="suffix m")
    assert loaded.asked == ("env", ["suffix", "m"], None, 2)
    assert call("run", "--raw", "hi", PILOTFISH_MODEL="env", PILOTFISH_MAX_TOKENS="2").out == "he\n"
    call("run", "--raw", "hi", "-m", "flag", PILOTFISH_MODEL="env")
    assert loaded.asked[0] == "flag"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "-m", "x", ""], "the prompt is empty"),
        (["run", "-m", "x", "--raw", ""], "the prompt is empty"),
        (["run", "-m", "x"], "no prompt is given"),
        (["run", "-m", "x", "hi", "-f", "file"], "two prompts are given"),
        (["run", "-m", "x", "-f", "/nowhere/file"], "can't read /nowhere/file: No such file"),
        (["run", "-m", "x", "hi", "--max-tokens", "0"], "max_tokens is 0"),
        (["run", "-m", "x", "hi", "--max-tokens", "some"], "'some' is not a valid integer"),
        (["run", "-m", "x", "hi", "--temperature", "-1"], "temperature -1.0"),
        (["run", "-m", "x", "hi", "--top-p", "2"], "top_p 2.0"),
        (["run", "-m", "x", "hi", "--draft-length", "long"], "draft_length is 'long'"),
        (["run", "-m", "x", "hi", "--draft-length", "3", "-d", "off"], "draft_length is 3, but draft is off"),
        (["run", "-m", "x", "hi", "-d", "off", "-d", "suffix"], "off and more than off"),
        (["run", "-m", "x", "hi", "-d", "one", "-d", "two"], "draft names 2 models"),
        (["run", "-m", "x", "hi", "--stop", ""], "stop string is ''"),
        (["run", "-m", "x", "hi", "--presence-penalty", "3"], "presence_penalty 3.0"),
        (["run", "-m", "x", "hi", "--repeat-penalty", "0"], "repeat_penalty 0.0"),
        (["run", "-m", "x", "hi", "--logit-bias", "5"], "logit_bias is '5'"),
        (["run", "-m", "x", "hi", "--logit-bias", "5:1", "--logit-bias", "5:2"], "the id 5 twice"),
        (["run", "-m", "x", "hi", "--logit-bias", "5:1000"], "logit_bias 1000.0 of token 5"),
        (["run", "-m", "x", "hi", "--logit-bias", "999:1"], "logit_bias has the id 999"),
        (["run", "-m", "x", "hi", "--bad-word", ""], "a bad word is ''"),
        (["run", "-m", "x", "hi", "--min-tokens", "999"], "min_tokens is 999, but max_tokens is 256"),
        (["run", "-m", "x", "hi", "-n", "0"], "n is 0"),
        (["run", "-m", "x", "hi", "--logprobs"], "logprobs is set, but the answer is printed as text"),
        (["run", "-m", "x", "hi", "--top-logprobs", "3", "--json"], "top_logprobs is 3, but logprobs is"),
        (["run", "-m", "x", "hi", "--colour"], "No such option"),
        (["rum"], "No such command 'rum'"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(tiny: Callable[..., Any], args: Any, said: str) -> None:
    tiny()
    assert said in call(*args).error


def test_stdin_that_is_not_utf_8_is_an_error(tiny: Callable[..., Any], tmp_path: Path) -> None:
    tiny()
    file = tmp_path / "prompt"
    file.write_bytes(b"ok \xff")
    assert "is not UTF-8: invalid start byte at byte 3" in call("run", "-m", "x", "-f", str(file)).error


def test_a_prompt_longer_than_the_context_is_an_error_with_both_numbers(tiny: Callable[..., Any]) -> None:
    tiny(context=16)
    error = call("run", "-m", "x", "--raw", "y" * 20).error
    assert "20 tokens" in error
    assert "16" in error


def test_without_a_model_and_a_cache_it_says_what_to_pull() -> None:
    error = call("run", "hi").error
    assert "pilotfish pull qwen2.5-coder-1.5b qwen2.5-coder-0.5b" in error


def test_an_unknown_model_suggests_the_nearest() -> None:
    assert "did you mean smollm2-135m" in call("run", "hi", "-m", "smolm2").error


def test_a_model_that_is_not_cached_says_how_to_get_it() -> None:
    assert "pilotfish pull smollm2-135m" in call("run", "hi", "-m", "smollm2-135m").error
    assert "pilotfish pull smollm2-135m" in call("run", "hi", "-m", "smollm2-135m", "--offline").error


@pytest.mark.parametrize(
    "data", [b"", b"GG", b"not a model at all, but long enough to look at", b"GGUF\x03\0\0\0"]
)
def test_a_file_that_is_no_model_is_an_error_that_names_it(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(data)
    assert str(file) in call("run", "hi", "-m", str(file)).error


@pytest.mark.parametrize("command", [("run", "hi"), ("verify",), ("info",)])
def test_an_empty_model_name_is_not_the_default_model(command: tuple[str, ...]) -> None:
    """As from `-m "$MODEL"` with a variable that is not set."""
    assert "the model's name is empty" in call(*command, "-m", "").error


def test_a_bug_is_one_line_that_names_it(tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tiny()

    def explode(*_args: object, **_rest: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("pilotfish.llm.LLM.start", explode)
    error = call("run", "-m", "x", "hi").error
    assert error == "RuntimeError: first line second line (set PILOTFISH_DEBUG=1 for the traceback)"
    assert "Traceback" in call("run", "-m", "x", "hi", PILOTFISH_DEBUG="1").err


def test_ctrl_c_is_exit_code_130_and_says_nothing(
    tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny()

    def interrupt(*_args: object, **_rest: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pilotfish.llm.LLM.start", interrupt)
    done = call("run", "-m", "x", "hi", "--json")
    assert (done.code, done.out, done.err.strip()) == (130, "", "")


def test_help_and_version() -> None:
    done = call("--help")
    assert done.code == 0
    for name in ("run", "chat", "pull", "models", "info", "demo", "verify"):
        assert name in done.out
        assert call(name, "--help").code == 0
    assert call("--version").out == f"pilotfish {pilotfish.__version__}\n"


def test_an_unsupported_family_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_header(tmp_path, general__architecture="mamba")
    assert "the model family 'mamba' is not supported" in call("run", "hi", "-m", path).error


def test_an_unknown_pre_tokenizer_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_header(tmp_path, tokenizer__ggml__pre="other")
    assert "pre-tokenizer 'other' is not known" in call("run", "hi", "-m", path).error


def test_a_draft_with_another_vocabulary_is_an_error_that_names_the_token(tmp_path: Path) -> None:
    draft = write_header(tmp_path, "draft.gguf", tokenizer__ggml__eos_token_id=257)
    error = call("run", "hi", "-m", write_header(tmp_path), "-d", draft).error
    assert "257" in error


def test_a_model_that_does_not_fit_is_an_error_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilotfish.memory.free_bytes", lambda: 500_000)
    error = call("run", "hi", "-m", write_header(tmp_path)).error
    assert "needs 2 MB of memory and 0 MB are free" in error or "needs 1 MB" in error


def test_a_context_beyond_the_models_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert "context is 30000" in call("run", "hi", "-m", write_header(tmp_path), "--context", "30000").error
