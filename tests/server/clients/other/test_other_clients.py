"""Programs of others at a real server with a real model: `make clients` installs them and runs this."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pilotfish
from server.clients import test_examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pilotfish.llm import LLM

PYTHON = os.environ.get("PILOTFISH_CLIENTS", "")
"""The Python that has them."""

MODEL = "small"
KEY = "sk-tests"

pytestmark = [
    pytest.mark.models,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PYTHON, reason="`make clients` installs other clients and runs these"),
]

Samples = list[dict[str, Any]]


@pytest.fixture(scope="module")
def drafting(smollm2: Path) -> Iterator[str]:
    yield from _served(smollm2, "-d", "suffix", "--draft-length", "8")


@pytest.fixture(scope="module")
def plain(smollm2: Path) -> Iterator[str]:
    """With a key, so that all that asks it shows that it can."""
    yield from _served(smollm2, "-d", "off", "--api-key", KEY)


@pytest.fixture(scope="module")
def llm(smollm2: Path) -> Iterator[LLM]:
    with pilotfish.load(str(smollm2), draft="off") as loaded:
        yield loaded


def _served(model: Path, *options: str) -> Iterator[str]:
    """Serve a model on a free port, and yield the URL that the server says it is at."""
    command = [sys.executable, "-m", "pilotfish", "serve", "-m", str(model), "--port", "0"]
    command += ["--alias", MODEL, "--alias", test_examples.MODEL]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"served at (http://\S+/v1)", line):
                break
        else:
            pytest.fail("".join(said))
        yield found[1]
        process.terminate()
        process.communicate(timeout=60)


def _ask(script: str, *args: object, **environment: str) -> Any:
    """Return what a script of this folder prints, run by the other Python."""
    done = subprocess.run(
        [PYTHON, str(Path(__file__).with_name(script)), *map(str, args)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-4000:]
    return json.loads(done.stdout)


def _scores(url: str, folder: Path, concurrent: int = 4, batch: int = 1) -> Any:
    home = str(folder)
    return _ask(
        "ask_lm_eval.py",
        f"{url}/completions",
        MODEL,
        concurrent,
        batch,
        HF_HOME=home,
        NLTK_DATA=home,
        OPENAI_API_KEY=KEY,
    )


@pytest.fixture(scope="module")
def scores(plain: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _scores(plain, tmp_path_factory.mktemp("hf"))


def test_lm_eval_gives_the_same_scores_with_drafts(scores: Any, drafting: str, tmp_path: Path) -> None:
    """Scores, log-likelihoods to the last bit, and texts; the model knows something."""
    assert _scores(drafting, tmp_path) == scores
    assert scores["results"]["choose"]["acc,none"] >= 0.6
    assert scores["results"]["continue"]["exact_match,words"] >= 0.2


@pytest.mark.parametrize(("concurrent", "batch"), [(1, 1), (1, 3), (8, 2)])
def test_lm_eval_gives_the_same_scores_however_it_asks(
    scores: Any, drafting: str, tmp_path: Path, concurrent: int, batch: int
) -> None:
    """One request after the other, several prompts in a request, or many requests at once."""
    assert _scores(drafting, tmp_path, concurrent, batch) == scores


def test_the_log_likelihoods_of_lm_eval_are_those_of_the_library(scores: Any, llm: LLM) -> None:
    """Sums over the same tokens are equal to the last bit; what it would say itself counts as greedy."""
    samples: Samples = scores["samples"]["choose"]
    asked = [
        (*pair, *found[0]) for one in samples for pair, found in zip(one["asked"], one["found"], strict=True)
    ]
    assert {greedy for *_, greedy in asked} == {True, False}
    for context, continuation, logprob, greedy in asked:
        ids, begin = llm.encode(context + continuation), len(llm.encode(context))
        said = llm.generate(ids, max_tokens=1, echo=True, logprobs=True, top_logprobs=1)
        assert said.logprobs is not None
        assert said.top_logprobs is not None
        scored = [one for one in said.logprobs[begin:-1] if one is not None]
        assert logprob == sum(scored)
        assert greedy == all(
            one == top[0][1] for one, top in zip(scored, said.top_logprobs[begin:-1], strict=True)
        )


def test_the_texts_of_lm_eval_are_those_of_the_library(scores: Any, llm: LLM) -> None:
    """What it has generated, until its stop strings, is what `llm.generate` says."""
    for sample in scores["samples"]["continue"]:
        (prompt, options) = sample["asked"][0]
        said = llm.generate(llm.encode(prompt), max_tokens=options["max_gen_toks"], stop=options["until"])
        assert sample["found"] == [[said.text]]


@pytest.fixture(scope="module")
def river(llm: LLM) -> str:
    """What the library says to what the clients ask."""
    return llm.chat([{"role": "user", "content": "Name a river."}], max_tokens=20).text


def test_litellm_gets_what_the_library_says(drafting: str, llm: LLM, river: str) -> None:
    """A chat, whole, streamed and asynchronous, a completion, a response; errors are of litellm's classes."""
    said = _ask("ask_litellm.py", drafting, MODEL)
    assert {said[name] for name in ("chat", "stream", "async", "vllm", "response")} == {river}
    assert (said["tokens"], said["stream_tokens"], said["reason"]) == (20, 20, "length")
    assert said["text"] == llm.generate("The largest city of France is", max_tokens=4).text
    assert (said["unknown_model"], said["tools"]) == ("NotFoundError", "BadRequestError")


def test_langchain_gets_what_the_library_says(drafting: str, river: str) -> None:
    """A chat and a response, whole and streamed."""
    said = _ask("ask_langchain.py", drafting, MODEL)
    assert {said[name] for name in ("chat", "chat_stream", "responses", "responses_stream")} == {river}
    assert (said["chat_tokens"], said["responses_tokens"]) == (20, 20)


def test_llm_gets_what_the_library_says(drafting: str, river: str, tmp_path: Path) -> None:
    """The command `llm`, set up with a model of its file extra-openai-models.yaml."""
    (tmp_path / "extra-openai-models.yaml").write_text(
        f'- model_id: here\n  model_name: {MODEL}\n  api_base: "{drafting}"\n'
    )
    options = ["-o", "temperature", "0", "-o", "max_tokens", "20"]
    for streams in ([], ["--no-stream"]):
        said = subprocess.run(
            [str(Path(PYTHON).with_name("llm")), "-m", "here", "Name a river.", *options, *streams],
            env={**os.environ, "LLM_USER_PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not said.returncode, said.stderr
        assert said.stdout.rstrip("\n") == river


@pytest.mark.parametrize("client", ["litellm", "langchain"])
def test_the_examples_run(drafting: str, client: str) -> None:
    """Those of docs/clients.md, each in a program of its own; they say something."""
    for block in test_examples.examples(client, drafting):
        said = subprocess.run(
            [PYTHON, "-c", block],
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not said.returncode, said.stderr
        assert said.stdout.strip()
