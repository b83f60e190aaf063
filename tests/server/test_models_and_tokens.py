"""What is served and under which names; text to ids and back."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.server.settings import Settings
from server.asgi import Server, ask, look, prompt_of, server
from tiny import END, START, tiny_model


@pytest.fixture(scope="module")
def made() -> Server:
    return server({}, settings=Settings(aliases=("gpt-4o", "org/name:tag", "gpt-4o")))


def test_models_are_listed_under_their_own_name_first_and_each_alias_once(made: Server) -> None:
    found = look(made, "/v1/models").json
    assert found["object"] == "list"
    assert [card["id"] for card in found["data"]] == ["tiny", "gpt-4o", "org/name:tag"]
    for card in found["data"]:
        assert (card["object"], card["owned_by"], card["root"]) == ("model", "pilotfish", "tiny")
        assert (card["created"], card["max_model_len"]) == (1_700_000_000, 4096)
        assert look(made, f"/v1/models/{card['id']}").json == card


def test_a_model_that_is_not_served_is_404_and_those_that_are_are_named(made: Server) -> None:
    call = look(made, "/v1/models/gpt-5")
    assert (call.status, call.error["code"]) == (404, "model_not_found")
    assert "tiny, gpt-4o, org/name:tag" in call.error["message"]


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"prompt": "aé"}, [97, 0xC3, 0xA9]),
        ({"content": "aé"}, [97, 0xC3, 0xA9]),
        ({"prompt": "<|im_start|>a<|im_end|>"}, [START, 97, END]),
        ({"prompt": ""}, []),
        ({"prompt": "a", "add_special_tokens": True, "model": "gpt-4o"}, [97]),
        ({"content": "a", "add_special": False}, [97]),
    ],
)
def test_tokenize_gives_the_ids_that_a_prompt_would_have(made: Server, body: Any, ids: list[int]) -> None:
    assert ask(made, "/tokenize", body).json == {"count": len(ids), "max_model_len": 4096, "tokens": ids}


def test_messages_are_tokenized_as_the_template_makes_them(made: Server) -> None:
    found = ask(
        made, "/tokenize", {"messages": [{"role": "user", "content": "hi"}], "return_token_strs": True}
    )
    assert "".join(found.json["token_strs"]) == prompt_of("hi")
    assert found.json["tokens"][0] == START


def test_the_beginning_of_text_is_added_unless_it_is_not_wanted() -> None:
    from pilotfish.text.tokenizer import Tokenizer
    from tiny import metadata

    header = metadata(tokenizer__ggml__bos_token_id=START, tokenizer__ggml__add_bos_token=True)
    target = tiny_model()
    object.__setattr__(target, "tokenizer", Tokenizer.from_metadata(header))
    begins = server(target=target)
    assert ask(begins, "/tokenize", {"prompt": "a"}).json["tokens"] == [START, 97]
    assert ask(begins, "/tokenize", {"prompt": "a", "add_special_tokens": False}).json["tokens"] == [97]


@pytest.mark.parametrize(
    ("ids", "text"), [([97, 0xC3, 0xA9], "aé"), ([START, 97, END], "<|im_start|>a<|im_end|>"), ([], "")]
)
def test_detokenize_gives_the_text_as_it_is_written(made: Server, ids: list[int], text: str) -> None:
    assert ask(made, "/detokenize", {"tokens": ids}).json == {"prompt": text, "content": text}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "content": "b"}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "a", "with_pieces": True}, "with_pieces"),
        ("/tokenize", {"prompt": "a", "model": "x"}, "model"),
        ("/tokenize", {"prompt": "a" * 6_000_000}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [999]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
    ],
)
def test_other_bodies_are_refused_by_name(made: Server, path: str, body: Any, param: str) -> None:
    call = ask(made, path, body)
    assert call.status in {400, 404}
    assert call.error["param"] == param
