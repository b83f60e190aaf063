"""The fields of a request that say how its answer is made, alike for all endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pilotfish.errors import PromptTooLong, UsageError
from pilotfish.options import Options
from pilotfish.sampling import fresh_seed
from pilotfish.server.refusals import Refusal

if TYPE_CHECKING:
    from pilotfish.server.settings import Settings

T = TypeVar("T")

SEED_BITS = 53
"""Of a seed that the server draws: JSON numbers of more bits lose some in JavaScript."""

_SAME = {"repeat_penalty": "repetition_penalty"}


class Speculative(msgspec.Struct, forbid_unknown_fields=True):
    """`speculative` of a request: `n_max` is the most tokens of a draft, 0 is plain decoding."""

    n_max: int | None = None


class SamplingFields(msgspec.Struct, kw_only=True):
    """What endpoints have in common: OpenAI's names, and those that vLLM and llama.cpp added.

    None is what was not given; `options_of` has the defaults.
    """

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    logit_bias: dict[str, float] | None = None
    bad_words: list[str] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    speculative: Speculative | None = None
    n_max: int | None = msgspec.field(default=None, name="speculative.n_max")
    cache_salt: str | None = None

    @property
    def draft_limit(self) -> int | None:
        """Most tokens of a draft, None for as many as pay.

        Raises
        ------
        Refusal
            It is below 0, or given twice.
        """
        given = [] if self.speculative is None else [self.speculative.n_max]
        limits = {limit for limit in [*given, self.n_max] if limit is not None}
        if len(limits) > 1:
            raise Refusal.field("speculative.n_max", "speculative.n_max is given twice; give it once")
        for limit in limits:
            if limit < 0:
                raise Refusal.field("speculative.n_max", f"speculative.n_max is {limit}; it is at least 0")
            return min(limit, 1 << 16)
        return None


def options_of(
    fields: SamplingFields,
    settings: Settings,
    max_tokens: int,
    *,
    logprobs: bool = False,
    top_logprobs: int = 0,
    echo: bool = False,
    names: Mapping[str, str] | None = None,
) -> Options:
    """Return how an answer is made; a seed is drawn if none is given.

    `names` are what the request calls options that have another name in `Options`.

    Raises
    ------
    Refusal
        400, naming the field whose value makes no sense.
    """
    stops = [fields.stop] if isinstance(fields.stop, str) else fields.stop or []
    words = fields.bad_words or []
    _at_most("stop", len(stops), settings.most_stops, "stop strings")
    _at_most("bad_words", len(words), settings.most_bad_words, "bad words")
    _at_most("logit_bias", len(fields.logit_bias or {}), settings.most_biases, "biases")
    for name, texts in (("stop", stops), ("bad_words", words)):
        _at_most(name, max(map(len, texts), default=0), settings.most_letters, "characters of a text")
    n = 1 if fields.n is None else fields.n
    _at_most("n", n, min(settings.most_choices, settings.most_running), "answers")
    if fields.cache_salt is not None and not 0 < len(fields.cache_salt) <= 256:
        raise Refusal.field("cache_salt", "cache_salt has no characters, or more than 256; give some")
    repeat = fields.repeat_penalty if fields.repetition_penalty is None else fields.repetition_penalty
    if fields.repeat_penalty not in {None, repeat}:
        raise Refusal.field(
            "repeat_penalty", "repeat_penalty and repetition_penalty differ; give one of them"
        )
    top_k = 0 if fields.top_k == -1 else fields.top_k  # vLLM's way to keep all
    seed = fresh_seed() >> (64 - SEED_BITS) if fields.seed is None else fields.seed
    given = {
        "temperature": 1.0 if fields.temperature is None else fields.temperature,
        "top_p": fields.top_p,
        "top_k": top_k,
        "min_p": fields.min_p,
        "presence_penalty": fields.presence_penalty,
        "frequency_penalty": fields.frequency_penalty,
        "repeat_penalty": repeat,
        "repeat_last_n": fields.repeat_last_n,
        "min_tokens": fields.min_tokens,
        "ignore_eos": fields.ignore_eos,
    }
    return naming(
        lambda: Options(
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
            max_tokens=max_tokens,
            seed=seed,
            stop=tuple(stops),
            n=n,
            logit_bias=_biases(fields.logit_bias),
            bad_words=tuple(words),
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            echo=echo,
        ),
        {**({} if fields.repetition_penalty is None else _SAME), **(names or {})},
    )


def naming(make: Callable[[], T], names: Mapping[str, str] | None = None) -> T:
    """Return what is made; if an option makes no sense, the refusal has the field that its message names."""
    try:
        return make()
    except PromptTooLong:  # no option's fault
        raise
    except UsageError as error:
        refusal = Refusal.of(error)
        found = re.match(r"(?:a |an id of )?(\w+)", error.message)
        word = {"stop": "stop", "bad": "bad_words"}.get(found[1], found[1]) if found else None
        if word in _NAMES:
            refusal.named((names or {}).get(str(word), str(word)))
        raise refusal from None


_NAMES = {field.name for field in msgspec.structs.fields(SamplingFields)} | {
    "max_tokens",
    "logprobs",
    "top_logprobs",
    "echo",
}


def _at_most(param: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise Refusal.field(param, f"{count} {what} are wanted; at most {most} are allowed")


def _biases(given: dict[str, float] | None) -> dict[int, float]:
    biases: dict[int, float] = {}
    for token, bias in (given or {}).items():
        if not re.fullmatch(r"[0-9]{1,10}", token):
            raise Refusal.field("logit_bias", f"logit_bias has the id {token[:80]!r}; ids are whole numbers")
        biases[int(token)] = bias
    return biases
