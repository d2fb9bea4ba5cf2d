"""Computes on the columns of a data frame item by item: operators, pandas methods, and rows chosen
by a boolean column.

How it works: a column is a list of its own kind (`COLUMN`). An operator on it is the operator on each item, with a
plain value or with the item of another column at the same place.

The trade-off: where the result of one item is not known, that of the whole column is not. Missing values are None here,
never NaN, so that what pandas does with NaN in a comparison is what is done with None.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from truetune.data.script_rows.compute_dataset_methods_on_known_rows import (
    COLUMN,
    Call,
    Table,
    make_table,
)
from truetune.source.symbolic_execution.fold_constants import compute_operator, constant_of
from truetune.source.symbolic_execution.lists_and_dicts import call_text_method
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Library,
    Mapping,
    Sequence,
    Value,
)

SAME_ITEMS = ("reset_index", "copy", "rename")
EMPTINESS_METHODS = {"isna": True, "isnull": True, "notna": False, "notnull": False}
"""Methods that ask for missing values, and whether they say True of one"""
COMPARING_METHODS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
ADDING_METHODS = {"add": "+", "sub": "-", "mul": "*"}
COMPARISONS = frozenset(COMPARING_METHODS.values())
OPERATORS = COMPARISONS | frozenset(("+", "-", "*", "/", "%", "&", "|", "~"))
METHODS_WITH_ARGUMENT = frozenset(("map", "apply", "astype", "fillna", "isin"))
"""Methods of all columns, which take one argument; others are those of texts"""
TYPES: dict[str, type] = {
    "bool": bool,
    "boolean": bool,
    "str": str,
    "string": str,
    "int": int,
    "int8": int,
    "int32": int,
    "int64": int,
    "float": float,
    "float32": float,
    "float64": float,
}
"""Names that `astype` takes"""


def is_frame_column(value: Value) -> TypeGuard[Sequence]:
    """Is it a column of a frame?"""
    return isinstance(value, Sequence) and value.kind == COLUMN


def operate_on_columns(sign: str, operands: tuple[Value, ...]) -> Sequence | None:
    """An operator with a column, item by item; None where the result of an item is not known."""
    columns = [one for one in operands if is_frame_column(one)]
    counts = {len(one.items) for one in columns}
    if len(counts) != 1 or sign not in OPERATORS:
        return None
    results: list[Value] = []
    for place in range(counts.pop()):
        parts = [_plain_item_at(one, place) for one in operands]
        result = _apply_operator(sign, parts)
        if result is NO_CONSTANT:
            return None
        results.append(Constant(result))
    return Sequence(COLUMN, results)


def _plain_item_at(operand: Value, place: int) -> Any:
    """The plain value of an operand at one index of the columns; a single value is the same at
    each.
    """
    return constant_of(operand.items[place] if is_frame_column(operand) else operand)


def _apply_operator(sign: str, parts: list[Any]) -> Any:
    """An operator on the plain values of one place."""
    if any(one is NO_CONSTANT for one in parts):
        return NO_CONSTANT
    if sign == "~":
        return not parts[0] if isinstance(parts[0], bool) else NO_CONSTANT
    if None in parts:
        # A missing value is unequal to all others, to another missing one too.
        return sign == "!=" if sign in COMPARISONS else NO_CONSTANT
    return compute_operator(sign, *parts)


def call_column_method(
    column: Sequence, method: str, args: tuple[Value, ...], call: Call
) -> Value | None:
    """The result of a method of a column; None if it is not known.

    Args:
        column: The column, or its `.str`.
        method: The method's name.
        args: Its arguments by position.
        call: Calls a function of the script.
    """
    if method in ("tolist", "to_list"):
        return Sequence("list", list(column.items))
    if method in SAME_ITEMS:
        return Sequence(COLUMN, list(column.items))
    if method in COMPARING_METHODS or method in ADDING_METHODS:
        sign = COMPARING_METHODS.get(method) or ADDING_METHODS[method]
        return operate_on_columns(sign, (column, args[0])) if args else None
    results = [_call_method_on_item(item, method, args, call) for item in column.items]
    known = [one for one in results if one is not None]
    return Sequence(COLUMN, list(known)) if len(known) == len(results) else None


def _call_method_on_item(
    item: Value, method: str, args: tuple[Value, ...], call: Call
) -> Value | None:
    """The result of a column's method for one item."""
    plain = constant_of(item)
    if method in EMPTINESS_METHODS:
        return _isna_or_notna_of_item(item, plain, of_missing=EMPTINESS_METHODS[method])
    if method == "len":
        return Constant(len(plain)) if isinstance(plain, str | list) else None
    if not args or method not in METHODS_WITH_ARGUMENT:
        return call_text_method(plain, method, args) if isinstance(plain, str) else None
    first = args[0]
    if method in ("map", "apply"):
        return _map_item(item, first, call)
    if method == "astype":
        return _cast_item(item, plain, first)
    if method == "fillna":
        return first if plain is None else item
    return _is_item_in(plain, constant_of(first))


def _isna_or_notna_of_item(item: Value, plain: Any, *, of_missing: bool) -> Value | None:
    """`isna` or `notna` of one item. A list is present, even if its items are not known."""
    is_known = plain is not NO_CONSTANT or isinstance(item, Sequence | Mapping)
    return Constant((plain is None) == of_missing) if is_known else None


def _is_item_in(plain: Any, chosen: Any) -> Value | None:
    """What `isin` says of an item."""
    is_known = isinstance(chosen, list | tuple | set) and plain is not NO_CONSTANT
    return Constant(plain in chosen) if is_known else None


def _map_item(item: Value, function: Value, call: Call) -> Value | None:
    """The result of `map` for one item, by a function or by a dictionary, which has None for what
    it does not hold.
    """
    if not isinstance(function, Mapping):
        return call(function, (item,), {})
    plain = constant_of(item)
    if function.is_open or function.rest is not None or plain is NO_CONSTANT:
        return None
    try:
        return function.entries.get(plain, Constant(None))
    except TypeError:
        return None  # a list can't be looked up


def _cast_item(item: Value, plain: Any, wanted: Value) -> Value | None:
    """The result of `astype` for one item. It calls the type, so that `bool` of -1, 2 and any text
    is True.
    """
    name = wanted.name if isinstance(wanted, Library) else constant_of(wanted)
    kind = TYPES.get(name.rpartition(".")[2]) if isinstance(name, str) else None
    if kind is None:
        return item  # a category, or a type that changes no text
    if plain is NO_CONSTANT:
        return None
    try:
        return Constant(kind(plain))
    except (TypeError, ValueError, OverflowError):
        return None


def rows_selected_by_mask(table: Table, column: Sequence) -> Table | None:
    """`frame[frame["score"] > 3]`: the rows of a table for which a boolean column is true; None if
    it is not known.
    """
    verdicts = [constant_of(one) for one in column.items]
    if len(verdicts) != len(table.rows) or not all(isinstance(one, bool) for one in verdicts):
        return None
    kept = [row for row, verdict in zip(table.rows, verdicts, strict=True) if verdict]
    return make_table(kept, table)
