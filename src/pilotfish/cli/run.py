"""`pilotfish run`: one prompt, one answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from pilotfish.cli import common
from pilotfish.cli.failures import notice
from pilotfish.cli.opening import open_llm, read_options, read_prompt
from pilotfish.cli.output import colours, print_json, stats_line, watched, write_text
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from pilotfish.answer import Answer, Event
    from pilotfish.llm import LLM
    from pilotfish.options import Options


@click.command("run", short_help="Answer one prompt.")
@click.argument("prompt", required=False)
@common.option("-f", "--file", metavar="FILE", envvar=None, help="Read the prompt from FILE.")
@common.model_options
@common.sampling_options()
@common.RAW
@common.SHOW_DRAFT
@common.JSON
def command(
    *,
    prompt: str | None,
    file: str | None,
    models: common.ModelOptions,
    raw: bool,
    show_draft: bool,
    as_json: bool,
    **sampling: object,
) -> None:
    """Answer PROMPT, or - for standard input.

    The text is streamed to standard output. The model's chat template is applied unless --raw is given or
    the model has none.
    """
    options = read_options(**sampling)  # type: ignore[arg-type]
    text = read_prompt(prompt, file)
    if not text:
        raise UsageError("the prompt is empty", "give at least one character")
    with open_llm(models) as llm:
        answer = ask(llm, text, options, raw=raw)
        if as_json:
            events = list(watched(answer))
            print_json(_report(llm, answer, events, raw=raw, options=options))
        else:
            colour = show_draft and colours(sys.stdout)
            for event in watched(answer):
                write_text(event.text, event.drafted_by if colour else None)
            click.echo()
        if show_draft:
            notice(f"{stats_line(answer.stats, str(answer.finish_reason))}, seed {answer.seed}")


def ask(llm: LLM, text: str, options: Options, *, raw: bool) -> Answer:
    """Start an answer to a text, through the chat template if the model has one and `raw` is not set."""
    if raw or not llm.has_template:
        return llm.start(llm.encode(text), options)
    return llm.start(llm.chat_tokens([{"role": "user", "content": text}]), options)


def _report(
    llm: LLM, answer: Answer, events: list[Event], *, raw: bool, options: Options
) -> dict[str, object]:
    from pilotfish.bench.envelope import envelope

    settings = {
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "stop": list(options.stops),
        "draft_length": options.draft_length,
        "context": llm.context,
        "raw": raw,
    }
    result = answer.result()
    return {
        **envelope("run", llm.target, llm.drafts, settings),
        "text": result.text,
        "tokens": result.tokens,
        "drafted_by": [event.drafted_by for event in events],
        "finish_reason": result.finish_reason,
        "seed": result.seed,
        "stats": result.stats.as_dict(),
    }
