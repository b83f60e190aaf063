"""`pilotfish chat`: a conversation on the terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from pilotfish.cli import common
from pilotfish.cli.failures import notice
from pilotfish.cli.opening import open_llm, read_options
from pilotfish.cli.output import colours, stats_line, watched, write_text
from pilotfish.errors import PilotfishError, TemplateError

if TYPE_CHECKING:
    from pilotfish.answer import Answer
    from pilotfish.llm import LLM
    from pilotfish.options import Options

HELP = "Type a message. /reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."
RESET = ("/reset", "/clear")
NEARLY_FULL = 0.8
"""Share of the context from which on each turn says how much is left."""


@click.command("chat", short_help="Talk with a model.")
@common.model_options
@common.sampling_options(max_tokens=1024)
@common.SHOW_DRAFT
def command(
    *,
    models: common.ModelOptions,
    show_draft: bool,
    **sampling: object,
) -> None:
    """Talk with a model; it remembers the conversation until /reset."""
    options = read_options(**sampling)  # type: ignore[arg-type]
    with open_llm(models) as llm:
        if not llm.has_template:
            raise TemplateError(
                f"{llm.target.name} has no chat template", "a base model continues text: pilotfish run --raw"
            )
        click.echo(_dim(f"{llm.target.name}. {HELP}"), err=True)
        converse(llm, options, show_draft=show_draft)


def converse(llm: LLM, options: Options, *, show_draft: bool) -> None:
    """Read messages and answer them until the end of the input or /exit."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing and history
    turns: list[dict[str, str]] = []
    while (message := _read()) is not None and message != "/exit":
        if message in RESET:
            turns.clear()
            click.echo(_dim("forgotten"), err=True)
        elif message.startswith("/"):
            click.echo(_dim(f"{message} is no command. {HELP}"), err=True)
        elif message:
            turns.append({"role": "user", "content": message})
            said = _answer(llm, turns, options, show_draft=show_draft)
            if said is None:
                turns.pop()
            else:
                turns.append({"role": "assistant", "content": said})


def _read() -> str | None:
    """Return the next message, None at the end of the input; Ctrl-C drops the line, twice leaves."""
    stopped = False
    while True:
        try:
            return input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            if sys.stdin.isatty():
                click.echo(err=True)
            return None
        except KeyboardInterrupt:
            if stopped or not sys.stdin.isatty():
                raise
            stopped = True
            click.echo(_dim("\nCtrl-C again, Ctrl-D or /exit leaves"), err=True)


def _answer(llm: LLM, turns: list[dict[str, str]], options: Options, *, show_draft: bool) -> str | None:
    """Stream an answer; return what was said before its end or Ctrl-C, None for nothing or after an error."""
    answer: Answer | None = None
    colour = show_draft and colours(sys.stdout)
    with contextlib.suppress(KeyboardInterrupt):  # wherever in it: an answer ends, the conversation goes on
        try:
            tokens = llm.chat_tokens(turns)
            if len(tokens) >= llm.context:
                notice(_too_long(turns, len(tokens), llm.context))
                return None
            with llm.start(tokens, options) as answer:
                with contextlib.suppress(KeyboardInterrupt):
                    for event in watched(answer):
                        write_text(event.text, event.drafted_by if colour else None)
                click.echo()
        except PilotfishError as error:
            notice(f"error: {error}; /reset starts anew")
            return None
        stats, ended = answer.stats, answer.finish_reason or "stopped"
        short = f"{stats.tokens_per_s:.1f} tokens/s, {stats.tokens_per_pass:.2f} tokens per pass, {ended}"
        click.echo(_dim(stats_line(stats, ended) if show_draft else short), err=True)
        _warn_of_end(len(tokens) + stats.tokens, llm.context)
    return (answer.text or None) if answer is not None else None


def _too_long(turns: list[dict[str, str]], tokens: int, context: int) -> str:
    """Say that a message can't be answered, and how to go on."""
    if len(turns) == 1:
        return (
            f"error: the message has {tokens} tokens and the context holds {context}; "
            "shorten it, or start chat with a larger --context"
        )
    return (
        f"error: the conversation would have {tokens} tokens and the context holds {context}; the message is "
        "dropped: shorten it, or /reset starts anew"
    )


def _warn_of_end(used: int, context: int) -> None:
    """Say how much of the context is left, once there is not much of it."""
    if used >= context:
        notice(f"the context is full: {context} tokens; /reset starts anew, a larger --context holds more")
    elif used >= NEARLY_FULL * context:
        notice(
            f"{used} of {context} tokens of context are used, {context - used} are left; /reset starts anew"
        )


def _dim(text: str) -> str:
    return click.style(text, dim=True) if colours(sys.stderr) else text
