"""Options that several commands share."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., object]")


def option(*names: str, **settings: Any) -> Callable[[F], F]:  # noqa: ANN401 - passed on to click
    """Return a click option whose default comes from PILOTFISH_NAME, and is shown in the help."""
    long = next(name for name in names if name.startswith("--"))
    settings.setdefault(
        "envvar", "PILOTFISH_" + long.split("/")[0].removeprefix("--").replace("-", "_").upper()
    )
    return click.option(*names, **{"show_default": True, **settings})


def _all_of(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


MODEL = option(
    "-m",
    "--model",
    metavar="MODEL",
    help="Path, or a name of: pilotfish models.  [default: the default pair]",
)
THREADS = option(
    "--threads", type=int, metavar="N", help="Threads of a pass.  [default: the machine's cores]"
)
CONTEXT = option(
    "--context",
    type=int,
    metavar="N",
    help="Most tokens of prompt and answer.  [default: the model's, at most 8192]",
)
OFFLINE = option("--offline", is_flag=True, help="Use no network.")
SHOW_DRAFT = click.option(
    "--show-draft", is_flag=True, help="Colour accepted tokens by drafter; statistics on stderr."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one line of JSON on stdout.")
RAW = option("--raw", is_flag=True, help="Give the prompt as it is, without the chat template.")

draft = option(
    "-d",
    "--draft",
    "--draft-model",
    "-md",
    "draft",
    multiple=True,
    metavar="DRAFT",
    help="auto, off, suffix or a model; repeatable.  [default: auto]",
)
DRAFT_CORPUS = option(
    "--draft-corpus",
    metavar="DIR",
    help="Draft from the text or code in DIR too; it is indexed once, and again when it has changed.",
)
DRAFT_SLIM = option(
    "--draft-slim",
    type=click.Choice(["auto", "off"]),
    default="auto",
    help="Make a draft model smaller where that pays, or leave it as filed.",
)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What is to be loaded, as the options of the same names say."""

    model: str | None
    draft: tuple[str, ...]
    threads: int | None
    context: int | None
    offline: bool
    draft_corpus: str | None
    draft_slim: str


def model_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options of what is to be loaded; it gets them together, as `models`."""

    @functools.wraps(function)
    def gathered(**values: Any) -> object:  # noqa: ANN401 - passed on
        models = ModelOptions(**{each.name: values.pop(each.name) for each in fields(ModelOptions)})
        return function(models=models, **values)

    return _all_of(MODEL, draft, THREADS, CONTEXT, OFFLINE, DRAFT_CORPUS, DRAFT_SLIM)(gathered)


def prompt_options(*, max_tokens: int, seed: str) -> Callable[[F], F]:
    """Return the options of commands that ask many prompts; `seed` says what theirs is for."""
    return _all_of(
        option("--limit", type=int, metavar="N", help="Take N prompts, round-robin over categories."),
        option("--turns", type=click.Choice(["first", "all"]), default="first", help="Turns of each prompt."),
        option("--max-tokens", type=int, default=max_tokens, metavar="N", help="Most tokens of an answer."),
        option("--seed", type=int, default=0, metavar="N", help=seed),
        RAW,
    )


PENALTIES = _all_of(
    option(
        "--presence-penalty",
        type=float,
        default=0.0,
        metavar="X",
        help="Subtract from logits of the answer's tokens.",
    ),
    option(
        "--frequency-penalty",
        type=float,
        default=0.0,
        metavar="X",
        help="The same for each time they stand there.",
    ),
    option(
        "--repeat-penalty",
        type=float,
        default=1.0,
        metavar="X",
        help="Divide logits of tokens so far; 1: none.",
    ),
    option(
        "--repeat-last-n",
        type=int,
        default=-1,
        metavar="N",
        help="Tokens that --repeat-penalty sees; -1: all.",
    ),
    option(
        "--logit-bias",
        multiple=True,
        envvar=None,
        metavar="ID:BIAS",
        help="Add BIAS, -100 to 100, to the logit of a token; repeatable.",
    ),
    option(
        "--bad-word",
        "bad_words",
        multiple=True,
        envvar=None,
        metavar="TEXT",
        help="Never say TEXT; repeatable.",
    ),
    option("--min-tokens", type=int, default=0, metavar="N", help="End no answer before N tokens."),
)


def sampling_options(max_tokens: int = 256) -> Callable[[F], F]:
    """Return the options of an answer, with the command's own default length."""
    return _all_of(
        option("--max-tokens", type=int, default=max_tokens, metavar="N", help="Most tokens of the answer."),
        option("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy."),
        option("--top-k", type=int, default=0, metavar="K", help="Choose among the K likeliest; 0: all."),
        option(
            "--top-p", type=float, default=1.0, metavar="P", help="Choose among the likeliest that reach P."
        ),
        option(
            "--min-p",
            type=float,
            default=0.0,
            metavar="P",
            help="Drop what is P times less likely than the best.",
        ),
        option("--seed", type=int, metavar="N", help="Same seed, same text.  [default: random]"),
        option(
            "--stop",
            multiple=True,
            envvar=None,
            metavar="TEXT",
            help="End the answer before TEXT; repeatable.",
        ),
        option("--draft-length", default="auto", metavar="N", help="auto, or exactly N tokens a draft."),
        PENALTIES,
    )


LOGPROBS = _all_of(
    option("--logprobs", is_flag=True, help="Log-probabilities of the tokens, with --json."),
    option("--top-logprobs", type=int, default=0, metavar="N", help="Also of the N likeliest, at most 20."),
)
