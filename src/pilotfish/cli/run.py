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
    from collections.abc import Iterable

    from pilotfish.answer import Answer, Event, Result
    from pilotfish.llm import LLM
    from pilotfish.options import Options


@click.command("run", short_help="Answer one prompt.")
@click.argument("prompt", required=False)
@common.option("-f", "--file", metavar="FILE", envvar=None, help="Read the prompt from FILE.")
@common.model_options
@common.sampling_options()
@common.option("--ignore-eos", is_flag=True, help="Go on behind end tokens, up to --max-tokens.")
@common.option("-n", "--n", type=int, default=1, metavar="N", help="Make N answers, each with its own noise.")
@common.LOGPROBS
@common.option("--echo", is_flag=True, help="Begin the answer with the prompt.")
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
    if options.logprobs and not as_json:
        raise UsageError("logprobs is set, but the answer is printed as text", "give --json too")
    with open_llm(models) as llm:
        answer = ask(llm, text, options, raw=raw)
        if as_json:
            events = list(watched(answer))
            print_json(_report(llm, answer, events, raw=raw, options=options))
        else:
            _write(watched(answer), options.n, colour=show_draft and colours(sys.stdout))
        if show_draft:
            notice(f"{stats_line(answer.stats, str(answer.finish_reason))}, seed {answer.seed}")


def ask(llm: LLM, text: str, options: Options, *, raw: bool) -> Answer:
    """Start an answer to a text, through the chat template if the model has one and `raw` is not set."""
    if raw or not llm.has_template:
        return llm.start(llm.encode(text), options)
    return llm.start(llm.chat_tokens([{"role": "user", "content": text}]), options)


def _write(events: Iterable[Event], count: int, *, colour: bool) -> None:
    """Write an answer as it comes, or several one after another when all are there."""
    if count > 1:
        events = sorted(events, key=lambda event: event.choice)
    choice = 0
    for event in events:
        if event.choice > choice:
            choice = event.choice
            click.echo()
        write_text(event.text, event.drafted_by if colour else None)
    click.echo()


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
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "repeat_penalty": options.repeat_penalty,
        "repeat_last_n": options.repeat_last_n,
        "logit_bias": dict(options.logit_bias),
        "bad_words": list(options.banned_strings),
        "min_tokens": options.min_tokens,
        "ignore_eos": options.ignore_eos,
        "n": options.n,
        "top_logprobs": options.top_logprobs if options.logprobs else None,
        "echo": options.echo,
        "stop": list(options.stops),
        "draft_length": options.draft_length,
        "context": llm.context,
        "raw": raw,
    }
    result = answer.result()
    choices = [
        _said(one, [event for event in events if event.choice == i]) for i, one in enumerate(result.choices)
    ]
    return {
        **envelope("run", llm.target, llm.drafts, settings),
        **choices[0],
        "seed": result.seed,
        **({"choices": choices} if options.n > 1 else {}),
    }


def _said(result: Result, events: list[Event]) -> dict[str, object]:
    report: dict[str, object] = {
        "text": result.text,
        "tokens": result.tokens,
        "drafted_by": [event.drafted_by for event in events],
        "finish_reason": result.finish_reason,
        "stats": result.stats.as_dict(),
    }
    if result.logprobs is not None:
        report["logprobs"] = result.logprobs
        report["top_logprobs"] = result.top_logprobs
    return report
