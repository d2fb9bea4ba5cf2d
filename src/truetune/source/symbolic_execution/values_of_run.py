"""The kinds of value that an expression can be in a symbolic run of a script: constants,
containers, functions, opaque objects.

How it works: a value is a constant, a container whose parts are known, a function or class of the project, or opaque:
the result of a call of a library, an attribute or an item of such, an element of something that is iterated, an
argument that nobody gives. An opaque value remembers where it comes from, so a rule can walk back from any place to
the call that made it.

The trade-off: values are compared by identity, so the same attribute read twice must be one object; opaque values keep
their attributes and items for that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truetune.source.parsed_source_file import Module
    from truetune.source.symbolic_execution.trace_of_events import CallEvent, Frame

MAX_OPTIONS = 8
"""Values that a choice holds; where there are more, an unknown one stands for the rest. Chosen, not measured: rules
need the options to agree, and eight that agree are rare enough"""


@dataclass(eq=False, slots=True)
class Value:
    """What an expression stands for."""

    node: ast.AST | None = field(default=None, kw_only=True)
    """Where it is written or made; None for what no text stands for"""


@dataclass(eq=False, slots=True)
class Constant(Value):
    """A number, text, truth value or None, as it is written or follows from what is written."""

    value: Any


@dataclass(eq=False, slots=True)
class Sequence(Value):
    """A list, tuple or set that the script makes."""

    kind: str
    """`list`, `tuple` or `set`"""
    items: list[Value]
    is_open: bool = False
    """It may hold other values than `items`, or these any number of times (a comprehension, `append` in a loop)"""
    part_of: Item | None = None
    """The slice of another list that it is, where the order of that list's items is not known"""
    ordered_by: CallEvent | None = None
    """The call of its own `sort` that its order comes from"""
    made_over: Value | None = None
    """What the comprehension goes over that makes it, the outermost of several; what `list` or `set` was given"""


@dataclass(eq=False, slots=True)
class Mapping(Value):
    """A dictionary that the script makes, or reads from a file of settings beside it."""

    entries: dict[Any, Value]
    rest: Value | None = None
    """What other entries come from: `**batch`, a row that `map` adds columns to"""
    is_open: bool = False
    """It may hold entries that are not known"""


@dataclass(eq=False, slots=True)
class Library(Value):
    """A module, class or function that the project does not define."""

    name: str
    """Qualified, as in `DataFlow.name`: `transformers.AutoModelForCausalLM`, `len`"""


@dataclass(eq=False, slots=True)
class Function(Value):
    """A function, method or lambda of the project."""

    definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    home: Module
    scope: Scope
    """The names around it"""
    decorators: tuple[Value, ...] = ()
    receiver: Value | None = None
    """What `self` or `cls` is, for a bound method"""
    owner: Class | None = None
    """The class that defines it"""
    defaults: dict[str, Value] = field(default_factory=dict)
    """Values of its parameters' defaults, which are computed where the function is defined"""

    @property
    def name(self) -> str:
        """The function's name as it is written; `<lambda>` for a lambda."""
        return getattr(self.definition, "name", "<lambda>")


@dataclass(eq=False, slots=True)
class Partial(Value):
    """A function with some of its arguments given: `functools.partial`."""

    function: Value
    args: tuple[Value, ...]
    keywords: dict[str, Value]


@dataclass(eq=False, slots=True)
class Class(Value):
    """A class of the project."""

    definition: ast.ClassDef
    home: Module
    scope: Scope
    bases: tuple[Value, ...]
    decorators: tuple[Value, ...]
    namespace: dict[str, Value]
    fields: list[str]
    """Names with an annotation in its body, in order: those of a dataclass"""

    @property
    def name(self) -> str:
        """The class's name as it is written."""
        return self.definition.name


@dataclass(eq=False, slots=True)
class ProjectModule(Value):
    """Another file of the project, imported."""

    module: Module
    names: dict[str, Value]


@dataclass(eq=False, slots=True)
class Opaque(Value):
    """Something of which only the origin is known; what the script sets on it is."""

    attributes: dict[str, Value] = field(default_factory=dict, kw_only=True)
    entries: dict[Any, Value] = field(default_factory=dict, kw_only=True)


@dataclass(eq=False, slots=True)
class Instance(Opaque):
    """An object of a class of the project."""

    made_of: Class
    construction: CallEvent | None = None
    """The call of a library's base class that its construction is too (`class MyTrainer(Trainer)`)"""
    hooks_ran: bool = False
    """Its methods that a library calls were run"""
    is_made: bool = False
    """Its constructor is done: before that, no library calls its methods"""


@dataclass(eq=False, slots=True)
class SuperProxy(Value):
    """`super()` in a method: the bases of `owner`, for an object."""

    receiver: Value
    owner: Class


@dataclass(eq=False, slots=True)
class Result(Opaque):
    """What a call of a library gave back."""

    call: CallEvent


@dataclass(eq=False, slots=True)
class Attribute(Opaque):
    """An attribute of something opaque: `outputs.loss`."""

    base: Value
    name: str


@dataclass(eq=False, slots=True)
class Item(Opaque):
    """An item or slice of something opaque: `batch["labels"]`, `out[0, n:]`."""

    base: Value
    key: Value


@dataclass(eq=False, slots=True)
class Slice(Value):
    """`start:stop:step` in an index."""

    start: Value | None
    stop: Value | None
    step: Value | None


@dataclass(eq=False, slots=True)
class Element(Opaque):
    """One element of what is iterated."""

    iterable: Value


@dataclass(eq=False, slots=True)
class Operation(Opaque):
    """An operator on operands of which one is not constant: `loss / 4`, `prompt + answer`."""

    operator: str
    """`+`, `==`, `not`, `and`, `format` (an f-string), ..."""
    operands: tuple[Value, ...]


@dataclass(eq=False, slots=True)
class Option(Value):
    """What a user may give otherwise: a command line's option, a variable of the environment."""

    name: str
    default: Value | None
    """None where there is none"""


@dataclass(eq=False, slots=True)
class Parameter(Opaque):
    """An argument that a library gives to a function of the project, or that nobody gives."""

    name: str
    position: int
    function: Function
    given_by: CallEvent | None = None
    """The call that the function was handed to; None where nothing in the project calls it"""


@dataclass(eq=False, slots=True)
class Unknown(Opaque):
    """Something of which nothing is known; `why` says what was not followed."""

    why: str


@dataclass(eq=False, slots=True)
class Choice(Value):
    """One of several values, by branches that are not decided."""

    options: tuple[Value, ...]


@dataclass(eq=False, slots=True)
class Scope:
    """The names of a function call, a class body or a file."""

    names: dict[str, Value]
    parent: Scope | None
    home: Module
    global_names: set[str] = field(default_factory=set)
    """Declared `global` or `nonlocal`"""
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)
    function: Function | None = None
    frame: Frame | None = None
    """Where the call stood"""


class _NoConstant:
    """The type of NO_CONSTANT."""

    def __repr__(self) -> str:
        return "NO_CONSTANT"


NO_CONSTANT: Any = _NoConstant()
"""What `constant_of` gives where a value is none"""


def choice_of_values(values: list[Value]) -> Value:
    """One of these, each once; the value itself where they are one."""
    options: list[Value] = []
    for value in values:
        for option in value.options if isinstance(value, Choice) else (value,):
            if not any(_are_same_object_or_constant(option, other) for other in options):
                options.append(option)
    if len(options) == 1:
        return options[0]
    if len(options) > MAX_OPTIONS:
        options = [*options[: MAX_OPTIONS - 1], Unknown("too many options")]
    return Choice(tuple(options))


def _are_same_object_or_constant(one: Value, other: Value) -> bool:
    """Are two values one: the same object, or constants that are equal and of one type?"""
    if one is other:
        return True
    if isinstance(one, Library) and isinstance(other, Library):
        return one.name == other.name
    if isinstance(one, Constant) and isinstance(other, Constant):
        return type(one.value) is type(other.value) and bool(one.value == other.value)
    return False


def options_of_choice(value: Value) -> tuple[Value, ...]:
    """The values that a value may be: more than one only for a choice."""
    return value.options if isinstance(value, Choice) else (value,)


def parts_of_value(value: Value) -> Iterator[Value]:
    """The values that a value is directly made of."""
    if isinstance(value, Sequence):
        yield from value.items
    elif isinstance(value, Mapping):
        yield from value.entries.values()
        if value.rest is not None:
            yield value.rest
    elif isinstance(value, Choice):
        yield from value.options
    elif isinstance(value, Option) and value.default is not None:
        yield value.default
    elif isinstance(value, Slice):
        yield from (part for part in (value.start, value.stop, value.step) if part is not None)
    elif isinstance(value, Opaque):
        yield from _values_opaque_is_part_of(value)


def value_and_its_parts(value: Value, most: int) -> Iterator[Value]:
    """A value and all that it is made of, each once.

    Args:
        value: The value.
        most: About the number of values after which the walk ends.
    """
    waiting, seen = [value], {id(value)}
    while waiting and len(seen) < most:
        one = waiting.pop()
        yield one
        fresh = [part for part in parts_of_value(one) if id(part) not in seen]
        seen.update(map(id, fresh))
        waiting += fresh


def _values_opaque_is_part_of(value: Opaque) -> Iterator[Value]:
    """What an opaque value is an attribute, item, element or result of."""
    if isinstance(value, Attribute):
        yield value.base
    elif isinstance(value, Item):
        yield value.base
        yield value.key
    elif isinstance(value, Element):
        yield value.iterable
    elif isinstance(value, Operation):
        yield from value.operands
    elif isinstance(value, Result):
        yield from value.call.inputs
