"""`/v1/completions`: every form of a prompt, echo, and log-probabilities that an independent sum confirms."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.scripted import copying, ngrams
from pilotfish.sampling import Sampling
from pilotfish.sequence import Sequence
from pilotfish.server.log import RequestLog
from pilotfish.server.settings import Settings
from server.asgi import COMPLETIONS, Server, ask, server
from tiny import END, START, VOCAB_SIZE, tiny_model

LANGUAGE = ngrams(VOCAB_SIZE)
SCRIPT = {"abc": "defg", "xy": "zé", "<|im_start|>k": "ey"}
GREEDY = {"temperature": 0}


@pytest.fixture(scope="module")
def talker() -> Server:
    return server(SCRIPT)


@pytest.fixture(scope="module")
def babbler() -> Server:
    """It has a distribution worth the name, and drafts."""
    return server(drafting=Drafting(Wish(suffix=True)))


def choices(made: Server, **body: Any) -> list[Any]:
    call = ask(made, COMPLETIONS, {**GREEDY, **body})
    assert call.status == 200, call.text
    return list(call.json["choices"])


def streamed(made: Server, **body: Any) -> list[Any]:
    """Return each choice put together from its events."""
    *events, end = ask(made, COMPLETIONS, {**GREEDY, **body, "stream": True}).events
    assert end is None
    found: dict[int, Any] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        mine = found.setdefault(choice["index"], {"text": "", "logprobs": None, "finish_reason": None})
        assert mine["finish_reason"] is None
        mine["text"] += choice["text"]
        mine["finish_reason"] = choice["finish_reason"]
        if choice["finish_reason"] is not None:
            assert (choice["text"], choice["logprobs"]) == ("", None)
        for name, column in (choice["logprobs"] or {}).items():
            mine["logprobs"] = mine["logprobs"] or {}
            mine["logprobs"].setdefault(name, []).extend(column)
    return [{"index": i, **found[i]} for i in sorted(found)]


def test_a_completion_has_the_shape_of_openai(talker: Server) -> None:
    found = ask(talker, COMPLETIONS, {**GREEDY, "prompt": "abc"}).json
    assert found["id"].startswith("cmpl-")
    assert (found["object"], found["created"], found["model"]) == ("text_completion", 1_700_000_000, "tiny")
    assert found["choices"] == [{"index": 0, "text": "defg", "logprobs": None, "finish_reason": "stop"}]
    assert found["usage"]["prompt_tokens"] == 3
    assert found["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("abc", ["defg"]),
        (["abc"], ["defg"]),
        (["abc", "xy"], ["defg", "zé"]),
        ([97, 98, 99], ["defg"]),
        ([[97, 98, 99]], ["defg"]),
        ([[97, 98, 99], [120, 121]], ["defg", "zé"]),
        (["xy", [97, 98, 99]], ["zé", "defg"]),
        ([START, 107], ["ey"]),
        ("<|im_start|>k", ["ey"]),
    ],
)
def test_a_prompt_is_a_text_or_ids_or_a_list_of_them(talker: Server, prompt: Any, texts: list[str]) -> None:
    assert [choice["text"] for choice in choices(talker, prompt=prompt)] == texts
    assert [choice["text"] for choice in streamed(talker, prompt=prompt)] == texts


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("", "prompt"),
        ([], "prompt"),
        ([[]], "prompt[0]"),
        (["abc", ""], "prompt[1]"),
        ([1, "a"], "prompt[0]"),
        ([1, True], "prompt"),
        ([1.5], "prompt[0]"),
        ([None], "prompt[0]"),
        ([-1], "prompt"),
        ([[5], [END + 2]], "prompt[1]"),
        ([10**30], "prompt"),
        (7, "prompt"),
        ({"a": 1}, "prompt"),
        (["a"] * 5, "prompt"),
    ],
)
def test_other_prompts_are_refused_by_name(prompt: Any, param: str) -> None:
    made = server(SCRIPT, settings=Settings(most_prompts=4))
    call = ask(made, COMPLETIONS, {"prompt": prompt})
    assert call.status == 400
    assert call.error["param"] == param


def test_choices_of_several_prompts_are_in_order_of_prompts_then_of_n(babbler: Server) -> None:
    body = {"prompt": ["one", "two"], "n": 2, "seed": 3, "temperature": 1, "max_tokens": 9}
    found = choices(babbler, **body)
    assert [choice["index"] for choice in found] == [0, 1, 2, 3]
    alone = [choices(babbler, **{**body, "prompt": prompt}) for prompt in ("one", "two")]
    assert [c["text"] for c in found] == [c["text"] for one in alone for c in one]
    assert len({c["text"] for c in found}) == 4
    assert streamed(babbler, **body) == found


def test_the_usage_counts_each_prompt_once_and_all_answers(babbler: Server) -> None:
    found = ask(
        babbler, COMPLETIONS, {"prompt": ["one", "three"], "n": 3, "max_tokens": 4, "ignore_eos": True}
    )
    usage = found.json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (8, 24)
    body = {"prompt": ["one", "three"], "n": 3, "max_tokens": 4, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True}
    *_, last, _end = ask(babbler, COMPLETIONS, body).events
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 24


def scores(tokens: list[int]) -> list[Any]:
    """Return what the model holds of each token, by another way than the engine's."""
    found: list[Any] = [None]
    for i in range(1, len(tokens)):
        logits = np.asarray(LANGUAGE(tuple(tokens[:i])), np.float64)
        found.append(float(logits[tokens[i]] - logits.max() - np.log(np.exp(logits - logits.max()).sum())))
    return found


@pytest.mark.parametrize("speculative", [None, {"n_max": 0}])
@pytest.mark.parametrize("echo", [True, False])
def test_log_probabilities_are_those_of_the_model_with_and_without_drafts_and_echo(
    babbler: Server, echo: bool, speculative: Any
) -> None:
    prompt = list(b"the same few tokens the same few tokens the same")
    body = {"prompt": prompt, "max_tokens": 25, "ignore_eos": True, "logprobs": 2, "echo": echo}
    body["speculative"] = speculative
    [choice] = choices(babbler, **body)
    columns = choice["logprobs"]
    raw = [t.encode() if len(t) == 1 else bytes.fromhex(t[-2:]) for t in columns["tokens"]]
    shown = [token[0] if len(token) == 1 else 0 for token in raw]
    said = shown if echo else prompt + shown
    expected = scores(said) if echo else scores(said)[len(prompt) :]
    assert len(columns["token_logprobs"]) == (len(prompt) if echo else 0) + 25
    for found, wanted in zip(columns["token_logprobs"], expected, strict=True):
        assert (found is None) == (wanted is None)
        assert found is None or abs(found - wanted) < 1e-5
    for token, logprob, top in zip(
        columns["tokens"], columns["token_logprobs"], columns["top_logprobs"], strict=True
    ):
        assert (top is None) == (logprob is None)
        assert top is None or (top[token] == logprob and len(top) in {2, 3})
    assert streamed(babbler, **body) == [choice]


def test_offsets_say_where_in_the_text_each_token_begins(talker: Server) -> None:
    [choice] = choices(talker, prompt="xy", echo=True, logprobs=0)
    assert choice["text"] == "xyzé"
    assert choice["logprobs"]["tokens"] == ["x", "y", "z", "bytes:\\xc3", "bytes:\\xa9", "<|im_end|>"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 3, 4]
    assert choice["logprobs"]["top_logprobs"][0] is None
    assert list(choice["logprobs"]["top_logprobs"][1]) == ["y"]


def test_a_prompt_can_be_scored_without_an_answer(babbler: Server) -> None:
    prompt = list(b"how likely is this")
    body = {"prompt": [prompt, prompt[:5]], "max_tokens": 0, "echo": True, "logprobs": 0}
    found = ask(babbler, COMPLETIONS, {**GREEDY, **body}).json
    assert [choice["text"] for choice in found["choices"]] == ["how likely is this", "how l"]
    assert found["usage"]["completion_tokens"] == 0
    for choice, ids in zip(found["choices"], (prompt, prompt[:5]), strict=True):
        assert len(choice["logprobs"]["tokens"]) == len(ids)
        assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(scores(ids)[1:], abs=1e-5)
        assert choice["finish_reason"] == "length"
    assert streamed(babbler, **body) == found["choices"]
    assert ask(babbler, COMPLETIONS, {"prompt": "a", "max_tokens": 0}).error["param"] == "max_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_the_token_that_a_score_has_to_make_counts_nowhere(
    caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    """Not in usage, timings and metrics, nor in the log; here it is an end token, and ends nothing."""
    made = server({"abc": ""}, settings=Settings(prefix_tokens=0))
    made.service.observers.append(RequestLog(made.service.target.tokenizer))
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    with caplog.at_level(logging.INFO, logger="pilotfish.requests"):
        call = ask(made, COMPLETIONS, {"prompt": "abc", "max_tokens": 0, "echo": True, "n": 2, **options})
    found = call.events[-2] if stream else call.json
    assert found["usage"]["completion_tokens"] == 0
    predicted = {name: value for name, value in found["timings"].items() if name.startswith("predicted")}
    assert set(predicted.values()) == {0}
    assert found["timings"]["prompt_n"] == 3
    line, prompt, *answers = (r.getMessage() for r in caplog.records if r.name == "pilotfish.requests")
    assert " length, prompt 3 (0 cached), 0 tokens, queued " in line
    assert "tokens/s" not in line
    assert prompt.endswith(" prompt 'abc'")
    assert all(answer.endswith(" answer ''") for answer in answers)
    figures = made.service.metrics.render().decode()
    labels = 'engine="0",model_name="tiny"'
    for name, value in {
        f"generation_tokens_total{{{labels}}}": 0,
        f"prompt_tokens_total{{{labels}}}": 3,
        'request_success_total{engine="0",finished_reason="length",model_name="tiny"}': 2,
        f"request_generation_tokens_sum{{{labels}}}": 0,
        f"time_to_first_token_seconds_count{{{labels}}}": 0,
        f"request_decode_time_seconds_count{{{labels}}}": 0,
        f"request_prefill_time_seconds_count{{{labels}}}": 1,
    }.items():
        assert f"pilotfish:{name} {value:.1f}\n" in figures


def test_echo_repeats_the_prompt_as_it_was_written(talker: Server) -> None:
    assert choices(talker, prompt="<|im_start|>k", echo=True)[0]["text"] == "<|im_start|>key"
    assert streamed(talker, prompt="<|im_start|>k", echo=True)[0]["text"] == "<|im_start|>key"


def test_sixteen_tokens_are_said_unless_told(babbler: Server) -> None:
    found = ask(babbler, COMPLETIONS, {"prompt": "a", "ignore_eos": True}).json
    assert found["usage"]["completion_tokens"] == 16
    assert found["choices"][0]["finish_reason"] == "length"


def test_of_several_prompts_all_are_answered_or_none() -> None:
    """One is too long, or there is no room for the last: the others are cancelled, and nothing runs."""
    made = server(target=tiny_model(copying(VOCAB_SIZE, 3), context=30), settings=Settings(most_waiting=2))
    call = ask(made, COMPLETIONS, {"prompt": ["a", "b" * 40], "max_tokens": 5})
    assert (call.error["code"], call.error["param"]) == ("context_length_exceeded", "prompt")
    quiet = server(SCRIPT, settings=Settings(most_waiting=2), run=False)
    quiet.service.scheduler.submit(Sequence([5], Sampling(), max_tokens=1)).cancel()  # until the next pass
    call = ask(quiet, COMPLETIONS, {"prompt": ["a", "b"]})
    assert (call.status, call.error["code"]) == (429, "queue_full")
    assert call.response_headers["retry-after"] == "1"
    assert quiet.service.scheduler.waiting == 2
    assert all(ticket.cancelled for ticket in quiet.service.scheduler._waiting)
    quiet.service.scheduler.step()
    assert (quiet.service.scheduler.waiting, quiet.service.scheduler.running) == (0, 0)


def test_log_probabilities_of_a_completion_are_a_number_up_to_20(babbler: Server) -> None:
    for wrong in (-1, 21, True, "2"):
        call = ask(babbler, COMPLETIONS, {"prompt": "a", "logprobs": wrong})
        assert (call.status, call.error["param"]) == (400, "logprobs")
