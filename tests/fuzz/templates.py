"""Chat templates that mean harm: random jinja of what runs, grows, repeats and reaches inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

_ATOMS = (
    "messages", "messages[0]", "m", "m.content", "m['role']", "bos_token", "tools", "x", "y", "loop",
    "loop.index", "ns", "ns.a", "self", "range", "dict", "namespace", "cycler", "joiner", "lipsum",
    "raise_exception", "strftime_now", "caller", "varargs", "kwargs", "0", "1", "-1", "2", "7", "64",
    "999", "99999", "10**9", "2**63", "1e308", "0.5", "'a'", "'é🐟'", "''", "'%s'", "'%999d'", "'{0}'",
    "'{0:999}'", "'a b ' * 999", "true", "none", "[]", "[1, 2]", "{}", "{'a': 1}", "(1,)",
    "'x' * 100000", "range(99999)", "range(10**7)",
)  # fmt: skip
_NAMES = (
    "a", "content", "role", "append", "items", "keys", "values", "get", "update", "pop", "sort",
    "reverse", "copy", "format", "format_map", "join", "replace", "split", "center", "ljust", "zfill",
    "expandtabs", "encode", "translate", "strip", "upper", "title", "count", "index", "find",
    "startswith", "__class__", "__mro__", "__subclasses__", "__globals__", "__init__", "__self__",
    "__dict__", "__doc__", "__add__", "__mul__", "gi_frame", "gi_code", "f_globals", "cr_frame",
    "func_globals", "mro", "next", "previtem", "cycle", "changed", "start", "stop", "step",
    "bit_length", "to_bytes", "real", "is_integer", "hex", "isoformat",
)  # fmt: skip
_FILTERS = (
    "abs", "attr", "batch", "capitalize", "center", "count", "default", "dictsort", "escape",
    "filesizeformat", "first", "float", "forceescape", "format", "groupby", "indent", "int", "items",
    "join", "last", "length", "list", "lower", "map", "max", "min", "pprint", "random", "reject",
    "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "slice", "sort",
    "string", "striptags", "sum", "title", "tojson", "trim", "truncate", "unique", "upper", "urlencode",
    "urlize", "wordcount", "wordwrap", "xmlattr",
)  # fmt: skip
_TESTS = (
    "defined",
    "string",
    "mapping",
    "sequence",
    "in",
    "eq",
    "lt",
    "sameas",
    "divisibleby",
    "none",
    "callable",
)
_OPERATORS = ("+", "-", "*", "**", "/", "//", "%", "~", "==", "!=", "<", ">=", "and", "or", "in", "not in")


def template(rng: random.Random) -> str:
    """Return the source of a template, mostly valid."""
    pieces = [_statement(rng, 3) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.2:
        pieces = pieces * rng.choice((2, 9, 40))
    return "".join(pieces)


def _statement(rng: random.Random, depth: int) -> str:  # noqa: PLR0911 - one for each kind
    if depth == 0 or rng.random() < 0.35:
        return f"{{{{ {_expression(rng, depth)} }}}}"
    body = "".join(_statement(rng, depth - 1) for _ in range(rng.randint(1, 2)))
    value = _expression(rng, 2)
    kind = rng.randrange(9)
    if kind <= 1:
        test = f" if {_expression(rng, 1)}" if rng.random() < 0.2 else ""
        recursive = " recursive" if rng.random() < 0.2 else ""
        return f"{{% for m in {value}{test}{recursive} %}}{body}{{% endfor %}}"
    if kind == 2:
        return f"{{% if {value} %}}{body}{{% else %}}{body}{{% endif %}}"
    if kind == 3:
        return f"{{% set {rng.choice(('x', 'y', 'ns', 'ns.a', 'm'))} = {value} %}}{body}"
    if kind == 4:
        return f"{{% set x %}}{body}{{% endset %}}"
    if kind == 5:
        call = rng.choice(("x(m)", f"x({value})", "y"))
        return f"{{% macro x(m=0) %}}{body}{{{{ {call} }}}}{{% endmacro %}}{{{{ x({value}) }}}}"
    if kind == 6:
        return f"{{% filter {rng.choice(_FILTERS)} %}}{body}{{% endfilter %}}"
    if kind == 7:
        return f"{{% call x(m) %}}{body}{{% endcall %}}{{% set ns = namespace(a={value}) %}}"
    # A value that refers to itself several times grows by powers.
    grow = rng.choice(
        ("x ~ x", "x + x", "[x, x]", "{'a': x, 'b': x}", "x * 9", "(x, x)", "x | string ~ x", "x % x")
    )
    return f"{{% set x = {value} %}}" + f"{{% set x = {grow} %}}" * rng.choice((3, 20, 60)) + "{{ x }}"


def _expression(rng: random.Random, depth: int) -> str:  # noqa: PLR0911 - one for each kind
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(_ATOMS)
    inner, other = _expression(rng, depth - 1), _expression(rng, depth - 1)
    kind = rng.randrange(9)
    if kind <= 1:
        return f"({inner} {rng.choice(_OPERATORS)} {other})"
    if kind == 2:
        return f"({inner}).{rng.choice(_NAMES)}"
    if kind == 3:
        return f"({inner})[{rng.choice((other, ':', '1:', '::-1', repr(rng.choice(_NAMES))))}]"
    if kind == 4:
        return f"({inner}).{rng.choice(_NAMES)}({rng.choice(('', other, f'{other}, {inner}', f'a={other}'))})"
    if kind == 5:
        arguments = rng.choice(
            ("", f"({other})", f"({other}, {inner})", f"(attribute={other})", f"(width={other})")
        )
        return f"({inner}) | {rng.choice(_FILTERS)}{arguments}"
    if kind == 6:
        return f"({inner} is {rng.choice(_TESTS)}{rng.choice(('', f'({other})'))})"
    if kind == 7:
        return f"[{inner}, {other}]" if rng.random() < 0.5 else f"{{{inner}: {other}}}"
    return f"{rng.choice(('range', 'dict', 'namespace', 'strftime_now', 'raise_exception', 'x'))}({inner})"
