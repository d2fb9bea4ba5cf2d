"""Folds values of a symbolic run to constants, and decides which way a test goes.

How it works: `constant_of` folds operators, containers and the defaults of options; `truth_of_test` decides a test only
where nothing that a user may give otherwise is part of it.

The trade-off: only operators whose result stays small are computed, so `"a" * 10**9` in a script costs nothing.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Choice,
    Class,
    Constant,
    Function,
    Instance,
    Library,
    Mapping,
    Operation,
    Option,
    Partial,
    ProjectModule,
    Result,
    Sequence,
    Value,
)

MAX_TEXT = 20_000
"""Characters of a text that is put together; longer ones are not computed"""
CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}
"""Of the parts of an f-string, by the code that the syntax tree gives"""
MAX_WIDTH_DIGITS = 3
"""Digits of a width or precision in an f-string's format: a longer one is written to take the memory"""
MAX_DEPTH = 30
"""Values inside values that are followed"""
BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.BitOr: ("|", operator.or_),
    ast.BitAnd: ("&", operator.and_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.MatMult: ("@", operator.matmul),
}
COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda one, many: one in many),
    ast.NotIn: ("not in", lambda one, many: one not in many),
}
UNARY: dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]] = {
    ast.Not: ("not", operator.not_),
    ast.USub: ("-", operator.neg),
    ast.UAdd: ("+", operator.pos),
    ast.Invert: ("~", operator.invert),
}
BY_SIGN: dict[str, Callable[..., Any]] = dict((*BINARY.values(), *COMPARISONS.values()))
OBJECTS = (Instance, Function, Class, Partial, Library, ProjectModule, Sequence, Mapping)
"""Values that are certainly not None"""
CONSTRUCTORS = ("from_pretrained", "from_config", "get_peft_model", "load_dataset", "prepare")
"""Library functions that give an object, never None"""


def compute_operator(sign: str, *operands: Any) -> Any:
    """The result of an operator on plain values; NO_CONSTANT where it fails or may be large."""
    if _may_take_much_memory(sign, operands):
        return NO_CONSTANT
    try:
        result = BY_SIGN[sign](*operands)
    except (ArithmeticError, TypeError, ValueError, KeyError, AttributeError):
        return NO_CONSTANT
    if isinstance(result, str | bytes | list | tuple) and len(result) > MAX_TEXT:
        return NO_CONSTANT
    return NO_CONSTANT if isinstance(result, complex) else result


def _may_take_much_memory(sign: str, operands: tuple[Any, ...]) -> bool:
    """May the result of an operator take much memory, so that it must not be computed?"""
    if sign == "%" and isinstance(operands[0], str | bytes):
        return True  # a width (`%1000000000d`) would take the memory
    is_large = sign == "*" and any(_may_make_large_product(one) for one in operands)
    if sign not in ("**", "<<") and not is_large:
        return False
    return not all(isinstance(one, int | float) and abs(one) < 1000 for one in operands)


def _may_make_large_product(value: Any) -> bool:
    """May a product with it take much memory?"""
    return not isinstance(value, int | float) or abs(value) > 10**12


def constant_of(value: Value | None, *, with_defaults: bool = True) -> Any:
    """The plain value that it stands for; NO_CONSTANT where it is not known.

    Args:
        value: The value.
        with_defaults: Do options count with their default, which a user may change?

    Returns:
        A number, text, truth value, None, or a list, tuple, set or dictionary of such.
    """
    return _Folding(with_defaults).fold(value, 0)


class _Folding:
    """One search for a constant. What was folded is kept: sums of sums of one value would be folded 2**n times."""

    def __init__(self, with_defaults: bool) -> None:
        self._with_defaults = with_defaults
        self._folded: dict[int, Any] = {}

    def fold(self, value: Value | None, depth: int) -> Any:
        """The constant that a value is, which is nested at this depth in the first one; NO_CONSTANT
        if it is none.
        """
        if value is None or depth > MAX_DEPTH:
            return NO_CONSTANT
        if isinstance(value, Constant):
            return value.value
        if id(value) not in self._folded:
            self._folded[id(value)] = self._fold_from_parts(value, depth + 1)
        return self._folded[id(value)]

    def _fold_from_parts(self, value: Value, depth: int) -> Any:
        """The constant that follows from the parts of a value; NO_CONSTANT if there is none."""
        if isinstance(value, Option):
            return self.fold(value.default, depth) if self._with_defaults else NO_CONSTANT
        if isinstance(value, Choice):
            return self._constant_shared_by_all_options(value, depth)
        if isinstance(value, Operation):
            return self._constant_of_operation(value, depth)
        if isinstance(value, Sequence | Mapping):
            return self._constant_of_container(value, depth)
        return NO_CONSTANT

    def _fold_all_or_none(self, values: Iterable[Value], depth: int) -> list[Any] | None:
        """The constants that all values are; None at the first that is none."""
        plain: list[Any] = []
        is_within_depth = depth <= MAX_DEPTH
        for value in values:
            # Lists of token ids hold a hundred thousand constants, and a call for each takes seconds.
            if is_within_depth and type(value) is Constant:
                plain.append(value.value)
                continue
            constant = self.fold(value, depth)
            if constant is NO_CONSTANT:
                return None
            plain.append(constant)
        return plain

    def _constant_shared_by_all_options(self, value: Choice, depth: int) -> Any:
        """The constant that all options of a choice are; NO_CONSTANT if they differ."""
        constants = self._fold_all_or_none(value.options, depth)
        if constants is None:
            return NO_CONSTANT
        first = constants[0]
        is_one = all(type(one) is type(first) and one == first for one in constants)
        return first if is_one else NO_CONSTANT

    def _constant_of_operation(self, value: Operation, depth: int) -> Any:
        """The constant that an operator gives on constants; NO_CONSTANT if an operand is none."""
        operands = self._fold_all_or_none(value.operands, depth)
        if operands is None:
            return NO_CONSTANT
        if value.operator == "format":
            return join_f_string_parts(operands)
        if value.operator == "not":
            return not operands[0]
        return compute_operator(value.operator, *operands) if len(operands) == 2 else NO_CONSTANT

    def _constant_of_container(self, value: Sequence | Mapping, depth: int) -> Any:
        """The list or dictionary as a plain one, if all its parts are constant and no other may be
        in it.
        """
        if value.is_open or (isinstance(value, Mapping) and value.rest is not None):
            return NO_CONSTANT
        parts = value.items if isinstance(value, Sequence) else list(value.entries.values())
        plain = self._fold_all_or_none(parts, depth)
        if plain is None:
            return NO_CONSTANT
        if isinstance(value, Mapping):
            return dict(zip(value.entries, plain, strict=True))
        return tuple(plain) if value.kind == "tuple" else plain


def join_f_string_parts(parts: list[Any]) -> Any:
    """The text of an f-string's parts; NO_CONSTANT where it is long."""
    if sum(len(one) for one in parts if isinstance(one, str | list | dict)) > MAX_TEXT:
        return NO_CONSTANT
    text = "".join(str(one) for one in parts)
    return text if len(text) <= MAX_TEXT else NO_CONSTANT


def format_f_string_part(plain: Any, conversion: int, how: Any) -> Any:
    """One part of an f-string with a conversion or a format, `{name!r}` or `{rate:.2e}`.

    Args:
        plain: The value.
        conversion: The code of `r`, `s` or `a`; below 0 without one.
        how: The format behind the colon.

    Returns:
        A text; NO_CONSTANT where something is not known, or the format may give a long text.
    """
    if plain is NO_CONSTANT or not isinstance(how, str) or isinstance(plain, list | dict | tuple):
        return NO_CONSTANT
    # A width (`:1000000000`) would take the memory.
    widths = re.findall(r"\d+", how)
    if any(len(width) > MAX_WIDTH_DIGITS for width in widths):
        return NO_CONSTANT
    convert = CONVERSIONS.get(conversion)
    try:
        return format(plain if convert is None else convert(plain), how)
    except (TypeError, ValueError, OverflowError):
        return NO_CONSTANT


def constants_among_options(value: Value | None) -> list[Any]:
    """The plain values that a value may be, one for each of its options that is constant."""
    if value is None:
        return []
    options = value.options if isinstance(value, Choice) else (value,)
    plain = [constant_of(option) for option in options]
    return [one for one in plain if one is not NO_CONSTANT]


def truth_of_test(value: Value) -> bool | None:
    """Whether a test is true; None if a run may go both ways."""
    if isinstance(value, Sequence | Mapping):
        return _truth_of_container(value)
    if isinstance(value, Operation) and value.operator in ("is", "is not"):
        return _truth_of_identity(value)
    if isinstance(value, Operation) and value.operator == "not":
        inner = truth_of_test(value.operands[0])
        return None if inner is None else not inner
    if isinstance(value, OBJECTS):
        return True
    plain = constant_of(value, with_defaults=False)
    return None if plain is NO_CONSTANT else bool(plain)


def _truth_of_container(value: Sequence | Mapping) -> bool | None:
    """Whether a list or dictionary holds anything; None if it is empty and may hold more."""
    if isinstance(value, Sequence):
        has_parts, is_open = bool(value.items), value.is_open
    else:
        has_parts, is_open = bool(value.entries), value.is_open or value.rest is not None
    if has_parts:
        return True
    return None if is_open else False


def _truth_of_identity(value: Operation) -> bool | None:
    """`x is None`, where x is certainly an object or certainly None."""
    left, right = value.operands
    if not (isinstance(right, Constant) and right.value is None):
        return None
    if isinstance(left, Constant):
        is_none = left.value is None
    elif isinstance(left, OBJECTS) or _is_made_by_library_class(left):
        is_none = False
    else:
        return None
    return is_none == (value.operator == "is")


def _is_made_by_library_class(value: Value) -> bool:
    """Is it what a class of a library gives when it is called?"""
    if not isinstance(value, Result):
        return False
    lasts = [name.rpartition(".")[2] for name in value.call.names]
    return any(last in CONSTRUCTORS or last[:1].isupper() for last in lasts)
