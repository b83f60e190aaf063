"""`pilotfish verify`: plain against speculative, token by token and bit by bit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pilotfish.cli import common
from pilotfish.cli.opening import check_limit, open_models, read_list
from pilotfish.cli.output import console, print_json
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pilotfish.bench.prompts import Prompt
    from pilotfish.bench.verify import Report, Settings
    from pilotfish.drafting import Drafting, Wish
    from pilotfish.model import Model, TextModel

T = TypeVar("T")
FAILED = 1


@click.command("verify", short_help="Check that drafting changes nothing.")
@common.model_options
@common.option(
    "--prompts", metavar="FILE", help="One JSON object a line, with turns or prompt.  [default: a few]"
)
@common.prompt_options(max_tokens=64, seed="Of the sampled answers.")
@common.option("--temperatures", default="0,0.8", metavar="T,...", help="0 is greedy.")
@common.option("--draft-lengths", default="1,3,8", metavar="N,...", help="Tokens a draft.")
@common.JSON
def command(
    *,
    models: common.ModelOptions,
    prompts: str | None,
    limit: int | None,
    as_json: bool,
    **values: Any,  # noqa: ANN401 - checked there
) -> int:
    """Compare plain with speculative answers: every token, and the bits of every row of logits.

    Each -d is checked by itself. Exit code 1 if anything differs, or if nothing was drafted, accepted and
    compared.
    """
    from pilotfish.bench.prompts import BUILT_IN, read_prompts, take

    settings = _settings(**values)
    wishes = _wishes(models)
    check_limit(limit)
    chosen = take(BUILT_IN if prompts is None else read_prompts(Path(prompts)), limit)
    with open_models(models, wishes) as (target, draftings):
        report = _check(target, draftings, settings, chosen)
        if as_json:
            given = {"prompts": prompts, "limit": limit}
            given |= {"draft_corpus": models.draft_corpus, "draft_slim": models.draft_slim}
            print_json(_as_json(report, target, draftings, settings, given))
    _explain(report, stderr=as_json)
    return FAILED if report.failure else 0


def _wishes(models: common.ModelOptions) -> list[Wish]:
    """Return what to check, each by itself."""
    from pilotfish.drafting import OFF, Wish

    if OFF in models.draft:
        raise UsageError("draft is off, so there is nothing to verify", "name suffix, auto or a model")
    wishes = [Wish.read(name) for name in dict.fromkeys(models.draft or ("auto",))]
    # With a draft length, a model that is named drafts alone.
    if models.draft_corpus is not None and not any(wish.auto or wish.suffix for wish in wishes):
        raise UsageError("draft_corpus is given, but nothing looks things up", "add -d suffix or -d auto")
    return wishes


def _settings(
    *, raw: bool, turns: str, max_tokens: int, temperatures: str, draft_lengths: str, seed: int
) -> Settings:
    from pilotfish.bench.verify import Settings
    from pilotfish.options import Options

    lengths = read_list("draft_lengths", draft_lengths, int)
    degrees = read_list("temperatures", temperatures, float)
    for length in lengths:
        if length < 1:
            raise UsageError(f"draft_lengths has {length}", "a draft to verify has at least 1 token")
        Options(draft_length=length)
    for temperature in degrees:
        Options(max_tokens=max_tokens, temperature=temperature, seed=seed)
    return Settings(max_tokens, degrees, lengths, seed, turns, raw)  # type: ignore[arg-type]


def _check(
    target: TextModel, draftings: Sequence[Drafting], settings: Settings, prompts: Sequence[Prompt]
) -> Report:
    from pilotfish.bench.verify import Verifier

    verifier = Verifier(target, draftings, settings)
    for prompt in _watched(prompts):
        verifier.check(prompt)
    return verifier.report


def _watched(items: Sequence[T]) -> Iterator[T]:
    """Yield the items, with a bar on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    tracked: Iterable[T] = track(items, "verifying", console=Console(stderr=True), transient=True)
    yield from tracked


def _as_json(
    report: Report,
    target: TextModel,
    draftings: Sequence[Drafting],
    settings: Settings,
    given: Mapping[str, object],
) -> dict[str, object]:
    from dataclasses import asdict

    from pilotfish.bench.envelope import envelope
    from pilotfish.drafting import CORPUS

    drafts: dict[str, Model | str] = {d.label: d.label for d in draftings}
    if any(d.corpus is not None for d in draftings):
        drafts[CORPUS] = CORPUS
    drafts |= {d.model.name: d.model for d in draftings if d.model is not None}
    used = asdict(settings) | dict(given) | {"context": target.engine.context}
    return envelope("verify", target, list(drafts.values()), used) | report.as_dict()


def _explain(report: Report, *, stderr: bool) -> None:
    """Print a table, and what differs first."""
    from rich.table import Table

    out = console(stderr=stderr)
    table = Table(box=None, pad_edge=False)
    table.add_column("drafter")
    heads = (
        "length",
        "temperature",
        "prompts",
        "tokens",
        "different",
        "rows",
        "different",
        "drafted",
        "accepted",
    )
    for head in heads:
        table.add_column(head, justify="right")
    for run in report.runs:
        table.add_row(
            run.drafter,
            *map(
                str,
                (run.draft_length, run.temperature, run.prompts, run.tokens_compared, run.tokens_different),
            ),
            *map(str, (run.rows_compared, run.rows_different, run.drafted)),
            f"{run.accepted} ({run.acceptance:.0%})",
        )
    out.print(table)
    if report.skipped:
        out.print(f"{len(report.skipped)} prompts do not fit the context and were skipped: {report.skipped}")
    first = report.first_difference
    if first is not None:
        out.print(
            f"first difference: prompt {first.prompt_id}, run {first.run + 1}, position {first.position}: "
            f"plain {first.plain}, speculative {first.speculative}, margin {first.margin:.3g}, "
            f"logits differ by up to {first.max_abs_diff:.3g}"
        )
    out.print(f"not passed: {report.failure}" if report.failure else "passed: 0 tokens and 0 row bits differ")
