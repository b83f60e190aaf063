from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli_calls import call
from pilotfish.engines.scripted import answers
from tiny import END, VOCAB_SIZE, tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from pilotfish.answer import Answer, Event


def conversation(*turns: str) -> Any:
    """Script a conversation: user, assistant, user, assistant."""
    tokenizer, text, script = tiny_model().tokenizer, "", {}
    for user, assistant in zip(turns[::2], turns[1::2], strict=True):
        text += f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        script[tuple(tokenizer.encode(text, special=True))] = list(assistant.encode())
        text += f"{assistant}<|im_end|>\n"
    return script


def test_a_conversation_remembers_its_turns(tiny: Callable[..., Any]) -> None:
    script = conversation("hi", "hello", "again?", "hello again")
    tiny(answers(script, VOCAB_SIZE, END))
    done = call("chat", "-m", "x", text="hi\nagain?\n")
    assert (done.code, done.out) == (0, "hello\nhello again\n")
    assert done.err.count("tokens per pass") == 2


def test_reset_forgets_and_exit_leaves(tiny: Callable[..., Any]) -> None:
    script = conversation("hi", "hello")
    tiny(answers(script, VOCAB_SIZE, END))
    done = call("chat", "-m", "x", text="hi\n/reset\nhi\n/exit\nhi\n")
    assert (done.code, done.out) == (0, "hello\nhello\n")


def test_an_unknown_command_is_said_and_not_sent(tiny: Callable[..., Any]) -> None:
    tiny()
    done = call("chat", "-m", "x", text="/quit\n")
    assert (done.code, done.out) == (0, "")
    assert "/quit is no command" in done.err


def test_a_message_that_does_not_fit_is_said_and_forgotten(tiny: Callable[..., Any]) -> None:
    script = conversation("hi", "hello")
    tiny(answers(script, VOCAB_SIZE, END), context=80)
    done = call("chat", "-m", "x", text=f"{'y' * 100}\nhi\n")
    assert (done.code, done.out) == (0, "hello\n")
    assert "the message has 119 tokens and the context holds 80; shorten it" in done.err


def test_a_conversation_says_when_its_context_is_nearly_full_and_when_it_is(tiny: Callable[..., Any]) -> None:
    """The prompt of a turn, its answer and end count; a full context ends the answer; /clear is /reset."""
    script = conversation("hi", "hello", "again?", "hello again")
    second = 53 + len("hello again") + 1
    for context, said in [
        (2 * second, []),
        (
            second + 4,
            [f"{second} of {second + 4} tokens of context are used, 4 are left; /reset starts anew"],
        ),
        (second, [f"the context is full: {second} tokens"]),
    ]:
        tiny(answers(script, VOCAB_SIZE, END), context=context)
        done = call("chat", "-m", "x", text="hi\nagain?\n/clear\nhi\n")
        assert (done.code, done.out) == (0, "hello\nhello again\nhello\n")
        notices = [line for line in done.err.splitlines() if "of context" in line or "is full" in line]
        assert [w in n for w, n in zip(said, notices, strict=True)] == [True] * len(said)


def test_a_full_conversation_answers_no_more_and_starts_anew(tiny: Callable[..., Any]) -> None:
    """A message that no longer fits is dropped; the conversation before it is kept."""
    script = conversation("hi", "hello", "again?", "hello again")
    tiny(answers(script, VOCAB_SIZE, END), context=80)
    done = call("chat", "-m", "x", text=f"hi\n{'y' * 60}\nagain?\n/reset\nhi\n")
    assert (done.code, done.out) == (0, "hello\nhello again\nhello\n")
    assert "the context holds 80; the message is dropped: shorten it, or /reset starts anew" in done.err


def test_ctrl_c_stops_an_answer_and_stays(tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said is kept as the assistant's turn."""
    script = conversation("hi", "hel", "go on", "lo")
    tiny(answers({**script, **conversation("hi", "hello")}, VOCAB_SIZE, END))
    from pilotfish.cli import chat

    said = ""

    def write(text: str, _drafter: str | None = None) -> None:
        nonlocal said
        said += text
        if said == "hel":
            raise KeyboardInterrupt

    monkeypatch.setattr(chat, "write_text", write)
    done = call("chat", "-m", "x", "-d", "off", text="hi\ngo on\n")
    assert (done.code, said) == (0, "hello")
    assert "stopped" in done.err


def test_a_base_model_refuses(tiny: Callable[..., Any]) -> None:
    tiny(template=False)
    assert "tiny has no chat template" in call("chat", "-m", "x", text="hi\n").error


def test_a_message_stopped_before_its_answer_began_is_forgotten(
    tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(answers(conversation("hi", "hello"), VOCAB_SIZE, END))
    from pilotfish.cli import chat
    from pilotfish.cli.output import watched

    interrupts = [KeyboardInterrupt]

    def stopped_once(answer: Answer) -> Iterator[Event]:
        if interrupts:
            raise interrupts.pop()
        yield from watched(answer)

    monkeypatch.setattr(chat, "watched", stopped_once)
    done = call("chat", "-m", "x", text="long\nhi\n")
    assert (done.code, done.out) == (0, "\nhello\n")


def test_show_draft_says_what_was_drafted_or_why_nothing_was(tiny: Callable[..., Any]) -> None:
    """After each answer; without the option only how fast it was."""
    script = conversation("hi", "hello", "again?", "hello again")
    tiny(answers(script, VOCAB_SIZE, END))
    asked = ("chat", "-m", "x", "-d", "suffix", "--draft-length")
    for length, said in (
        ("4", "drafted accepted"),
        ("0", "not drafting at the end: no drafts were asked for"),
    ):
        done = call(*asked, length, "--show-draft", text="hi\nagain?\n")
        assert (done.code, done.out) == (0, "hello\nhello again\n")
        assert done.err.count(said) == 2
        assert ("not drafting" in done.err) == (length == "0")
        assert "drafted" not in call(*asked, length, text="hi\nagain?\n").err
