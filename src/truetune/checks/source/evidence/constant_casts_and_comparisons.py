"""Finds casts and comparisons that give one and the same result for all rows, in the symbolic run
of a script.

How it works: what is cast or compared is a text in each row by the way it was read, or takes the
values of a column of a file that is here. `bool` of a text is True unless it is empty; a text never
equals a number.

The trade-off: tests that hold for all rows because the rows are clean are none of these: a
comparison must have values that it would meet if both sides were of one type or spelling, and a
cast words that mean no.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from truetune.checks.source.evidence.column_expression_values import (
    ColumnValues,
    distinct_values_of_expression,
    is_text_in_each_row,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Attribute,
    Item,
    Library,
    Operation,
    Result,
    Value,
)

MEANS_NO = frozenset(
    ("0", "0.0", "false", "f", "no", "n", "none", "null", "off", "bad", "negative")
)
"""Texts that say no, and are True"""
LABEL_NAMES = (
    "label",
    "labels",
    "is_good",
    "desirable",
    "is_desirable",
    "thumbs_up",
    "liked",
    "correct",
)
"""Columns that hold yes or no in whatever file"""
EQUALITIES = ("==", "!=", "in", "not in")
MAX_PARENTS = 5
"""Expressions around one that are looked at: a list of them, a function of one line"""
MAX_SHOWN = 4
"""Values that a message shows"""


class ConstantResult(NamedTuple):
    """A cast or comparison whose result is one for all rows."""

    node: ast.AST
    what: str
    """What it gives, and why"""
    kind: str
    """`cast`, `cast of signs`, `cast of grades` or `comparison`"""
    is_proved: bool


def constant_results(module: Module) -> Iterator[ConstantResult]:
    """The casts and comparisons of a file that give one result for all rows, each place once."""
    seen: set[ast.AST] = set()
    compared = {id(node) for node in module.nodes(ast.Compare)}
    for trace in traces_of_scripts_that_reach_file(module):
        for result in (
            *_always_true_casts(module, trace),
            *_never_true_comparisons(module, trace, compared),
        ):
            if result.node not in seen:
                seen.add(result.node)
                yield result


def _always_true_casts(module: Module, trace: Trace) -> Iterator[ConstantResult]:
    """Casts by `bool` that are always true: of a text, or of numbers without a 0."""
    for call in trace.all_calls:
        given = _cast_to_bool(call)
        if given is None or call.home.path != module.path:
            continue
        values = distinct_values_of_expression(module, given)
        if values is not None:
            yield from _always_true_cast_of_values(module, call, values)
        elif is_text_in_each_row(given) and _is_yes_no_column(given):
            what = "each cell is text here, and bool() of any text that is not empty is True, also of '0' and 'False'"
            yield ConstantResult(call.node, what, "cast", False)


def _always_true_cast_of_values(
    module: Module, call: CallEvent, values: ColumnValues
) -> Iterator[ConstantResult]:
    """The finding of a cast of known values, if it gives True for each of them."""
    no = [one for one in values.values if isinstance(one, str) and _says_no(one)]
    if no and all(isinstance(one, str) and one for one in values.values):
        kind, shown = "cast", no[0]
    elif _are_nonzero_numbers(values) and is_value_of_label_column(module, call.node):
        shown = min(values.values)
        kind = "cast of signs" if shown < 0 else "cast of grades"
    else:
        return
    what = f"bool({shown!r}) is True: {_column_with_values_text(values)}, so every row becomes True"
    yield ConstantResult(call.node, what, kind, True)


def casts_unseen_values_to_labels(module: Module) -> bool:
    """Is a label made by a cast to `bool` of values that are not seen, so that nothing can be said
    of it?
    """
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            given = _cast_to_bool(call)
            if given is None or call.home.path != module.path:
                continue
            is_label = is_value_of_label_column(module, call.node)
            if (
                is_label
                and not is_text_in_each_row(given)
                and distinct_values_of_expression(module, given) is None
            ):
                return True
    return False


def _are_nonzero_numbers(values: ColumnValues) -> bool:
    """Are they different numbers, of which none is 0? `bool` tells 0 from the others alone."""
    return len(values.values) > 1 and all(
        isinstance(one, int | float) and not isinstance(one, bool) and one != 0
        for one in values.values
    )


def is_value_of_label_column(module: Module, node: ast.AST) -> bool:
    """Is an expression what a column of labels is made of: `{"label": ...}`, `rows["label"] = ...`,
    `label=...`?
    """
    parents = module.scopes.parent
    child, parent = node, parents.get(node)
    for _ in range(MAX_PARENTS):
        if isinstance(parent, ast.Dict):
            pairs = zip(parent.keys, parent.values, strict=True)
            return any(value is child and _is_label_column_name(key) for key, value in pairs)
        if isinstance(parent, ast.keyword):
            return parent.arg in LABEL_NAMES
        if isinstance(parent, ast.Assign):
            return any(
                isinstance(one, ast.Subscript) and _is_label_column_name(one.slice)
                for one in parent.targets
            )
        if not isinstance(parent, ast.ListComp | ast.Lambda | ast.List | ast.Call | ast.IfExp):
            return False
        child, parent = parent, parents.get(parent)
    return False


def _is_label_column_name(node: ast.AST | None) -> bool:
    """Is it the name of a column of labels?"""
    return isinstance(node, ast.Constant) and node.value in LABEL_NAMES


def _cast_to_bool(call: CallEvent) -> Value | None:
    """What a call casts to a truth value; None where it does not."""
    if call.named("bool", "numpy.bool_") and len(call.args) == 1:
        return call.args[0]
    if call.method in ("astype", "map", "apply") and call.args:
        kind = call.args[0]
        name = kind.name if isinstance(kind, Library) else constant_of(kind)
        return call.receiver if name in ("bool", "numpy.bool_", "boolean") else None
    return None


def _says_no(text: str) -> bool:
    """Does a text say no?"""
    return text.strip().lower() in MEANS_NO


def _is_yes_no_column(value: Value) -> bool:
    """Is it a column that holds yes or no, by its name?"""
    while isinstance(value, Result) and value.call.receiver is not None:
        if value.call.method == "get" and value.call.args:
            return constant_of(value.call.args[0]) in LABEL_NAMES
        value = value.call.receiver
    if isinstance(value, Item):
        return constant_of(value.key) in LABEL_NAMES
    return isinstance(value, Attribute) and value.name in LABEL_NAMES


def _never_true_comparisons(
    module: Module, trace: Trace, compared: set[int]
) -> Iterator[ConstantResult]:
    """Comparisons that never hold: of a text with a number, of a number with a text, or of two
    spellings.
    """
    for value in trace.values:
        if not isinstance(value, Operation) or value.operator not in EQUALITIES:
            continue
        if id(value.node) not in compared or len(value.operands) != 2 or value.node is None:
            continue
        always = "always" if value.operator.startswith(("!", "not")) else "never"
        for reason in _reasons_comparison_never_holds(module, value):
            message = f"the comparison is {always} true: {reason}"
            yield ConstantResult(value.node, message, "comparison", True)


def _reasons_comparison_never_holds(module: Module, compared: Operation) -> Iterator[str]:
    """Why a side of a comparison never equals the constants of the other one; none where it may."""
    first, second = compared.operands
    # Of `in`, the second side is the list: it is not looked for in the first one.
    sides = ((first, second),) if "in" in compared.operator else ((first, second), (second, first))
    for side, other in sides:
        wanted = _compared_constants(other, compared.operator)
        reason = _reason_never_equal(module, side, wanted) if wanted else ""
        if reason:
            yield reason


def _compared_constants(other: Value, operator: str) -> tuple[Any, ...]:
    """The constants that a side is compared with; none where they are not known."""
    plain = constant_of(other, with_defaults=False)
    if plain is NO_CONSTANT or plain is None:
        return ()
    if "in" in operator:
        is_list = isinstance(plain, list | tuple | set | frozenset)
        return tuple(plain) if is_list else ()
    return (plain,) if isinstance(plain, str | int | float) else ()


def _reason_never_equal(module: Module, side: Value, wanted: tuple[Any, ...]) -> str:
    """Why no value of a side equals one of the wanted ones, although they mean the same; empty
    where one may.
    """
    values = distinct_values_of_expression(module, side)
    if values is not None:
        if any(one == other for one in values.values for other in wanted):
            return ""
        alike = next(
            (
                (one, other)
                for one in values.values
                for other in wanted
                if _normalized_spelling(one) == _normalized_spelling(other)
            ),
            None,
        )
        if alike is None:
            return ""
        return f"{alike[0]!r} is not {alike[1]!r}; {_column_with_values_text(values)}"
    is_of_numbers = all(isinstance(one, int | float) for one in wanted)
    if is_text_in_each_row(side) and is_of_numbers:
        return f"text is compared with the number {wanted[0]!r}"
    return ""


def _normalized_spelling(value: Any) -> str:
    """The spelling of a value, compared without its type, case and blanks around it."""
    text = str(value).strip().lower()
    return {"true": "1", "false": "0", "1.0": "1", "0.0": "0"}.get(text, text)


def _column_with_values_text(values: ColumnValues) -> str:
    """A description of the column with its values, for a message."""
    shown = ", ".join(repr(one) for one in values.raw[:MAX_SHOWN])
    rest = ", ..." if len(values.raw) > MAX_SHOWN else ""
    return f"`{values.column}` of {values.source} contains {shown}{rest}"


def always_true_alternatives(module: Module) -> Iterator[ast.BoolOp]:
    """Conditions with an alternative that is always true: `x == "a" or "b"`."""
    for node in module.nodes(ast.BoolOp):
        if isinstance(node.op, ast.Or) and any(
            isinstance(first, ast.Compare) and _is_true_constant(second)
            for first, second in zip(node.values, node.values[1:], strict=False)
        ):
            yield node


def _is_true_constant(node: ast.expr) -> bool:
    """Is it a text or number that counts as true?"""
    return isinstance(node, ast.Constant) and isinstance(node.value, str | int) and bool(node.value)
