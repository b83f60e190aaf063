"""OpenAI's own client at /v1/completions, and what lm_eval makes of the answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from server.clients.loopback import SPOKEN, WAVERING, Server, joined, library, reciting, served
from tiny import VOCAB_SIZE, tiny_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pilotfish.answer import Result

BEGUN = SPOKEN[:6]
SAMPLED: dict[str, Any] = {"temperature": 1, "seed": 5, "max_tokens": 40}


def ask(server: Server, prompt: Any = BEGUN, **options: Any) -> Any:
    return server.client.completions.create(
        **{"model": server.model, "prompt": prompt, "temperature": 0, **options}
    )


def scored(server: Server, prompt: Any, **options: Any) -> Any:
    """Ask as lm_eval does for the log-likelihood of a prompt."""
    return ask(server, prompt, max_tokens=1, logprobs=1, echo=True, seed=1234, **options)


def lm_eval_reads(choice: Any, begin: int) -> tuple[float, bool]:
    """Return what lm_eval makes of a choice: the log-likelihood from `begin` on, and whether it is greedy.

    It counts on one entry for each token of the prompt, then one for the token that had to be generated.
    """
    logprobs, tops = choice.logprobs.token_logprobs[begin:-1], choice.logprobs.top_logprobs[begin:-1]
    return sum(logprobs), all(one == max(top.values()) for one, top in zip(logprobs, tops, strict=True))


def library_says(said: Result, begin: int) -> tuple[float, bool]:
    """Return the same of an echoed answer of the library."""
    assert said.logprobs is not None
    assert said.top_logprobs is not None
    logprobs = [one for one in said.logprobs[begin:-1] if one is not None]
    return sum(logprobs), all(
        one == top[0][1] for one, top in zip(logprobs, said.top_logprobs[begin:-1], strict=True)
    )


@pytest.mark.parametrize("prompt", [BEGUN, [BEGUN], list(BEGUN.encode()), [list(BEGUN.encode())]])
def test_a_completion_is_that_of_the_library(server: Server, prompt: Any) -> None:
    """The prompt as text, as ids, or as a list of one of these; text, reason and usage are the same."""
    said = library(reciting()).generate(BEGUN, max_tokens=300)
    answer = ask(server, prompt, max_tokens=300)
    assert answer.choices[0].text == said.text == SPOKEN[6:]
    assert answer.choices[0].finish_reason == said.finish_reason == "stop"
    assert answer.usage.completion_tokens == len(said.tokens)
    assert answer.usage.prompt_tokens == len(BEGUN.encode())


def test_the_texts_of_a_stream_are_the_completion(wavering: Server) -> None:
    """For the client and its asynchronous twin, with one reason at the end of each choice."""
    whole = [choice.text for choice in ask(wavering, [BEGUN, "x"], n=2, **SAMPLED).choices]

    def text_of(chunks: list[Any], index: int) -> str:
        return joined([one.text for chunk in chunks for one in chunk.choices if one.index == index])

    async def streamed() -> list[Any]:
        async with wavering.async_client() as client:
            asked: dict[str, Any] = {"model": wavering.model, "prompt": [BEGUN, "x"], "n": 2, **SAMPLED}
            return [chunk async for chunk in await client.completions.create(stream=True, **asked)]

    for chunks in (list(ask(wavering, [BEGUN, "x"], n=2, stream=True, **SAMPLED)), asyncio.run(streamed())):
        assert [text_of(chunks, i) for i in range(4)] == whole
        reasons = [one.finish_reason for chunk in chunks for one in chunk.choices if one.finish_reason]
        assert reasons == ["length"] * 4


def test_several_prompts_are_answered_as_each_alone(wavering: Server) -> None:
    """Choice j of prompt i has the index i * n + j, and is the library's."""
    prompts: list[Any] = [BEGUN, "a", list(b"xyz")]
    answer = ask(wavering, [BEGUN, "a", "xyz"], n=2, **SAMPLED)
    said = [
        choice.text
        for prompt in prompts
        for choice in library(WAVERING).generate(prompt, n=2, **SAMPLED).choices
    ]
    assert [choice.text for choice in sorted(answer.choices, key=lambda choice: int(choice.index))] == said


@pytest.mark.parametrize("options", [SAMPLED, {**SAMPLED, "max_tokens": 1}])
def test_an_echo_has_the_prompt_and_its_log_probabilities(wavering: Server, options: dict[str, Any]) -> None:
    """Text and numbers are the library's; the first token has none, since nothing stands before it."""
    said = library(WAVERING).generate(BEGUN, echo=True, logprobs=True, top_logprobs=2, **options)
    choice = ask(wavering, echo=True, logprobs=2, **options).choices[0]
    assert choice.text == said.text
    assert choice.text.startswith(BEGUN)
    assert choice.logprobs.token_logprobs == said.logprobs
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.logprobs.top_logprobs[0] is None
    assert len(choice.logprobs.tokens) == len(choice.logprobs.text_offset) == len(said.tokens)


def test_an_echo_alone_has_the_prompt_and_nothing_else(server: Server) -> None:
    """`max_tokens=0` scores a prompt: no token is said, or counted."""
    answer = ask(server, echo=True, logprobs=1, max_tokens=0)
    assert answer.choices[0].text == BEGUN
    assert len(answer.choices[0].logprobs.tokens) == answer.usage.prompt_tokens == len(BEGUN)
    assert answer.usage.completion_tokens == 0


@pytest.mark.parametrize("prompt", [SPOKEN, SPOKEN[:20], "A pilot whale", "静か"])
@pytest.mark.parametrize("length", [0, 4])
def test_lm_eval_reads_the_log_likelihood_of_the_library(prompt: str, length: int) -> None:
    """Equal to the last bit, also where the model would end the text there: that token has its entry too."""
    with served(tiny_model(WAVERING), draft_length=length) as server:
        ids = list(prompt.encode())
        said = library(WAVERING).generate(ids, max_tokens=1, echo=True, logprobs=True, top_logprobs=1)
        for given in (prompt, ids):
            choice = scored(server, given).choices[0]
            assert len(choice.logprobs.token_logprobs) == len(ids) + 1
            for begin in (1, len(ids) // 2, len(ids) - 1):
                assert lm_eval_reads(choice, begin) == library_says(said, begin)
        assert lm_eval_reads(choice, 1)[1] == SPOKEN.startswith(prompt)


def test_a_batch_is_scored_as_each_prompt_alone(wavering: Server) -> None:
    """With `batch_size` lm_eval sends lists of prompts, and reads the choices by their index."""
    prompts = [list(text.encode()) for text in (SPOKEN, "A pilot whale", SPOKEN[:9])]
    together = [one.logprobs.token_logprobs for one in scored(wavering, prompts).choices]
    assert together == [scored(wavering, one).choices[0].logprobs.token_logprobs for one in prompts]


def test_likeliest_tokens_that_are_no_text_have_names_of_their_own() -> None:
    """Parts of a character would all be the same replacement character: only one would be told."""

    def rule(_tokens: tuple[int, ...]) -> NDArray[np.float32]:
        row = np.zeros(VOCAB_SIZE, dtype=np.float32)
        row[0x80:0x84] = [4, 7, 6, 5]
        return row

    with served(tiny_model(rule)) as server:
        logprobs = ask(server, logprobs=4, max_tokens=3).choices[0].logprobs
        names = [rf"bytes:\x{byte}" for byte in ("80", "81", "82", "83")]
        assert logprobs.tokens == [names[1]] * 3
        for top in logprobs.top_logprobs:
            assert sorted(top) == names
            assert max(top, key=top.__getitem__) == names[1]


def test_a_stop_string_ends_a_completion_before_it(server: Server) -> None:
    """In a stream no part of it is said."""
    said = SPOKEN[6 : SPOKEN.index("naïve")]
    answer = ask(server, stop=["naïve", "never"], max_tokens=100).choices[0]
    assert (answer.text, answer.finish_reason) == (said, "stop")
    chunks = list(ask(server, stop=["naïve", "never"], max_tokens=100, stream=True))
    assert joined([chunk.choices[0].text for chunk in chunks]) == said


def test_an_answer_is_the_same_without_drafts(wavering: Server) -> None:
    """Texts and log-probabilities; `speculative` changes the speed only."""
    drafted = ask(wavering, logprobs=3, **SAMPLED)
    plain = ask(wavering, logprobs=3, extra_body={"speculative": {"n_max": 0}}, **SAMPLED)
    assert plain.choices == drafted.choices
    assert plain.timings["draft_n"] == 0 < drafted.timings["draft_n"]
