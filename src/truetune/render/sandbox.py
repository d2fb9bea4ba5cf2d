"""The environment that chat templates run in: Jinja's immutable sandbox, with provenance and with limits.

It offers what transformers' `apply_chat_template` offers and gives the same text. Templates are untrusted:
each loop step, each piece of output and each growing operation is counted against a `Meter`, so that an endless
loop or a giant repeat ends in a TemplateError and not in a dead process.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from truetune.errors import TemplateError
from truetune.render import traced
from truetune.render.traced import Traced

MAX_SECONDS = 1.0
"""Processor time that one rendering may take."""
MAX_SIZE = 1 << 24
"""The longest string, in characters, or list, in entries, that a template may make."""
MAX_TOTAL = 1 << 28
"""All that one rendering may make, likewise."""
CHECK_EVERY = 256

METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        ("split", "rsplit", "splitlines", "partition", "rpartition", "replace", "join", "format", "encode")
        + ("strip", "lstrip", "rstrip", "removeprefix", "removesuffix")
        + tuple(name for name in (*traced.QUESTIONS, *traced.MAPPINGS) if not name.startswith("_"))
    ),
    dict: frozenset(("get", "items", "keys", "values", "copy")),
    list: frozenset(("index", "count", "copy")),
    tuple: frozenset(("index", "count")),
}
"""Methods of values that a template may call; those that change a value are not among them."""
FOLLOWED = frozenset(
    ("string", "length", "count", "default", "d", "tojson", "join")
    + ("first", "last", "list", "map", "select", "reject", "selectattr", "rejectattr", "items", "reverse", "attr")
    + ("dictsort", "safe", "metered")
)
DENIED = ("lipsum", "pprint", "urlize", "wordwrap", "xmlattr", "striptags", "filesizeformat", "random")
"""Filters and globals whose work can't be foreseen, and that no chat template needs."""

"""Filters that work through methods of Traced. Of any other, a result that is not Traced can't be followed."""


class LimitError(TemplateError):
    """A rendering went past the limits."""


class Meter:
    """Counts the steps of one rendering. Raises LimitError past the limits."""

    __slots__ = ("deadline", "made", "steps")

    def __init__(self) -> None:
        self.steps = self.made = 0
        self.deadline = time.thread_time() + MAX_SECONDS

    def step(self) -> None:
        self.steps += 1
        if self.steps % CHECK_EVERY == 0 and time.thread_time() > self.deadline:
            raise LimitError(
                f"the chat template ran for more than {MAX_SECONDS:g} s on one conversation and was stopped; "
                "look for a loop that never ends"
            )

    def size(self, size: int) -> None:
        self.step()
        self.made += size
        if size > MAX_SIZE or self.made > MAX_TOTAL:
            raise LimitError(
                f"the chat template tried to make a value of {size:,} characters or entries from one conversation "
                f"(the limits are {MAX_SIZE:,}, and {MAX_TOTAL:,} in all); is a repeat or a width too large?"
            )


class Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}`: a mark for trainers, which adds nothing to the text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_generated"), [], [], body).set_lineno(line)

    def _generated(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateDict:
    """`dict(...)` for templates, without the class and its attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class Namespace(jinja2.utils.Namespace):
    """`namespace(...)` that takes no names with a leading underscore and weighs what it is given."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, weigh, values = args[0], args[1], dict(*args[2:], **kwargs)
        for name in values:
            _public(name)
        jinja2.utils.Namespace.__init__(self, values)
        object.__setattr__(self, "_weigh", weigh)

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name) if name == "_weigh" else super().__getattribute__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _public(name)
        super().__setitem__(name, self._weigh(value))


def _public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a chat template can't store the name {name!r} in a namespace; drop its underscore")


class _Metered(jinja2.compiler.CodeGenerator):
    def visit_Concat(self, node: nodes.Concat, frame: Any) -> None:  # noqa: N802
        self.write("environment.concat((")
        for item in node.nodes:
            self.write("environment.text(")
            self.visit(item, frame)
            self.write("), ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """One per template; not for use by several threads at once."""

    code_generator_class = _Metered
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, now: Callable[[], datetime.datetime] = datetime.datetime.now) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, jinja2.ext.loopcontrols],
            finalize=self.text,
        )
        self.meter = Meter()
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = lambda format: now().strftime(str(format))
        self.globals["dict"] = TemplateDict()
        self.globals["namespace"] = lambda *args, **kwargs: Namespace(self._weigh, *args, **kwargs)
        for name in DENIED:
            self.filters.pop(name, None)
            self.globals.pop(name, None)
        own = {"tojson": self._tojson, "join": self._join, "metered": self._metered, "safe": _safe, "string": self.text}
        for name, filter in {**self.filters, **own}.items():
            self.filters[name] = self._guard(name, filter)

    def concat(self, strings: Iterable[str]) -> str:
        text = traced.concat(strings)
        self.meter.size(str.__len__(text))
        return text

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "metered", [], [], None, None, lineno=loop.lineno, environment=self)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            self._power(left, right)
            return left**right
        if operator == "%":
            if isinstance(left, str):
                self._width(left, right if isinstance(right, tuple) else (right,))
            return left % right
        if operator == "*":
            self.meter.size(_size(left) * right if isinstance(right, int) else _size(right) * left)
            return left * right
        if isinstance(left, str | list | tuple):
            self.meter.size(_size(left) + _size(right))
        return left + right

    def _power(self, left: Any, right: Any) -> None:
        self.meter.size(int(abs(right)) * max(1, int(abs(left))).bit_length())

    def _width(self, template: str, values: Any) -> None:
        """Refuse formats that pad to a giant width, given in the template or as an argument."""
        digits = re.findall(r"\d{5,}", str.__str__(template))
        numbers = [n for n in values if isinstance(n, int)] if "*" in template or "{" in template else []
        self.meter.size(max((*(int(d[:12]) for d in digits), *map(abs, numbers)), default=0))

    def text(self, value: Any) -> str:
        """`str(value)`, with provenance."""
        if isinstance(value, str):
            return value
        text = str(self._weigh(value))
        inside = traced.find(value)
        return text if inside is None else traced.unknown(text, inside.trace)

    def _weigh(self, value: Any) -> Any:
        """Count everything in a nest of containers, which may share its parts."""
        if isinstance(value, list | tuple | dict):
            for item in value.values() if isinstance(value, dict) else value:
                self.meter.step()
                self._weigh(item)
        return value

    def _tojson(self, value: Any, *args: Any, **kwargs: Any) -> str:
        return traced.tojson(self._weigh(value), *args, **kwargs)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self.meter.step()
        __self._weigh(args)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            if __obj.__name__ == "join" and args and not isinstance(args[0], list | tuple):
                args = (list(args[0]),)
            __self._check_method(owner, __obj.__name__, (*args, *kwargs.values()))
            if not isinstance(owner, Traced) and traced.find(args) is not None:
                return _plain_method(owner, __obj, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def _check_method(self, owner: str, method: str, args: tuple[Any, ...]) -> None:
        if method in ("center", "ljust", "rjust", "zfill", "expandtabs") and args:
            self.meter.size(args[0] * (1 + str.count(owner, "\t") * (method == "expandtabs")))
        elif method == "replace" and len(args) > 1:
            self._check_replace(owner, args[0], args[1])
        elif method == "join" and args:
            self._check_join(owner, args[0])

    def _check_replace(self, text: str, old: Any, new: Any) -> None:
        if isinstance(old, str) and isinstance(new, str):
            self.meter.size(_size(text) + str.count(text, old) * _size(new))

    def _check_join(self, separator: str, items: Any) -> None:
        if isinstance(items, list | tuple):
            self.meter.size(sum(map(_size, items)) + len(items) * _size(separator))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if callable(value):
            for kind, allowed in METHODS.items():
                if isinstance(obj, kind):
                    return attr in allowed
            if isinstance(obj, int | float | bytes):
                return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def checked(*args: Any, **kwargs: Any) -> str:
            self._width(value.__self__, (*args, *kwargs.values()))
            text = wrapped(*args, **kwargs)
            inside = traced.find((value.__self__, *args, kwargs))
            return text if inside is None else traced.unknown(text, inside.trace)

        return checked

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Traced) and not hasattr(str, attribute):
            return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Traced) and isinstance(argument, str) and not hasattr(str, argument):
            return self.undefined(obj=obj, name=argument)
        return super().getitem(obj, argument)

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        if attribute is not None:
            value = [self.getitem(item, attribute) for item in value]
        items = [self.text(item) for item in value]
        self._check_join(d, items)
        return traced.join(self.text(d), items)

    def _metered(self, values: Iterable[Any]) -> Iterable[Any]:
        return _Steps(values, self.meter) if isinstance(values, list | tuple | range) else _steps(values, self.meter)

    def _guard(self, name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        """Count the filter's work, and take what an unknown one makes of a field as unknown."""
        environment = self

        def guarded(*args: Any, **kwargs: Any) -> Any:
            environment.meter.step()
            values = args[_PASSED.get(getattr(filter, "jinja_pass_arg", None), 0) :]
            environment._check_filter(name, values, kwargs)
            result = filter(*args, **kwargs)
            if name in FOLLOWED or isinstance(result, Traced):
                return result
            inside = traced.find((*values, kwargs))
            if inside is None:
                return result
            if isinstance(result, str):
                return traced.unknown(result, inside.trace)
            inside.trace.opaque = True
            return result

        if hasattr(filter, "jinja_pass_arg"):
            guarded.jinja_pass_arg = filter.jinja_pass_arg  # type: ignore[attr-defined]
        return guarded

    def _check_filter(self, name: str, values: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        numbers = [n for n in (*values[1:], *kwargs.values()) if isinstance(n, int)]
        if name in ("center", "indent", "batch", "slice", "tojson", "round", "wordwrap", "truncate") and numbers:
            lines = str.count(values[0], "\n") + 1 if isinstance(values[0], str) else 1
            self.meter.size(max(map(abs, numbers)) * (lines if name == "indent" else 1))
        elif name == "replace" and isinstance(values[0], str):
            old, new = (*values[1:], kwargs.get("old"), kwargs.get("new"))[:2] if len(values) < 3 else values[1:3]
            self._check_replace(values[0], old, new)
        elif name == "format" and isinstance(values[0], str):
            self._width(values[0], (*values[1:], *kwargs.values()))
        elif name in ("sort", "unique", "groupby", "dictsort", "sum", "list", "join", "map", "reverse"):
            for _ in range(_size(values[0]) // CHECK_EVERY if hasattr(values[0], "__len__") else 0):
                self.meter.step()


_PASSED: dict[Any, int] = dict.fromkeys(jinja2.utils._PassArg, 1)


class _Steps(list[Any]):
    """A list whose iteration is counted."""

    def __init__(self, values: Iterable[Any], meter: Meter) -> None:
        super().__init__(values)
        self.meter = meter

    def __iter__(self) -> Iterator[Any]:
        return _steps(super().__iter__(), self.meter)


def _steps(values: Iterable[Any], meter: Meter) -> Iterator[Any]:
    for value in values:
        meter.step()
        yield value


def _size(value: Any) -> int:
    return str.__len__(value) if isinstance(value, str) else len(value) if isinstance(value, list | tuple) else 1


def _raise(message: Any) -> None:
    raise jinja2.exceptions.TemplateError(str(message))


def _safe(value: Any) -> Any:
    return value if isinstance(value, Traced) else jinja2.filters.do_mark_safe(value)


def _plain_method(owner: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A method of a literal string that is given fields."""
    inside = traced.find(args)
    assert inside is not None
    if method.__name__ == "join":
        return traced.join(owner, args[0])
    result = method(*args, **kwargs)
    if isinstance(result, str):
        return traced.unknown(result, inside.trace)
    inside.trace.opaque = True
    return result
