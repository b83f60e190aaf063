"""Who may ask: keys, hosts, and pages of other origins."""

from __future__ import annotations

import pytest

from pilotfish.errors import UsageError
from pilotfish.server.settings import Settings
from server.asgi import CHAT, Call, Server, ask, look, server
from tiny import tiny_model

BODY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}


def keyed(**more: object) -> Server:
    return server({}, settings=Settings(api_keys=("first", "sécond", "voilà"), **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/nowhere", CHAT])
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer firs", "Bearer first2", "Basic first", "first"]
)
def test_without_one_of_the_keys_nothing_but_health_is_told(path: str, header: str | None) -> None:
    made = keyed()
    call = look(made, path, **({} if header is None else {"authorization": header}))
    assert (call.status, call.error["code"]) == (401, "invalid_api_key")
    assert call.response_headers["www-authenticate"] == "Bearer"
    assert "first" not in call.error["message"]
    assert look(made, "/health").status == 200


@pytest.mark.parametrize("header", ["Bearer first", "bearer  first ", "Bearer sécond", "Bearer voilà"])
def test_any_of_the_keys_will_do(header: str) -> None:
    assert ask(keyed(), CHAT, BODY, authorization=header).status == 200


HOSTS = [
    ("localhost", True),
    ("localhost:8000", True),
    ("LOCALHOST", True),
    ("127.0.0.1:8000", True),
    ("[::1]:8000", True),
    ("192.168.1.7", True),
    ("my-machine", True),
    ("app.localhost:80", True),
    ("host.docker.internal:8000", True),
    ("evil.example", False),
    ("evil.example:8000", False),
    ("127.0.0.1.evil.example", False),
    ("localhost.evil.example", False),
    ("internal.example", False),
]


def hosted(made: Server, host: str) -> Call:
    return look(made, "/v1/models", host=host)


@pytest.mark.parametrize(("host", "ours"), HOSTS)
def test_on_loopback_without_keys_a_request_for_a_foreign_host_is_refused(host: str, ours: bool) -> None:
    made = server({})
    call = hosted(made, host)
    assert call.status == (200 if ours else 403)
    if not ours:
        assert call.error["code"] == "host_not_allowed"


def test_hosts_are_not_looked_at_with_keys_on_other_addresses_or_if_they_are_allowed() -> None:
    other = "llm.example"
    assert hosted(server({}, settings=Settings(loopback=False)), other).status == 200
    assert hosted(server({}, settings=Settings(hosts=("LLM.example",))), other).status == 200
    call = look(keyed(), "/v1/models", host=other, authorization="Bearer first")
    assert call.status == 200


ORIGIN = "https://chat.example"
ASKS = {
    "origin": ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type",
}


def test_pages_of_other_origins_are_told_nothing_unless_their_origin_is_set() -> None:
    closed = server({})
    assert look(closed, CHAT, "OPTIONS", **ASKS).status == 405
    assert "access-control-allow-origin" not in ask(closed, CHAT, BODY, origin=ORIGIN).response_headers
    opened = keyed(cors=(ORIGIN,))
    asked = look(opened, CHAT, "OPTIONS", **ASKS)
    assert asked.status == 200
    assert asked.response_headers["access-control-allow-origin"] == ORIGIN
    call = ask(opened, CHAT, BODY, origin=ORIGIN, authorization="Bearer first")
    assert (call.status, call.response_headers["access-control-allow-origin"]) == (200, ORIGIN)
    other = ask(opened, CHAT, BODY, origin="https://evil.example", authorization="Bearer first")
    assert "access-control-allow-origin" not in other.response_headers
    assert look(keyed(cors=("*",)), CHAT, "OPTIONS", **ASKS).response_headers["access-control-allow-origin"]


def test_a_refusal_can_be_read_by_a_page_that_may_ask() -> None:
    call = ask(keyed(cors=(ORIGIN,)), CHAT, BODY, origin=ORIGIN)
    assert (call.status, call.response_headers["access-control-allow-origin"]) == (401, ORIGIN)


def test_what_is_kept_of_a_text_is_found_with_the_same_key_and_salt_only() -> None:
    """So the time to the first token tells nobody what others have asked."""
    made = server(target=tiny_model(), settings=Settings(api_keys=("first", "second")))
    body = {"messages": [{"role": "user", "content": "a long beginning " * 20}], "max_tokens": 1}

    def cached(key: str, salt: str | None = None) -> int:
        call = ask(made, CHAT, {**body, "cache_salt": salt}, authorization=f"Bearer {key}")
        return int(call.json["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached("first") == 0
    assert cached("second") == 0
    assert cached("first", "x") == 0
    assert cached("second", "x") == 0
    for key in ("first", "second"):
        assert cached(key) > 300
        assert cached(key, "x") > 300
    assert cached("first", "y") == 0


@pytest.mark.parametrize("field", ["aliases", "api_keys", "cors", "hosts"])
@pytest.mark.parametrize("value", ["", " a", "a\n", "\x00"])
def test_settings_are_names(field: str, value: str) -> None:
    with pytest.raises(UsageError, match=field):
        Settings(**{field: (value,)})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["most_stops", "most_body_bytes", "most_running", "ping_s"])
def test_limits_are_at_least_1(field: str) -> None:
    for value in (0, -1, float("nan")):
        with pytest.raises(UsageError, match=field):
            Settings(**{field: value})  # type: ignore[arg-type]
