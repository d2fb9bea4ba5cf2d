"""Computes the values that an expression over one column takes in the rows of a file, and whether
it is a text in each row.

How it works: a cell (`row["label"]`, `frame.label`, `row.get("label")`) leads to the rows that it
comes from, and their values go through the casts and text methods of the script. Of files that the
library types itself (`pandas.read_csv`) numbers and truth values are made as it does;
`csv.DictReader` leaves texts.

The trade-off: whatever else stands on the way ends it, and then nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from truetune.checks.source.evidence.file_rows_behind_values import (
    TEXT_SUFFIXES,
    FileRows,
    local_rows_of_value,
    readers_of_value,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Attribute,
    Item,
    Library,
    Option,
    Result,
    Value,
)

TEXT_METHODS = frozenset(
    ("lower", "upper", "strip", "lstrip", "rstrip", "title", "capitalize", "casefold")
)
CASTS: dict[str, Callable[[Any], Any]] = {"str": str, "int": int, "float": float, "bool": bool}
KEEPS_VALUES = frozenset(("copy", "fillna", "to_list", "tolist", "to_numpy", "reset_index"))
KEEPING_ATTRIBUTES = frozenset(("str", "values", "array"))
CSV_CELLS = ("csv.DictReader", "csv.reader")
MAX_DEPTH = 8
"""Casts and methods around one cell"""
MAX_DISTINCT = 50
"""Different values of a column that is a class, a switch or a grade; more are a text or a measure"""


class ColumnValues(NamedTuple):
    """The different values of an expression over the rows of a file."""

    values: tuple[Any, ...]
    raw: tuple[Any, ...]
    """Those of the column itself, in the same order"""
    column: str
    source: str


def distinct_values_of_expression(
    module: Module, value: Value, depth: int = 0
) -> ColumnValues | None:
    """The different values of an expression over one column of a file; None where they are not
    known, or are many.
    """
    if depth > MAX_DEPTH:
        return None
    name = column_of_cell(value)
    if name is not None:
        column_values = _distinct_values_of_column(module, value, name)
        if column_values is not None:
            return column_values
    inner, change = _source_and_conversion(value)
    if inner is None:
        return None
    column_values = distinct_values_of_expression(module, inner, depth + 1)
    if column_values is None or change is None:
        return column_values
    try:
        return column_values._replace(values=tuple(change(one) for one in column_values.values))
    except (TypeError, ValueError, AttributeError):
        return None


def is_text_in_each_row(value: Value) -> bool:
    """Is it certainly a text in each row, whatever the rows hold?"""
    if isinstance(value, Result):
        if value.call.method in TEXT_METHODS and not value.call.names:
            return True
        return value.call.named("str", "input")
    if isinstance(value, Option):
        return False
    name = column_of_cell(value)
    if name is None:
        return False
    readers = readers_of_value(value)
    return bool(readers) and all(one.named(*CSV_CELLS) for one in readers)


def column_of_cell(value: Value) -> str | None:
    """The column of `row["label"]`, `row.get("label")` or `row.label`; None for anything else."""
    if isinstance(value, Item):
        key = constant_of(value.key)
        return key if isinstance(key, str) else None
    if isinstance(value, Attribute):
        return value.name
    if isinstance(value, Result) and value.call.method == "get" and value.call.args:
        key = constant_of(value.call.args[0])
        return key if isinstance(key, str) else None
    return None


def _distinct_values_of_column(module: Module, value: Value, name: str) -> ColumnValues | None:
    """The different values of a column; None where the rows are not here, lack it, or hold many."""
    rows = local_rows_of_value(module, value)
    if rows is None or not all(name in row for row in rows.rows):
        return None
    cells = [row[name] for row in rows.rows]
    if any(isinstance(cell, list | dict) for cell in cells):
        return None
    distinct = _distinct_by_type_and_value(_cells_as_script_reads_them(cells, rows))
    if not 0 < len(distinct) <= MAX_DISTINCT:
        return None
    return ColumnValues(distinct, distinct, name, rows.source)


def _distinct_by_type_and_value(cells: Iterable[Any]) -> tuple[Any, ...]:
    """Each value once; 1, 1.0 and True are three."""
    seen = {(type(cell), cell): cell for cell in cells}
    return tuple(seen.values())


def _cells_as_script_reads_them(cells: list[Any], rows: FileRows) -> list[Any]:
    """The cells as the script gets them: of a table of texts, numbers where the library makes them."""
    if rows.are_texts or not rows.source.lower().endswith(TEXT_SUFFIXES):
        return cells
    words = {"true": True, "false": False}
    texts = [str(cell).strip() for cell in cells if cell not in (None, "")]
    if all(text.lower() in words and text[:1].isalpha() for text in texts):
        return [words.get(str(cell).strip().lower(), cell) for cell in cells]
    for cast in (int, float):
        try:
            return [cast(cell) for cell in cells]
        except (TypeError, ValueError):
            continue
    return cells


def _source_and_conversion(value: Value) -> tuple[Value | None, Callable[[Any], Any] | None]:
    """What a value is a cast or text method of, and that as a function; None where it is none that
    is known.
    """
    if isinstance(value, Attribute) and value.name in KEEPING_ATTRIBUTES:
        return value.base, None
    if not isinstance(value, Result):
        return None, None
    call = value.call
    if call.method in KEEPS_VALUES:
        return call.receiver, None
    if call.method in TEXT_METHODS:
        return call.receiver, _text_method_as_function(call)
    if call.method in ("astype", "map", "apply") and call.args:
        return call.receiver, _cast_as_function(call.args[0])
    for name, cast in CASTS.items():
        if call.named(name) and len(call.args) == 1 and not call.keywords:
            return call.args[0], cast
    return None, None


def _text_method_as_function(call: CallEvent) -> Callable[[Any], Any]:
    """The method of texts that a call runs, as a function of the text."""
    method, given = call.method or "", [constant_of(one) for one in call.args]

    def change(text: Any) -> Any:
        if any(one is NO_CONSTANT for one in given) or not isinstance(text, str):
            raise ValueError(method)
        return getattr(text, method)(*given)

    return change


def _cast_as_function(function: Value) -> Callable[[Any], Any]:
    """The Python function that casts as the given one does (`bool`, `"int"` or the like); one that
    fails on every value for any other.
    """
    name = function.name if isinstance(function, Library) else constant_of(function)
    if isinstance(name, str) and name.removeprefix("numpy.").rstrip("_") in CASTS:
        return CASTS[name.removeprefix("numpy.").rstrip("_")]

    def unknown(cell: Any) -> Any:
        raise ValueError(cell)

    return unknown
