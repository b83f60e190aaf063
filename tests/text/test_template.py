"""Chat templates: what Hugging Face's render, and nothing that a hostile one wants."""

from __future__ import annotations

import resource
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.errors import TemplateError, UsageError
from pilotfish.text.template import ChatTemplate

if TYPE_CHECKING:
    from text.conftest import Real

HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
KEY = "tokenizer.chat_template"


def render(source: str, messages: list[dict[str, Any]] = HI, **options: Any) -> str:
    return ChatTemplate(source).render(messages, **options)


@pytest.mark.models
def test_the_real_templates_render_and_get_no_second_bos(chatting: Real) -> None:
    template = ChatTemplate.from_metadata(chatting.metadata)
    messages = [
        {"role": "system", "content": "Be brief."},
        *HI,
        {"role": "assistant", "content": "Hello <|im_end|>"},
        {"role": "user", "content": "more"},
    ]
    text = template.render(messages)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\nHello <|im_end|><|im_end|>\n<|im_start|>user\nmore<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert template.render(messages, add_generation_prompt=False) + "<|im_start|>assistant\n" == text
    ids = chatting.tokenizer.encode(text, special=True)
    start = chatting.tokenizer.encode("<|im_start|>", special=True, bos=False)[0]
    assert ids[0] == start
    assert ids.count(start) == 5
    assert chatting.tokenizer.bos_id != ids[1]


@pytest.mark.models
def test_the_real_templates_have_a_default_system_message(chatting: Real) -> None:
    text = ChatTemplate.from_metadata(chatting.metadata).render(HI)
    assert text.startswith("<|im_start|>system\nYou are ")
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.models
def test_tools_are_rendered_as_plain_json(qwen15_template: ChatTemplate) -> None:
    tools = [{"type": "function", "function": {"name": "f<é>", "parameters": {}}}]
    text = qwen15_template.render(HI, tools=tools)
    assert '{"type": "function", "function": {"name": "f<é>", "parameters": {}}}' in text


@pytest.fixture(scope="module")
def qwen15_template(qwen15: Any) -> ChatTemplate:
    from pilotfish.engines.native.container import Container

    with Container.open(qwen15) as container:
        return ChatTemplate.from_metadata(container.metadata)


@pytest.mark.models
def test_a_long_conversation_is_within_the_budget(chatting: Real) -> None:
    messages = [{"role": "user", "content": "x" * 1000}, {"role": "assistant", "content": "y" * 50}] * 2000
    start = time.process_time()
    text = ChatTemplate.from_metadata(chatting.metadata).render(messages)
    assert len(text) > 2_000_000
    assert time.process_time() - start < 5.0


def test_a_text_of_megabytes_is_within_the_budget() -> None:
    content = "x" * 20_000_000
    assert render("{{ messages[0].content | trim }}", [{"role": "user", "content": content}]) == content


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\n  {% if true %}\nx\n{% endif %}\n{% endif %}", "x\n"),
        ("{% for m in messages %}{{ loop.index0 }}{{ m['role'] }}{{ m.content }}{% endfor %}", "0userhi"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        (
            "{% for i in 'abc' %}{{ loop.first }}{{ loop.last }}{{ loop.length }}{% endfor %}",
            "TrueFalse3FalseFalse3FalseTrue3",
        ),
        ("{% for i in [1, 2] %}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}", "21"),
        ("{% for k, v in {'a': 1}.items() %}{{ k ~ v ~ '!' }}{% endfor %}", "a1!"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 2 %}{{ ns.n }}", "3"),
        ("{% macro m(x, y=2) %}<{{ x }}{{ y }}>{% endmacro %}{{ m(1) }}{{ m('é', 3) }}", "<12><é3>"),
        ("{{ messages | map(attribute='content') | join(', ') }}", "hi"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ messages | rejectattr('role', 'in', ['user']) | list }}", "[]"),
        ("{{ {'b': '<é>', 'a': [1, none, true]} | tojson }}", '{"b": "<é>", "a": [1, null, true]}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ messages[1:] | length }}{{ messages[-1].content[::-1] }}{{ 'abc'[1:] }}", "0ihbc"),
        (
            "{{ ' a b '.strip().split(' ') | last }}{{ 'x-y'.replace('-', '+') }}{{ ','.join(['a', 'b']) }}",
            "bx+ya,b",
        ),
        ("{{ 'abc' | upper | replace('B', '') }}{{ 'A b' | title }}{{ '  x ' | trim }}", "ACA Bx"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ '%s-%d' % ('a', 3) }}{{ '%s' | format(1) }}{{ '{}-{a}'.format(1, a=2) }}", "a-311-2"),
        (
            "{{ 'a' * 3 }}{{ 7 // 2 }}{{ 2 ** 8 }}{{ 1 if 'a' in 'abc' else 2 }}{{ [1] + [2] }}",
            "aaa32561[1, 2]",
        ),
        ("{% for c in [[1, [2]], [3]] recursive %}{{ loop(c) if c is iterable else c }}{% endfor %}", "123"),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{% set x %}a{{ 1 }}b{% endset %}{{ x }}", "a1b"),
        ("{{ undefined_name }}{{ messages[0].nothing is defined }}{{ tools is none }}", "FalseTrue"),
        ("{{ [3, 1, 2] | sort | first }}{{ {'b': 1, 'a': 2} | dictsort | first | first }}", "1a"),
        ("{{ bos_token }}", ""),
    ],
)
def test_what_templates_use_works(source: str, text: str) -> None:
    assert render(source) == text


def test_the_date_can_be_asked_for() -> None:
    assert render("{{ strftime_now('%Y') }}").isdecimal()


def test_special_tokens_come_from_the_vocabulary() -> None:
    metadata: dict[str, object] = {
        KEY: "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}",
        "tokenizer.ggml.tokens": ["a", "<s>", "</s>"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 99,
    }
    assert ChatTemplate.from_metadata(metadata).render(HI) == "<s>hi</s>"


def test_messages_are_not_changed() -> None:
    messages = [{"role": "user", "content": "hi", "name": "x"}]
    with pytest.raises(TemplateError):
        render("{{ messages.append(1) }}", messages)
    assert messages == [{"role": "user", "content": "hi", "name": "x"}]


@pytest.mark.parametrize("metadata", [{}, {KEY: ""}, {KEY: 7}])
def test_a_missing_template_is_an_error_with_a_hint(metadata: dict[str, object]) -> None:
    with pytest.raises(TemplateError, match="no chat template") as caught:
        ChatTemplate.from_metadata(metadata)
    assert "base model" in caught.value.hint


def test_a_template_that_refuses_says_why() -> None:
    with pytest.raises(TemplateError, match="refuses these messages: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ x", "{% endif %}", "{{ 1 | nofilter }}", "{{ a.b.c }}", "{{ 1 + 'a' }}"]
)
def test_a_broken_template_is_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError, match="chat template fails"):
        render(source)


def test_a_huge_source_is_refused() -> None:
    with pytest.raises(TemplateError, match="200000 characters"):
        ChatTemplate("x" * 200_000)


LONG = "{% set a = 'a' * 100000 %}"
HOSTILE = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ messages.append.__globals__.x }}",
    "class by filter": "{{ (messages | map(attribute='__class__') | list)[0].x }}",
    "class by format": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "class by attr": "{{ messages | attr('__class__') }}",
    "init": "{{ raise_exception.__init__.__globals__.x }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "filtered loop": "{% for a in range(99999) %}{% for b in range(99999) if 0 %}{% endfor %}{% endfor %}",
    "slices": "{% set a = 'a' * 1000000 %}{% for i in range(99999) %}{% set b = a[1:] %}{% endfor %}",
    "lists": "{% for i in range(99999) %}{% set a = range(99999) | map('string') | list %}{% endfor %}",
    "splits": "{% for i in range(99999) %}{% set a = ('a ' * 1000000).split() %}{% endfor %}",
    "membership": "{% set r = range(90000) | list %}{{ r | select('in', r) | list | length }}",
    "macro": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "macro tree": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(99) }}",
    "recursive loop": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "times": "{{ 'a' * 10**9 }}",
    "times, turned": "{{ 10**9 * 'a' }}",
    "list times": "{{ [1] * 10**9 }}",
    "power": "{{ 7 ** 99999999 }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent name": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "format filter": "{{ '%.1000000000f' | format(1.5) }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "format in format": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "format many": LONG + "{{ ('{0}' * 100000).format(a) }}",
    "center": "{{ 'a' | center(1000000000) }}",
    "center method": "{{ 'a'.center(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(1000000000) }}",
    "replace": LONG + "{{ a | replace('a', a) }}",
    "replace method": LONG + "{{ a.replace('', a) }}",
    "join": LONG + "{{ ([a] * 50000) | join }}",
    "join method": LONG + "{{ a.join(['x'] * 50000) }}",
    "indent": "{{ 'a\nb' | indent(1000000000) }}",
    "json indent": "{{ [1] | tojson(indent=1000000000) }}",
    "lipsum": "{{ lipsum(n=100000) }}",
    "date": "{{ strftime_now('%1000000000Y') }}",
    "doubling ~": "{% set a = 'aaaa' %}" + "{% set a = a ~ a %}" * 60,
    "doubling +": "{% set a = 'aaaa' %}" + "{% set a = a + a %}" * 60,
    "doubling lists": "{% set a = [1] %}" + "{% set a = a + a %}" * 60,
    "nested lists": "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}",
    "nested tuples": "{% set a = (1,) %}" + "{% set a = (a, a) %}" * 60 + "{{ {a: 1} }}",
    "nested dicts": "{% set a = {} %}" + "{% set a = {'x': a, 'y': a} %}" * 60 + "{{ a | tojson }}",
    "nested dict()": "{% set a = {} %}" + "{% set a = dict(x=a, y=a) %}" * 60 + "{{ a }}",
    "nested namespaces": "{% set a = 1 %}" + "{% set a = namespace(x=a, y=a) %}" * 60 + "{{ a }}",
    "compared lists": "{% set a = [1] %}{% set b = [1] %}"
    + "{% set a = [a, a] %}{% set b = [b, b] %}" * 40
    + "{{ a == b }}",
    "constant text": "{% for i in range(99999) %}" + "y" * 100_000 + "{% endfor %}",
    "constant text kept": "{% set x %}{% for i in range(99999) %}"
    + "y" * 100_000
    + "{% endfor %}{% endset %}",
    "constant text called": "{% macro m() %}"
    + "y" * 10_000
    + "{% endmacro %}{% for i in range(99999) %}{% set x = m() %}{% endfor %}",
    "deep brackets": "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "deep minus": "{{ " + "-" * 30_000 + "1 }}",
    "deep blocks": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_template_is_a_template_error_soon_and_without_much_memory(case: str) -> None:
    """About half a second at most on an idle machine, and far less than what the template asks for."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with pytest.raises(TemplateError):
        render(HOSTILE[case])
    assert time.process_time() - start < 5.0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300_000 * (1024 if _counts_bytes() else 1)


def _counts_bytes() -> bool:
    import sys

    return sys.platform == "darwin"


def test_templates_render_in_several_threads() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda text=text: found.append(template.render([{"role": "user", "content": text}]))
        )
        for text in "abcdefgh"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list("abcdefgh")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hi",
        None,
        {"role": "user", "content": "x"},
        ["hi"],
        [{"role": "user"}],
        [{"content": "x"}],
        [{"role": 1, "content": "x"}],
        [{"role": "user", "content": ["x"]}],
        [{"role": "user", "content": None}],
        [*HI, {"role": "user", "content": b"x"}],
        [{"role": "user", "content": "x", "extra": object()}],
    ],
)
def test_messages_of_another_form_are_a_usage_error(messages: Any) -> None:
    with pytest.raises(UsageError):
        render("x", messages)
