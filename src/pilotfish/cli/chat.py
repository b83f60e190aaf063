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
    from pilotfish.llm import LLM
    from pilotfish.options import Options

HELP = "Type a message. /reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


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
        if message == "/reset":
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
    """Return the next message, None at the end of the input; Ctrl-C drops the line."""
    while True:
        try:
            return input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            if sys.stdin.isatty():
                click.echo(err=True)
            return None
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            click.echo(_dim("\nCtrl-D or /exit leaves"), err=True)


def _answer(llm: LLM, turns: list[dict[str, str]], options: Options, *, show_draft: bool) -> str | None:
    """Stream an answer; return what was said before its end or Ctrl-C, None for nothing or after an error."""
    colour = show_draft and colours(sys.stdout)
    try:
        with llm.start(llm.chat_tokens(turns), options) as answer:
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
    return answer.text or None


def _dim(text: str) -> str:
    return click.style(text, dim=True) if colours(sys.stderr) else text
