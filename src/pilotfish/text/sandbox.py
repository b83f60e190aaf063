"""A jinja2 environment in which a template can neither reach internals nor run or grow without bound.

jinja2's own sandbox guards attributes, not time or memory: `'a' * 10**9`, nested loops and lists of lists of
lists pass it. Here every operation that can repeat, copy or compare pays from a `Budget` first, by the size
of what it touches: loops by the iteration, text by the character, containers by what they hold at all depths.
Filters and methods that chat templates have no use for and that could grow text are left out.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sized, ValuesView
from contextvars import ContextVar
from types import BuiltinMethodType, GeneratorType
from typing import Any, Final, cast

from jinja2 import Environment, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_CHARS_A_UNIT = 16
_ITEM, _CALL = 8, 40
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_MOST_BITS = 4096
_MOST_TOKENS = 10_000  # a second of compiling at most; long templates of real models have some 3,000
_VIEWS: Final = frozenset({"get", "items", "keys", "values"})
_TEXT_FILTERS: Final = frozenset({
    "string", "trim", "upper", "lower", "capitalize", "title", "escape", "e", "indent",
})  # fmt: skip
_DEEP_FILTERS: Final = frozenset({
    "sort", "unique", "min", "max", "dictsort", "groupby", "sum",
})  # fmt: skip
_OTHER_FILTERS: Final = frozenset({
    "abs", "count", "d", "default", "first", "float", "int", "items", "last", "length", "list", "map",
    "reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr",
})  # fmt: skip
_COMPARING_TESTS: Final = frozenset({
    "in", "eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">",
    "ge", ">=",
})  # fmt: skip
_STR_METHODS: Final = frozenset({
    "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "startswith", "endswith", "upper",
    "lower", "title", "capitalize", "swapcase", "casefold", "find", "rfind", "index", "rindex", "count",
    "removeprefix", "removesuffix", "partition", "rpartition", "isalnum", "isalpha", "isdigit", "isdecimal",
    "isnumeric", "isspace", "islower", "isupper", "replace", "join",
})  # fmt: skip


class Budget:
    """What one rendering may still spend.

    Attributes
    ----------
    work
        Units left; a unit is 16 characters touched, or about a tenth of a microsecond of anything else.
    largest
        Most characters of one text, most items of one container.
    """

    def __init__(self, work: int, largest: int) -> None:
        self.work = work
        self.largest = largest

    def spend(self, units: int) -> None:
        """Pay; SecurityError when nothing is left."""
        self.work -= units
        if self.work < 0:
            raise SecurityError("it does too much work (an endless loop?)")

    def check_length(self, length: int) -> None:
        """Refuse a text of more than the largest length."""
        if length > self.largest:
            raise SecurityError(f"it makes a text of {length} characters; {self.largest} are allowed")

    def text(self, length: int) -> None:
        """Pay for a text of this length, before it is made."""
        self.check_length(length)
        self.spend(_ITEM + length // _CHARS_A_UNIT)

    def weigh(self, value: object, *, as_text: bool = False) -> None:
        """Pay for everything a value holds, shared parts as often as they are met."""
        if isinstance(value, str):
            self.text(len(value))
            return
        length = seen = 0
        stack = [value]
        while stack:
            item = stack.pop()
            seen += 1
            if isinstance(item, str):
                length += len(item)
            elif type(item) in _PLAIN:
                continue
            elif isinstance(item, list):
                stack.extend(item)
            elif isinstance(item, Mapping):
                stack.extend(item.keys())
                stack.extend(item.values())
            elif isinstance(item, tuple | set | frozenset | KeysView | ValuesView | ItemsView):
                stack.extend(item)
            elif as_text and not isinstance(item, int | float | range | Undefined | None):
                raise SecurityError(f"it uses a {type(item).__name__} as text")
            if _ITEM * (seen + len(stack)) > self.work:
                raise SecurityError("it builds a value that is too large")
        self.spend(_ITEM * seen)
        self.text(length + 4 * seen if as_text else length)

    def touch(self, value: object) -> None:
        """Pay for one look at a text or at all items of a container, not at what these hold."""
        if isinstance(value, str):
            self.text(len(value))
        elif isinstance(value, Sized):
            self.spend(_ITEM + len(value))
        else:
            self.spend(_ITEM)


BUDGET: ContextVar[Budget] = ContextVar("BUDGET")


def make_environment() -> Environment:
    """Return an environment with whitespace control, filters and globals as chat templates expect."""
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[loopcontrols, _Generation, _Length]
    )
    filters = environment.filters
    kept = {name: _guarded(name, filters[name]) for name in _TEXT_FILTERS | _DEEP_FILTERS | _OTHER_FILTERS}
    own = {"tojson": _tojson, "replace": _replace, "join": _join_filter, "format": _percent_filter}
    environment.filters = (
        kept
        | own
        | {"_steps": _steps, "_spend": _spend, "_sized": _sized, "_touched": _touched, "_concat": _concat}
    )
    environment.tests = {
        name: _weighed(test) if name in _COMPARING_TESTS else test for name, test in environment.tests.items()
    }
    del environment.globals["lipsum"]
    return environment


@pass_context
def _finalize(_context: Context, value: object) -> object:
    BUDGET.get().weigh(value, as_text=True)
    return value


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox with every operator, call and slice paid for."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - jinja2's own options
        super().__init__(finalize=_finalize, **options)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = Parser(self, source, name, filename).parse()
        return cast("nodes.Template", _Payment().visit(tree))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        budget = BUDGET.get()
        budget.spend(_ITEM)
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(operator, left, right)
        elif operator == "%" and isinstance(left, str):
            _check_percent(left, right)
        elif operator == "*":
            for sized, times in ((left, right), (right, left)):
                if isinstance(sized, str | list | tuple) and isinstance(times, int):
                    budget.text(len(sized) * max(times, 0) * (1 if isinstance(sized, str) else _CHARS_A_UNIT))
        elif operator == "+":
            budget.touch(left)
            budget.touch(right)
        return super().call_binop(context, operator, left, right)

    def call(
        __self,  # noqa: N805 - jinja2's names, which leave all keywords to the template
        __context: Context,  # noqa: PYI063
        __obj: Any,  # noqa: ANN401
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Call what a template calls."""
        budget = BUDGET.get()
        budget.spend(_CALL)
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, BuiltinMethodType) and isinstance(owner, str):
            args = _check_str_method(owner, __obj.__name__, args)
        elif isinstance(owner, list | tuple | Mapping) and getattr(__obj, "__name__", "") not in _VIEWS:
            budget.weigh(owner)
        for argument in args:
            budget.touch(argument)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, dict):
            budget.weigh(result)
        else:
            budget.touch(result)
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:  # noqa: ANN401
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        pattern: str = value.__self__

        def checked(*args: object, **kwargs: object) -> str:
            if re.search(r"\d{4}|:[^}]*\{", pattern):
                raise SecurityError(f"it formats with {pattern[:40]!r}")
            _check_expansion(pattern, "{", [*args, *kwargs.values()])
            return wrapped(*args, **kwargs)

        return checked


class _Payment(NodeTransformer):
    """Rewrites a template so that it pays: loops, macros, literals, comparisons and concatenations."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_steps")
        node.body.insert(0, _payment_for(node.body, node.lineno))
        return node

    def visit_Macro(self, node: nodes.Macro | nodes.CallBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _payment_for(node.body, node.lineno))
        return node

    visit_CallBlock = visit_Macro  # noqa: N815 - jinja2's names

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _filtered(node.node, "_touched")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "_sized")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "_sized")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concat")

    def visit_List(self, node: nodes.List | nodes.Dict | nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node, nodes.Tuple) and node.ctx != "load":
            return node
        return _filtered(node, "_sized")

    visit_Dict = visit_Tuple = visit_List  # noqa: N815


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast("nodes.Expr", node), name, [], [], None, None, lineno=node.lineno)


def _payment_for(body: list[nodes.Node], lineno: int) -> nodes.Node:
    """Return a statement that pays for the constant text in a body."""
    length = sum(len(data.data) for node in body for data in node.find_all(nodes.TemplateData))
    return nodes.ExprStmt(_filtered(nodes.Const(length, lineno=lineno), "_spend"), lineno=lineno)


class _Length(Extension):
    """Refuses a source whose tokens would take long to compile; their number says it, characters do not."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Pass tokens on, up to the most that are allowed."""
        for count, token in enumerate(stream):
            if count >= _MOST_TOKENS:
                raise SecurityError(f"it has more than {_MOST_TOKENS} words of code")
            yield token


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks answers for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _steps(iterable: Iterable[object]) -> Iterator[object]:
    budget = BUDGET.get()
    for item in iterable:
        budget.spend(_ITEM)
        yield item


def _spend(length: int) -> None:
    BUDGET.get().text(length)


def _sized(value: object) -> object:
    BUDGET.get().weigh(value)
    return value


def _touched(value: object) -> object:
    BUDGET.get().touch(value)
    return value


def _concat(parts: list[object]) -> str:
    BUDGET.get().weigh(parts, as_text=True)
    return "".join(map(str, parts))


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that pays for its input and, if it gives a generator, for each item."""
    skip = 1 if getattr(function, "jinja_pass_arg", None) else 0

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - filters take anything
        budget = BUDGET.get()
        value = args[skip] if len(args) > skip else None
        if name in _TEXT_FILTERS:
            budget.weigh(value, as_text=True)
        elif name in _DEEP_FILTERS:
            budget.weigh(list(_steps(value)) if isinstance(value, GeneratorType) else value)
        elif isinstance(value, Sized) and name not in {
            "length",
            "count",
            "default",
            "d",
            "first",
            "last",
            "safe",
        }:
            budget.spend(_CALL + _ITEM * len(value))
        _check_arguments(name, value, args[skip + 1 :], kwargs)
        result = function(*args, **kwargs)
        return _steps(result) if isinstance(result, Iterator) else result

    return guarded


def _check_arguments(name: str, value: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if name == "sum" and ("start" in kwargs or len(args) > 1):
        raise SecurityError("it sums from a start value")
    if name == "indent":
        width = kwargs.get("width", args[0] if args else 4)
        size = len(width) if isinstance(width, str) else int(width)
        BUDGET.get().text(len(str(value)) + (1 + str(value).count("\n")) * size)


def _weighed(test: Any) -> Callable[..., bool]:  # noqa: ANN401 - jinja2 types tests loosely
    def weighed(*args: object) -> Any:  # noqa: ANN401 - as the test
        for argument in args:
            BUDGET.get().weigh(argument)
        return test(*args)

    return weighed


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - the order is Hugging Face's
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Give JSON as Hugging Face's templates expect it: no HTML escapes, text as it is."""
    budget = BUDGET.get()
    budget.weigh(value, as_text=True)
    if indent is not None and (len(indent) if isinstance(indent, str) else indent) > 16:
        raise SecurityError(f"it indents JSON by {indent!r}")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    pieces: list[str] = []
    for piece in encoder.iterencode(value):
        budget.text(len(piece))
        pieces.append(piece)
    return "".join(pieces)


def _replace(value: object, old: str, new: str, count: int | None = None) -> str:
    BUDGET.get().weigh(value, as_text=True)
    text = str(value)
    _check_replace(text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _join_filter(value: Iterable[object], d: str = "", attribute: str | int | None = None) -> str:
    items = list(_steps(value))
    if attribute is not None:
        for name in str(attribute).split("."):
            items = [environment().getitem(item, int(name) if name.isdigit() else name) for item in items]
    return _join(d, items)


def _join(separator: str, items: list[object]) -> str:
    budget = BUDGET.get()
    budget.weigh(items, as_text=True)
    budget.text(len(separator) * len(items))
    return separator.join(map(str, items))


def _percent_filter(value: str, *args: object, **kwargs: object) -> str:
    _check_percent(value, kwargs or args)
    return str(value) % (kwargs or args)


def _check_bits(operator: str, left: int, right: int) -> None:
    if operator == "**":
        bits = left.bit_length() * max(right, 1)
    elif operator == "*":
        bits = left.bit_length() + right.bit_length()
    else:
        bits = max(left.bit_length(), right.bit_length())
    if bits > _MOST_BITS:
        raise SecurityError(f"it computes a number of {bits} bits")


def _check_percent(pattern: str, values: object) -> None:
    if re.search(r"%[^a-zA-Z%]*(\d{4}|\*)", re.sub(r"%\([^)]*\)", "%", pattern)):
        raise SecurityError(f"it formats with {pattern[:40]!r}")
    _check_expansion(pattern, "%", [values])


def _check_expansion(pattern: str, mark: str, values: list[object]) -> None:
    """Pay for a pattern filled in: each mark may insert all the values."""
    budget = BUDGET.get()
    before = budget.work
    budget.weigh(values, as_text=True)
    marks = pattern.count(mark)
    budget.text(len(pattern) + marks * 1000)
    budget.text(marks * (before - budget.work) * _CHARS_A_UNIT)


def _check_str_method(owner: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if name not in _STR_METHODS:
        raise SecurityError(f"it calls the text method {name!r}")
    budget = BUDGET.get()
    budget.text(len(owner))
    if name == "replace":
        _check_replace(owner, *args[:2])
    elif name == "join":
        items = list(_steps(args[0]))
        _join(owner, items)
        return (items, *args[1:])
    elif name in {"split", "rsplit", "splitlines"}:
        budget.spend(len(owner) // 8)
    return args


def _check_replace(text: str, old: str, new: str) -> None:
    BUDGET.get().text(len(text) + text.count(old) * len(new))


@functools.cache
def environment() -> Environment:
    """Return the one environment that all templates share."""
    return make_environment()
