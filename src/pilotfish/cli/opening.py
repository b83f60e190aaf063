"""Loading a model for a command, and saying what takes long."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from pilotfish.cli.failures import notice
from pilotfish.errors import HubError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pilotfish.cli.common import ModelOptions
    from pilotfish.drafting import Drafting, Wish
    from pilotfish.engines.base import Reserve
    from pilotfish.llm import LLM
    from pilotfish.model import TextModel
    from pilotfish.options import Options


N = TypeVar("N", int, float)


def open_llm(models: ModelOptions) -> LLM:
    """Load target, draft model and corpus as the options say, with a bar on a terminal."""
    from pilotfish.llm import load

    with loading_bar() as progress:
        return load(
            named(models.model),
            list(models.draft) or "auto",
            models.context,
            models.threads,
            draft_corpus=models.draft_corpus,
            draft_slim=models.draft_slim,
            offline=models.offline,
            notice=notice,
            progress=progress,
        )


def open_served(models: ModelOptions, reserves: tuple[Reserve, Reserve]) -> LLM:
    """Load as `open_llm`, where there is memory for what a server reserves for target and draft model."""
    from pilotfish.drafting import Wish
    from pilotfish.llm import LLM

    target, [drafting] = _load(models, [Wish.read(list(models.draft) or "auto")], reserves)
    llm = LLM(target, drafting)
    llm.remember()
    return llm


@contextlib.contextmanager
def open_models(models: ModelOptions, wishes: Sequence[Wish]) -> Iterator[tuple[TextModel, list[Drafting]]]:
    """Load a target and what drafts for it by each wish, with a bar on a terminal; free them at the end."""
    target, draftings = _load(models, wishes)
    try:
        yield target, draftings
    finally:
        for owned in {id(m): m for m in (target, *(d.model for d in draftings if d.model))}.values():
            owned.dispose()


def _load(
    models: ModelOptions, wishes: Sequence[Wish], reserves: tuple[Reserve, Reserve] | None = None
) -> tuple[TextModel, list[Drafting]]:
    from pilotfish.loading import load_models

    with loading_bar() as progress:
        return load_models(
            named(models.model),
            wishes,
            models.context,
            models.threads,
            draft_corpus=models.draft_corpus,
            draft_slim=models.draft_slim,
            offline=models.offline,
            notice=notice,
            progress=progress,
            reserves=reserves,
        )


def check_limit(limit: int | None) -> None:
    """Raise UsageError for a limit below 1; None is none."""
    if limit is not None:
        positive("limit", limit)


def named(model: str | None) -> str:
    """Return the model that is named, else the default one.

    Raises
    ------
    HubError
        None is named, and the default is not in the cache; says what to pull.
    """
    if model is not None:
        return model
    from pilotfish.hub import DEFAULT_MODEL, REGISTRY, cached_path

    if cached_path(DEFAULT_MODEL) is None:
        pair = " ".join(filter(None, (DEFAULT_MODEL, REGISTRY[DEFAULT_MODEL].draft)))
        raise HubError(
            f"no model is named, and the default, {DEFAULT_MODEL}, is not in the cache",
            f"type: pilotfish pull {pair}; or name one with -m",
        )
    return DEFAULT_MODEL


def read_options(
    draft_length: str,
    stop: Sequence[str] = (),
    logit_bias: Sequence[str] = (),
    bad_words: Sequence[str] = (),
    **options: float | None,
) -> Options:
    """Check the options of an answer; done before anything is loaded."""
    from pilotfish.options import Options

    length: Literal["auto"] | int = "auto"
    if draft_length != "auto":
        try:
            length = int(draft_length)
        except ValueError:
            raise UsageError(f"draft_length is {draft_length!r}", "it is auto or a whole number") from None
    return Options(
        stop=tuple(stop),
        draft_length=length,
        logit_bias=_read_biases(logit_bias),
        bad_words=tuple(bad_words),
        **options,  # type: ignore[arg-type]
    )


def _read_biases(texts: Sequence[str]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for text in texts:
        token, _, bias = text.partition(":")
        try:
            read = int(token), float(bias)
        except ValueError:
            raise UsageError(f"logit_bias is {text!r}", "it is ID:BIAS, such as 1234:-5") from None
        if read[0] in biases:
            raise UsageError(f"logit_bias names the id {read[0]} twice", "give each id once")
        biases[read[0]] = read[1]
    return biases


@contextlib.contextmanager
def loading_bar(doing: str = "loading") -> Iterator[Callable[[str, float], None] | None]:
    """Give a function that takes what is loaded, and the share done, 0..1; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, object] = {}

    def show(label: str, share: float) -> None:
        if label not in tasks:
            tasks[label] = bar.add_task(f"{doing} {label}", total=1.0)
        bar.update(tasks[label], completed=share)  # type: ignore[arg-type]

    with bar:
        yield show


def read_prompt(prompt: str | None, file: str | None) -> str:
    """Return the prompt: the argument, or the text of a file or, for `-`, of standard input.

    One newline at the end of a text is not part of it.

    Raises
    ------
    UsageError
        None or two of them, an unreadable file, or bytes that are not UTF-8.
    """
    if (prompt is None) == (file is None):
        many = "two prompts are given" if file is not None else "no prompt is given"
        raise UsageError(many, "give PROMPT, - for standard input, or -f FILE")
    source = "standard input" if file is None else file
    try:
        if file is not None:
            with click.open_file(file, "rb") as stream:
                data = stream.read()
        elif prompt == "-":
            data = sys.stdin.buffer.read()
        else:
            return str(prompt)
        return str(data.decode("utf-8")).removesuffix("\n")
    except OSError as error:
        raise UsageError(f"can't read {source}: {error.strerror}", "check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8: {error.reason} at byte {error.start}", "convert it"
        ) from error


def read_list(name: str, text: str, kind: Callable[[str], N]) -> tuple[N, ...]:
    """Return the numbers of a comma-separated list, each once.

    Raises
    ------
    UsageError
        An empty list, or an item that is no such number.
    """
    items = []
    for item in text.split(","):
        try:
            items.append(kind(item.strip()))
        except ValueError:
            raise UsageError(f"{name} has {item.strip()!r}", "it is a list such as 1,3,8") from None
    return tuple(dict.fromkeys(items))


def positive(name: str, value: int) -> None:
    """Raise UsageError unless the value is at least 1."""
    if value < 1:
        raise UsageError(f"{name} is {value}", "it is a whole number, at least 1")
