"""Large bodies hold up nobody: what is slow to decode is refused, the rest is read in a thread."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.server import reading
from pilotfish.server.bulk import (
    LARGE,
    MOST_NAMED,
    MOST_POINTS,
    MOST_STRETCHES,
    MOST_VALUES,
    STRETCH,
    check_bulk,
    outside_strings,
)
from pilotfish.server.refusals import Refusal
from pilotfish.server.settings import Settings
from server.asgi import CHAT, COMPLETIONS, Call, Server, ask, running, server, settled
from tiny import tiny_model

texts = st.text(st.sampled_from('a"\\[]{},:\n\u2028é😀'), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def marks(value: Any) -> dict[str, int]:
    """Count lists, objects, colons, commas, points and exponents of a value's JSON, by walking through it."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    found = {
        "[": int(isinstance(value, list)),
        "{": int(isinstance(value, dict)),
        ":": len(value) if isinstance(value, dict) else 0,
        ",": max(0, len(inner) - 1),
        ".": json.dumps(value).count(".") if isinstance(value, float) else 0,
        "e": json.dumps(value).count("e") if isinstance(value, bool | float) else 0,
    }
    for one in inner:
        for mark, count in marks(one).items():
            found[mark] += count
    return found


@given(values, st.booleans(), st.integers(1, 9))
def test_what_is_counted_of_a_body_is_what_stands_outside_its_strings(
    value: Any, escaped: bool, piece: int
) -> None:
    """Whatever is in them: quotes, backslashes, brackets; and wherever it is cut into pieces."""
    body = json.dumps(value, ensure_ascii=escaped).encode()
    outside = b"".join(outside_strings(body, piece))
    assert {mark: outside.count(mark.encode()) for mark in "[{:,.e"} == marks(value)


@pytest.mark.parametrize(
    ("item", "most"),
    [
        (b"[]", MOST_NAMED - 3),
        (b"{}", MOST_NAMED - 3),
        (b'{"":[]}', MOST_NAMED // 3 - 1),
        (b"1", MOST_VALUES - 1),
    ],
)
def test_what_would_take_long_to_decode_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, item: bytes, most: int
) -> None:
    """A body that has just as much as is allowed is read."""
    made = server({})

    def body(count: int) -> bytes:
        return b'{"prompt":[' + b",".join([item] * count) + b"]}"

    check_bulk(body(most))
    with pytest.raises(Refusal):
        check_bulk(body(most + 3))
    monkeypatch.setattr(reading, "read_json", None)
    call = ask(made, COMPLETIONS, body(most + 3))
    assert (call.status, call.error["code"]) == (413, "request_too_large")


NUMBERS = [
    (b"1e304", MOST_POINTS),
    (b"1E304", MOST_POINTS),
    (b"0.5", MOST_POINTS),
    (b"2.470328229206232721e-324", MOST_POINTS),
    (b"9" * 4000, MOST_STRETCHES * STRETCH // 4000),
    (b"0." + b"9" * STRETCH, MOST_STRETCHES),
]


@pytest.mark.parametrize("spaces", [0, LARGE])
@pytest.mark.parametrize(("number", "most"), NUMBERS)
def test_numbers_that_take_long_to_decode_are_few(
    monkeypatch: pytest.MonkeyPatch, number: bytes, most: int, spaces: int
) -> None:
    """In small bodies too, since some take 15 microseconds; a body that has as many as may be is read."""
    made = server({})

    def body(count: int) -> bytes:
        return b'{"prompt":[' + b",".join([number] * count) + b"]" + b" " * spaces + b"}"

    check_bulk(body(most))
    assert ask(made, COMPLETIONS, body(most)).status == 400
    monkeypatch.setattr(reading, "read_json", None)
    call = ask(made, COMPLETIONS, body(most + 1))
    assert (call.status, call.error["code"]) == (413, "request_too_large")


def test_what_clients_send_has_few_numbers_that_take_long() -> None:
    """Biases with point and exponent, as many as may be; and true and false are no numbers."""
    biases = {str(token): f"{token % 9 + 1}.5e-{token % 300}" for token in range(Settings().most_biases)}
    body = json.dumps({"prompt": [True, False] * 9000, "temperature": 0.7, "logit_bias": biases}).encode()
    check_bulk(re.sub(rb'"(\d\.5e-\d+)"', rb"\1", body))


def test_ids_are_no_long_numbers() -> None:
    check_bulk(b"[" + b",".join([b"9" * (STRETCH - 1)] * 9000) + b"]")


def test_a_text_may_have_any_marks() -> None:
    text = f'[{{:,.eE"\\{"1" * STRETCH}' * (MOST_VALUES // 8)
    made = server(target=tiny_model(context=300))
    call = ask(made, CHAT, {"messages": [{"role": "user", "content": text}]})
    assert call.error["code"] == "context_length_exceeded"


def test_only_large_bodies_are_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are checked there too; of what is wrong the same is said."""
    where: list[str] = []
    read_json, read_fields = reading.read_json, reading.read_fields

    def noted(body: bytes) -> dict[str, object]:
        where.append(threading.current_thread().name)
        return read_json(body)

    def noted_too(given: Any, kind: Any) -> Any:
        where.append(threading.current_thread().name)
        return read_fields(given, kind)

    monkeypatch.setattr(reading, "read_json", noted)
    monkeypatch.setattr(reading, "read_fields", noted_too)
    made = server({})
    for size, thread in ((LARGE, "MainThread"), (LARGE + 1, "pilotfish text")):
        for field, param in (("user", None), ("foo", "foo"), ("temperature", "temperature")):
            where.clear()
            start = json.dumps({"prompt": "a", field: ""})[:-2].encode()
            call = ask(made, COMPLETIONS, start + b"a" * (size - len(start) - 2) + b'"}')
            assert [name[: len(thread)] for name in where] == [thread] * 2
            assert (call.status, call.json.get("error", {}).get("param")) == (400 if param else 200, param)


# How much may be held


SMALL = Settings(most_body_bytes=1000, most_running=1)
BODY = {"prompt": "abc", "max_tokens": 2, "user": "a" * 400}


def crowded(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server with room for two bodies."""
    monkeypatch.setattr("pilotfish.server.settings.MOST_BODIES", 1000)
    return server({}, settings=SMALL, run=False)


def test_bodies_beyond_the_room_for_all_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those inside go on; who is refused takes no room, and who is answered gives it back."""

    async def scenario() -> None:
        made = crowded(monkeypatch)
        inside = [made.post(COMPLETIONS, BODY) for _ in range(2)]
        await made.submitted(2)
        for _ in range(2):
            refused = await made.post(COMPLETIONS, BODY).end()
            assert (refused.status, refused.error["code"]) == (429, "queue_full")
            assert refused.response_headers["retry-after"] == "1"
            assert refused.read_bytes == len(json.dumps(BODY))
        little = made.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 2})
        await made.submitted(3)
        await made.finish(*inside, little)
        assert [call.status for call in (*inside, little)] == [200] * 3
        again = [made.post(COMPLETIONS, BODY) for _ in range(2)]
        await made.submitted(2)
        await made.finish(*again)
        assert [call.status for call in again] == [200] * 2

    running(scenario)


def test_whoever_leaves_or_is_refused_gives_the_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        made = crowded(monkeypatch)
        for body in (b"{" * 900, b'{"prompt":"' + b"a" * 5000 + b'"}'):
            assert (await made.post(COMPLETIONS, body).end()).status in {400, 413}
        for stream in (False, True):
            left = made.post(COMPLETIONS, {**BODY, "user": "a" * 800, "stream": stream})
            await made.submitted()
            left.leave()
            await left.end()
            await made.step()
        slow = Call(made.app, COMPLETIONS, b"a" * 900, stalls=True)
        await settled()
        assert (await made.post(COMPLETIONS, BODY).end()).status == 429
        slow.leave()
        await slow.end()
        inside = made.post(COMPLETIONS, BODY)
        await made.submitted()
        await made.finish(inside)
        assert inside.status == 200

    running(scenario)


def test_a_body_that_is_allowed_always_has_room_alone() -> None:
    assert Settings().most_bodies_bytes == 64 << 20
    assert Settings(most_body_bytes=100 << 20).most_bodies_bytes == 100 << 20
