"""The facade: options, text, streams, turns."""

from __future__ import annotations

import gc
import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.drafting import Drafting, Wish
from pilotfish.engines.scripted import ScriptedEngine, copying, mistaken, ngrams
from pilotfish.errors import EngineError, PromptTooLong, TemplateError, UsageError
from pilotfish.llm import LLM
from pilotfish.options import Options
from pilotfish.turns import Turns
from tiny import END, START, VOCAB_SIZE, says, tiny_draft, tiny_llm, tiny_model

if TYPE_CHECKING:
    from pilotfish.answer import Event
    from pilotfish.engines.scripted import Rule

FISH = "ein Fisch 🐟, zwei Fische 🐟🐟, und ein Fisch"


def scripted(llm: LLM) -> ScriptedEngine:
    assert isinstance(llm.target.engine, ScriptedEngine)
    return llm.target.engine


def drafted_llm(draft: str | list[str], rule: Rule | None = None, draft_rule: Rule | None = None) -> LLM:
    wish = Wish.read(draft)
    return LLM(tiny_model(rule), Drafting(wish, tiny_draft(draft_rule or rule) if wish.model else None))


def test_an_answer_has_text_tokens_reason_seed_and_stats() -> None:
    result = tiny_llm({"hi": "hello"}).generate("hi", seed=7)
    assert (result.text, result.finish_reason, result.seed) == ("hello", "stop", 7)
    assert result.tokens == [*b"hello", END]
    assert (result.stats.tokens, result.stats.prompt_tokens, result.stats.drafted) == (6, 2, 0)


def test_the_budget_ends_an_answer_with_length() -> None:
    result = tiny_llm({"hi": "hello"}).generate("hi", max_tokens=3)
    assert (result.text, result.finish_reason, len(result.tokens)) == ("hel", "length", 3)


def test_a_prompt_may_be_ids() -> None:
    assert tiny_llm({"hi": "hello"}).generate(list(b"hi")).text == "hello"


def test_special_tokens_written_out_in_a_prompt_are_special() -> None:
    assert tiny_llm({}).encode("a<|im_start|>") == [ord("a"), START]


def test_encode_and_decode_are_inverse() -> None:
    llm = tiny_llm({})
    assert llm.decode(llm.encode(FISH)) == FISH


def test_a_random_seed_is_fresh_and_reported_and_replays() -> None:
    llm = LLM(tiny_model())
    first, second = (llm.generate("x", temperature=1.0, max_tokens=20) for _ in range(2))
    assert first.seed != second.seed
    assert llm.generate("x", temperature=1.0, max_tokens=20, seed=first.seed).tokens == first.tokens


@pytest.mark.parametrize("draft", ["suffix", "auto", "model", ["suffix", "model"], ["auto", "model"]])
@pytest.mark.parametrize("length", ["auto", 1, 5])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_does_not_depend_on_the_drafter(draft: Any, length: Any, temperature: float) -> None:
    options: Any = {"max_tokens": 60, "temperature": temperature, "seed": 3}
    plain = LLM(tiny_model()).generate("once", **options)
    llm = drafted_llm(draft, draft_rule=mistaken(ngrams(VOCAB_SIZE), 0.3))
    result = llm.generate("once", draft_length=length, **options)
    assert result.tokens == plain.tokens
    assert result.text == plain.text
    assert scripted(llm).sequences == {}


def test_a_named_model_with_a_fixed_length_drafts_alone_and_exactly_that_much() -> None:
    result = drafted_llm("model").generate("once", max_tokens=41, draft_length=4)
    assert result.stats.passes == 8
    assert result.stats.drafted == result.stats.accepted == 32
    assert result.stats.drafted_at == [8] * 4


def test_a_named_model_without_a_length_shares_with_the_suffix_drafter() -> None:
    events = list(drafted_llm("model", copying(VOCAB_SIZE, 3)).stream("abcabcabc", max_tokens=30))
    assert "suffix" in {event.drafted_by for event in events}


def test_the_suffix_drafter_alone_is_the_suffix_drafter() -> None:
    events = list(drafted_llm("suffix", copying(VOCAB_SIZE, 3)).stream("abcabcabc", max_tokens=30))
    assert {event.drafted_by for event in events} == {None, "suffix"}


def test_speculate_false_is_plain_decoding_for_one_answer() -> None:
    llm = drafted_llm("model")
    assert llm.generate("once", speculate=False).stats.drafted == 0
    assert llm.generate("once").stats.drafted > 0


def test_draft_length_zero_is_plain_decoding() -> None:
    assert drafted_llm("model").generate("once", draft_length=0).stats.drafted == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 2.5}, "max_tokens is 2.5"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"temperature": -0.5}, "temperature -0.5"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"temperature": "hot"}, "temperature 'hot'"),
        ({"top_k": -1}, "top_k -1"),
        ({"top_p": 0}, "top_p 0"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"min_p": -1}, "min_p -1"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 2**64}, "seed 18446744073709551616"),
        ({"stop": [""]}, "stop string is ''"),
        ({"stop": [3]}, "stop string is 3"),
        ({"stop": None}, "stop is None"),
        ({"draft_length": -1}, "draft_length is -1"),
        ({"draft_length": 65}, "draft_length is 65"),
        ({"draft_length": "long"}, "draft_length is 'long'"),
        ({"speculate": False, "draft_length": 4}, "draft_length is 4, but speculate is False"),
        ({"draft_length": 4}, "draft_length is 4, but draft is off"),
        ({"speculate": "no"}, "speculate is 'no'"),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error_that_names_it(options: Any, named: str) -> None:
    """The error comes when the answer is asked for, not with its first token."""
    llm = tiny_llm({})
    with pytest.raises(UsageError, match=named.replace(".", r"\.")):
        llm.stream("hi", **options)
    assert scripted(llm).passes == 0


def test_an_unknown_option_is_an_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="top_q"):
        tiny_llm({}).generate("hi", top_q=1)  # type: ignore[call-arg, unused-ignore]


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_an_error(prompt: Any) -> None:
    with pytest.raises(UsageError, match="the prompt is empty"):
        tiny_llm({}).generate(prompt)


@pytest.mark.parametrize("prompt", [None, b"hi", 3, {"role": "user"}])
def test_a_prompt_that_is_neither_text_nor_ids_is_an_error_that_names_it(prompt: Any) -> None:
    with pytest.raises(UsageError, match="the prompt is ") as caught:
        tiny_llm({}).generate(prompt)
    assert str(prompt) in caught.value.message


@pytest.mark.parametrize("token", [-1, 258, "a", True, 1.0])
def test_a_prompt_id_that_is_no_token_is_an_error(token: Any) -> None:
    with pytest.raises(UsageError, match="the prompt has the id"):
        tiny_llm({}).generate([1, token])


def test_a_prompt_longer_than_the_context_is_an_error_with_both_numbers() -> None:
    with pytest.raises(PromptTooLong, match=r"20 tokens .* 16"):
        tiny_llm({}, context=16).generate("x" * 20)


def test_a_full_context_ends_an_answer_with_length() -> None:
    llm = LLM(tiny_model(context=40), Drafting(Wish.read("m"), tiny_draft(context=40)))
    result = llm.generate("x" * 30, max_tokens=100)
    assert (result.finish_reason, len(result.tokens)) == ("length", 10)


@pytest.mark.parametrize("draft", [[], "", [3], ["off", "suffix"], ["one", "two"]])
def test_a_draft_that_makes_no_sense_is_an_error_that_names_it(draft: Any) -> None:
    with pytest.raises(UsageError, match="draft"):
        Wish.read(draft)


def test_deltas_never_hold_half_a_character_and_concatenate_to_the_text() -> None:
    llm = drafted_llm("model", says({"p": FISH}))
    events = list(llm.stream("p", draft_length=5))
    assert "".join(event.text for event in events) == llm.generate("p").text == FISH
    assert "\ufffd" not in "".join(event.text for event in events)


def test_half_a_character_at_the_end_is_flushed() -> None:
    events = list(tiny_llm({"p": b"ok\xf0\x9f"}).stream("p"))
    assert events[-1].text == "\ufffd"
    assert "".join(event.text for event in events) == "ok\ufffd"


def test_every_token_of_a_step_is_an_event_that_names_its_drafter() -> None:
    events = list(drafted_llm("model", says({"p": "hello"})).stream("p", draft_length=3))
    assert [event.token for event in events] == [*b"hello", END]
    # First token from the prompt, a step of three accepted and a bonus, and an accepted end.
    model = "tiny-draft"
    assert [event.drafted_by for event in events] == [None, model, model, model, None, model]
    assert [event.finish_reason for event in events] == [None] * 5 + ["stop"]


@pytest.mark.parametrize("length", [0, 1, 2, 3, 8, 16])
@pytest.mark.parametrize("stop", ["lo wo", "l", "ld!", "hello", "d", ["zzz", "wor", "o w"]])
def test_a_stop_string_cuts_the_text_and_keeps_the_tokens_through_it(length: int, stop: Any) -> None:
    whole = "hello world"
    result = drafted_llm("model", says({"p": whole})).generate("p", stop=stop, draft_length=length)
    found = {s: whole.find(s) for s in ([stop] if isinstance(stop, str) else stop) if s in whole}
    if not found:
        assert (result.text, result.tokens) == (whole, [*whole.encode(), END])
        return
    first = min(found, key=lambda s: found[s] + len(s))
    assert result.text == whole[: found[first]]
    assert result.tokens == [*whole[: found[first] + len(first)].encode()]
    assert result.finish_reason == "stop"
    assert result.stats.tokens == len(result.tokens)


def test_text_held_back_for_a_stop_string_is_flushed_at_the_end() -> None:
    events = list(tiny_llm({"p": "hello wor"}).stream("p", stop="world"))
    assert "".join(event.text for event in events) == "hello wor"
    assert events[-1].text == "wor"


def test_a_stop_string_that_is_complete_with_the_budget_is_a_stop() -> None:
    result = tiny_llm({"p": "hello"}).generate("p", stop="lo", max_tokens=5)
    assert (result.text, result.finish_reason) == ("hel", "stop")


@settings(max_examples=60, deadline=None)
@given(
    answer=st.binary(max_size=30),
    stops=st.lists(st.text("ab\u00e9", min_size=1, max_size=3), max_size=2),
    length=st.integers(0, 6),
    budget=st.integers(1, 30),
)
def test_deltas_concatenate_to_the_unstreamed_text(
    answer: bytes, stops: list[str], length: int, budget: int
) -> None:
    plain = tiny_llm({"p": answer}).generate("p", stop=stops, max_tokens=budget)
    llm = drafted_llm("model", says({"p": answer}), mistaken(says({"p": answer}), 0.3))
    answering = llm.stream("p", stop=stops, max_tokens=budget, draft_length=length)
    events: list[Event] = list(answering)
    assert "".join(event.text for event in events) == answering.text == plain.text
    assert [event.token for event in events] == plain.tokens
    assert events[-1].finish_reason == plain.finish_reason


def test_a_stream_left_midway_frees_everything_and_the_model_goes_on() -> None:
    llm = drafted_llm("model")
    stream = llm.stream("once", max_tokens=100)
    next(stream)
    assert len(scripted(llm).sequences) == 1
    stream.close()
    stream.close()
    assert list(stream) == []
    assert scripted(llm).sequences == {}
    with pytest.raises(UsageError, match="left before its end"):
        stream.result()
    with llm.stream("once", max_tokens=100) as stream:
        list(itertools.islice(stream, 3))
    assert scripted(llm).sequences == {}
    assert llm.generate("once").tokens == LLM(tiny_model()).generate("once").tokens


def test_a_stream_that_is_dropped_frees_everything() -> None:
    llm = drafted_llm("model")
    for _event in llm.stream("once", max_tokens=100):
        break
    gc.collect()
    assert scripted(llm).sequences == {}


def test_several_answers_may_be_open_at_once() -> None:
    llm = drafted_llm("model", says({"a": "first", "b": "second"}))
    streams = [llm.stream("a"), llm.stream("b")]
    texts = ["", ""]
    for pair in itertools.zip_longest(*streams):
        for i, event in enumerate(pair):
            texts[i] += event.text if event else ""
    assert texts == ["first", "second"]


def test_threads_share_a_model_in_turn() -> None:
    llm = drafted_llm("model")
    wanted = {p: LLM(tiny_model()).generate(p, max_tokens=50).tokens for p in "abcdef"}
    got: dict[str, list[int]] = {}

    def ask(prompt: str) -> None:
        got[prompt] = llm.generate(prompt, max_tokens=50).tokens

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == wanted
    assert scripted(llm).sequences == {}


def test_turns_are_fair() -> None:
    """Who has just had a turn waits for those who came before asking again."""
    turns, order = Turns(), list[str]()
    waiting = threading.Event()

    def other() -> None:
        waiting.set()
        with turns.turn():
            order.append("other")

    with turns.turn():
        thread = threading.Thread(target=other)
        thread.start()
        waiting.wait(10)
        while len(turns._queue) < 2:
            pass
    with turns.turn():
        order.append("self")
    thread.join(10)
    assert order == ["other", "self"]


def test_an_interrupted_wait_gives_up_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()

    def interrupt(_predicate: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(turns._changed, "wait_for", interrupt)
        with pytest.raises(KeyboardInterrupt), turns.turn():
            pass
    with turns.turn():
        pass


def test_what_fails_at_the_end_of_a_turn_does_not_keep_the_turn() -> None:
    turns = Turns()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), turns.turn():
        turns.soon(interrupt)
    assert not turns._queue
    with turns.turn():
        pass


def test_what_is_put_off_is_done_at_the_end_of_a_turn() -> None:
    turns, done = Turns(), list[int]()
    with turns.turn():
        turns.soon(lambda: done.append(1))
        assert done == []
    assert done == [1]
    turns.soon(lambda: done.append(2))
    assert done == [1, 2]


def test_an_error_in_a_pass_leaves_the_model_usable() -> None:
    llm = drafted_llm("model")
    scripted(llm).failures[2] = EngineError("boom")
    with pytest.raises(EngineError, match="boom"):
        llm.generate("once", draft_length=3)
    assert scripted(llm).sequences == {}
    assert llm.generate("once").tokens == LLM(tiny_model()).generate("once").tokens


def test_chat_answers_the_templated_prompt() -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    llm = tiny_llm({})
    ids = tuple(llm.encode(prompt))
    assert ids[0] == START
    said: dict[tuple[int, ...], list[int]] = {ids: list(b"hello")}

    def rule(tokens: tuple[int, ...]) -> Any:
        from pilotfish.engines.scripted import answers

        return answers(said, VOCAB_SIZE, END)(tokens)

    llm = LLM(tiny_model(rule))
    messages = [{"role": "user", "content": "hi"}]
    assert llm.chat(messages).text == "hello"
    assert "".join(event.text for event in llm.chat_stream(messages)) == "hello"


def test_a_model_without_a_template_refuses_to_chat() -> None:
    with pytest.raises(TemplateError, match="tiny has no chat template"):
        LLM(tiny_model(template=False)).chat([{"role": "user", "content": "hi"}])


def test_no_messages_are_an_error() -> None:
    with pytest.raises(UsageError, match="no messages"):
        tiny_llm({}).chat([])


def test_a_closed_model_says_so() -> None:
    with tiny_llm({"p": "x"}) as llm:
        llm.generate("p")
    llm.close()
    with pytest.raises(UsageError, match="tiny is closed"):
        llm.generate("p")


def test_the_target_drafting_for_itself_is_always_right() -> None:
    target = tiny_model(ngrams(VOCAB_SIZE))
    llm = LLM(target, Drafting(Wish.read("tiny"), target))
    for temperature in (0.0, 0.8):
        result = llm.generate("once", max_tokens=500, draft_length=8, temperature=temperature, seed=5)
        assert result.stats.acceptance == 1.0
        assert result.stats.drafted > 300 or result.finish_reason == "stop"
    assert scripted(llm).sequences == {}


def test_stops_may_be_one_string() -> None:
    assert Options(stop="ab").stops == ("ab",)


def test_a_draft_model_with_another_padding_never_proposes_padding() -> None:
    """The engine's rows are wider than the tokenizer's real tokens."""

    def padded(tokens: tuple[int, ...]) -> Any:
        del tokens
        from pilotfish.engines.scripted import sure_of

        return sure_of(VOCAB_SIZE - 1, VOCAB_SIZE)

    llm = drafted_llm("model", says({"p": "hello"}), padded)
    result = llm.generate("p", draft_length=4)
    assert (result.text, result.stats.drafted) == ("hello", 0)
