"""Load on a server that speaks OpenAI's API: several clients at once, some of whom hang up.

What is asked is drawn from a seed, so a load can be repeated, and each request has a seed of its own: what
is answered under load can be compared with what the same request is answered alone.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotfish.bench.http_stream import Address, HttpError, request

LEAVES = 10
"""One client in so many hangs up before its answer is complete."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Attributes
    ----------
    prompt
        What the user says, or the text to go on with.
    chat
        Whether it goes to `/v1/chat/completions`, else to `/v1/completions`.
    stream
        Whether the answer is streamed.
    """

    prompt: str
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    chat: bool = True
    stream: bool = True

    @property
    def path(self) -> str:
        """Where it goes."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, model: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is sent; `extra` holds fields that not every server knows."""
        said = (
            {"messages": [{"role": "user", "content": self.prompt}]} if self.chat else {"prompt": self.prompt}
        )
        streamed = {"stream": True, "stream_options": {"include_usage": True}} if self.stream else {}
        return {
            "model": model,
            **said,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            **streamed,
            **extra,
        }


@dataclass(slots=True)
class Heard:
    """What came of a request.

    Attributes
    ----------
    text, finish_reason, tokens
        The answer, why it ended, and how many tokens it has according to `usage`.
    timings
        What else the server said of it.
    first_s, whole_s
        Seconds from asking to the first text, or the end without any, of a stream; and to the end.
    left
        Whether the client hung up.
    error
        What went wrong, empty if nothing did.
    """

    text: str = ""
    finish_reason: str | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    timings: dict[str, Any] = field(default_factory=dict)
    first_s: float | None = None
    whole_s: float = 0.0
    left: bool = False
    error: str = ""

    @property
    def answer(self) -> tuple[str, str | None, int]:
        """What must be the same whenever the same is asked."""
        return self.text, self.finish_reason, self.tokens


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and how it is asked.

    Attributes
    ----------
    model
        Its name there.
    extra
        Fields that all requests get.
    """

    address: Address
    model: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, **extra: object) -> Target:
        """Return the same with more fields."""
        return Target(self.address, self.model, {**self.extra, **extra})

    async def ask(self, ask: Ask, *, leave_after: int | None = None) -> Heard:
        """Ask, and listen to the end; or hang up after so many events, without one if that is 0.

        What goes wrong is told in what is returned.
        """
        heard = Heard()
        began = time.perf_counter()
        try:
            async with request(self.address, ask.path, ask.body(self.model, self.extra)) as response:
                if leave_after == 0:
                    heard.left = True
                    return heard
                await response.must_be_200()
                if ask.stream:
                    await _listen(heard, response.events(), began, leave_after)
                else:
                    _take(heard, json.loads(await response.read()))
        except (HttpError, ValueError, KeyError, TypeError) as error:
            heard.error = f"{type(error).__name__}: {error}"
        finally:
            heard.whole_s = time.perf_counter() - began
        return heard


async def _listen(heard: Heard, events: AsyncIterator[str], began: float, leave_after: int | None) -> None:
    count = 0
    async for data in events:
        _take(heard, json.loads(data))
        if heard.first_s is None and (heard.text or heard.finish_reason):
            heard.first_s = time.perf_counter() - began
        count += 1
        if count == leave_after:
            heard.left = True
            return


def _take(heard: Heard, said: Mapping[str, Any]) -> None:
    """Take over what an event, or a whole answer, says.

    Raises
    ------
    HttpError
        It says that something went wrong.
    """
    if "error" in said:
        raise HttpError(f"the answer is an error: {json.dumps(said['error'])[:500]}")
    for choice in said["choices"]:
        message = choice.get("delta") or choice.get("message") or {}
        heard.text += (choice.get("text") or "") + (message.get("content") or "")
        heard.finish_reason = choice.get("finish_reason") or heard.finish_reason
    if usage := said.get("usage"):
        heard.tokens = usage["completion_tokens"]
        heard.prompt_tokens = usage["prompt_tokens"]
    if timings := said.get("timings"):
        heard.timings = timings


def draw(texts: Sequence[str], count: int, *, seed: int, most_tokens: int) -> list[Ask]:
    """Return so many different requests: texts, limits, temperatures 0 and 0.8, endpoints, streams or not."""
    chance = random.Random(seed)  # noqa: S311 - a load, no secret
    return [
        Ask(
            prompt=texts[i % len(texts)],
            max_tokens=chance.randint(1, most_tokens),
            temperature=(0.0, 0.8)[i % 2],
            seed=chance.randrange(1 << 31),
            chat=chance.random() < 0.7,
            stream=chance.random() < 0.8,
        )
        for i in range(count)
    ]


@dataclass(slots=True)
class Report:
    """What came of a load.

    Attributes
    ----------
    completed, left
        Answers that were heard to their end, and clients that hung up.
    errors, different
        What went wrong, and which answers are not those that the same request gets alone.
    tokens
        Of the completed answers.
    seconds
        From the first request to the end of the last.
    first_s
        Times to the first text, of streamed answers.
    """

    completed: int = 0
    left: int = 0
    tokens: int = 0
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        """Of all clients together, prompts included in the time."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def count(self, ask: Ask, heard: Heard, alone: Heard | None) -> None:
        """Count one request; `alone` is what it was answered alone, if that is known."""
        if heard.error:
            self.errors.append(heard.error)
        elif heard.left:
            self.left += 1
        else:
            self.completed += 1
            self.tokens += heard.tokens
            if heard.first_s is not None:
                self.first_s.append(heard.first_s)
            if alone is not None and heard.answer != alone.answer:
                self.different.append(f"{ask} was answered {heard.answer}, and alone {alone.answer}")


async def alone(target: Target, asks: Sequence[Ask]) -> list[Heard]:
    """Return what each request is answered when nothing else is asked: plainly, and with nothing kept.

    Raises
    ------
    HttpError
        One fails.
    """
    answers = []
    for i, ask in enumerate(asks):
        plain = target(speculative={"n_max": 0}, cache_salt=f"alone {i}")
        heard = await plain.ask(ask)
        if heard.error:
            raise HttpError(f"{ask} fails alone: {heard.error}")
        answers.append(heard)
    return answers


async def load(
    target: Target,
    asks: Sequence[Ask],
    answers: Sequence[Heard] | None = None,
    *,
    clients: int,
    goes_on: Callable[[int], bool],
    leaves: int | None = LEAVES,
) -> Report:
    """Let clients ask, each one thing after the other, as long as `goes_on`, and return what came of it.

    Parameters
    ----------
    answers
        What each request is answered alone; None compares nothing.
    goes_on
        Told the number of the next request, says whether it is still to be asked.
    leaves
        Of so many requests one is hung up on, after 0, 1, 2 … 6 events; None lets all be answered.
    """
    report = Report()
    numbers = _numbers(goes_on)

    async def client() -> None:
        for i in numbers:
            which = _order(i, len(asks))
            ask = asks[which]
            after = None
            if leaves is not None and i % leaves == leaves - 1:
                after = i // leaves % 7 if ask.stream else 0
            heard = await target.ask(ask, leave_after=after)
            report.count(ask, heard, None if answers is None else answers[which])

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    report.seconds = time.perf_counter() - began
    return report


def _numbers(goes_on: Callable[[int], bool]) -> Iterator[int]:
    """Yield 0, 1, 2 … to whoever asks first."""
    i = 0
    while goes_on(i):
        yield i
        i += 1


def _order(i: int, count: int) -> int:
    """Return which request the i-th one is: all in turn, in another order each time round."""
    order = list(range(count))
    random.Random(i // count).shuffle(order)  # noqa: S311 - a load, no secret
    return order[i % count]


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value that so much of the others, 0..1, do not exceed; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
