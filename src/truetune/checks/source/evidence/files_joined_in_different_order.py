"""Finds joins by position of two files whose ids stand in another order.

How it works: each side of a `zip`, a frame of columns or a new column is followed to the file that
it was read from, in the symbolic run; where both files have a column of ids, which are distinct and
nearly the same, their order is compared, behind a sort by a column.

The trade-off: a side that the script shuffles, filters or looks up by id is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.source.evidence.file_rows_behind_values import FileRows, local_rows_of_value
from truetune.checks.source.evidence.row_filters_and_sorts import alignment_to_source
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Constant, Value
from truetune.source.symbolic_execution.values_of_run import Mapping as MappingValue

ID_COLUMN = re.compile(r"(?:\w+_)?(?:id|idx|index|uid|uuid|qid|key|number)", re.I)
SLASHED_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")
"""`24.12.2025`, `12/24/25`: in another order as a text than as a date"""
MIN_ROWS = 8
"""Fewer ids may agree by chance. Chosen, not measured"""
# Chosen, not measured: a file that lacks a few rows is still the other's; of two others next to none agree.
MIN_COMMON, MAX_IN_PLACE = 0.8, 0.9
"""Share of the ids that both files have, and of the places that hold one id in both, from which all is well"""


MIN_DISTINCT = 0.95
"""Share of the values that rows are sorted by which differ. Chosen, not measured: two tickets may be of one second"""


class FilesInOtherOrder(NamedTuple):
    """A join of two files whose rows stand in another order."""

    node: ast.AST
    what: str
    """What joins them: `zip`, `the frame`"""
    column: str
    files: tuple[str, str]
    first: tuple[object, object]
    """The ids at the first place that differs"""
    different: int
    rows: int


class _Join(NamedTuple):
    """Two sides that are joined."""

    node: ast.AST
    what: str
    sides: tuple[Value, Value]
    by_place: bool
    """Does the place of a row count, and not the index that a frame gave it?"""


def files_in_other_order(module: Module) -> Iterator[FilesInOtherOrder]:
    """The joins by position of a script whose files hold other rows at one place, each once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for join in _joins_by_position(trace, module):
            if join.node in seen:
                continue
            sides = [_ordered_rows_of_side(trace, module, side, join) for side in join.sides]
            found = _first_id_column_in_other_order(join, sides[0], sides[1])
            if found is not None:
                seen.add(join.node)
                yield found


def _joins_by_position(trace: Trace, module: Module) -> Iterator[_Join]:
    """The joins of two sides by position in one run: `zip`, a frame or data set of columns, a
    column that a frame gets.
    """
    for call in trace.all_calls:
        if call.home.path != module.path or call.is_in_later_loop_pass:
            continue
        if call.named("zip") and len(call.args) == 2:
            yield _Join(call.node, "zip", (call.args[0], call.args[1]), True)
        elif call.named("pandas.DataFrame", "datasets.Dataset.from_dict") and call.args:
            yield from _joins_of_columns(trace, call)
    yield from _joins_of_new_columns(trace, module)


def _joins_of_new_columns(trace: Trace, module: Module) -> Iterator[_Join]:
    """The joins by which a frame gets a column: `frame["answer"] = answers`."""
    for store in trace.stores:
        is_column = not isinstance(store.key, str) and isinstance(constant_of(store.key), str)
        if store.home.path == module.path and not store.is_in_later_loop_pass and is_column:
            sides = (store.base, store.value)
            yield _Join(
                store.node, "the new column", sides, _is_side_joined_by_position(trace, store.value)
            )


def _joins_of_columns(trace: Trace, call: CallEvent) -> Iterator[_Join]:
    """The joins of columns into one table: the first column with each other one.

    `DataFrame({"question": a["text"].values, "answer": b["text"].values})`.
    """
    columns = call.args[0]
    if not isinstance(columns, MappingValue) or columns.is_open:
        return
    sides = [one for one in columns.entries.values() if not isinstance(one, Constant)]
    what = "the frame" if call.named("pandas.*") else "from_dict"
    for other in sides[1:]:
        by_place = what == "from_dict" or any(
            _is_side_joined_by_position(trace, one) for one in (sides[0], other)
        )
        yield _Join(call.node, what, (sides[0], other), by_place)


def _is_side_joined_by_position(trace: Trace, side: Value) -> bool:
    """Is a side a list or array, which is joined by position? A frame is joined by its index."""
    return alignment_to_source(trace, side).is_positional


def _ordered_rows_of_side(
    trace: Trace, module: Module, side: Value, join: _Join
) -> FileRows | None:
    """The rows of a side as the script puts them in order; None where that is not known."""
    way = alignment_to_source(trace, side)
    # A source that is not named is a value that something else was done to: an index that was set, a join by a key.
    if join.what != "zip" and not isinstance(way.source, tuple):
        return None
    file_rows = local_rows_of_value(module, side)
    if file_rows is None or not way.changes or not (join.by_place or way.is_renumbered):
        return file_rows
    [change, *others] = way.changes
    if others or change.kind != "order":
        return None
    rows = _rows_after_sort(file_rows.rows, change.node)
    return None if rows is None else file_rows._replace(rows=rows)


def _rows_after_sort(
    rows: tuple[Mapping[str, Any], ...], node: ast.AST
) -> tuple[Mapping[str, Any], ...] | None:
    """The rows after a `sort_values("a")`, or a `sorted` by a column; None where their order is not
    known.
    """
    if not isinstance(node, ast.Call):
        return None
    words = {one.arg: one.value for one in node.keywords}
    column = _sort_column(node, words)
    falling = next((words[name] for name in ("ascending", "reverse") if name in words), None)
    if column is None or not (falling is None or isinstance(falling, ast.Constant)):
        return None
    is_falling = isinstance(falling, ast.Constant) and falling.value is ("reverse" in words)
    return _rows_sorted_by_column(rows, column, is_falling=is_falling)


def _rows_sorted_by_column(
    rows: tuple[Mapping[str, Any], ...], column: str, *, is_falling: bool
) -> tuple[Mapping[str, Any], ...] | None:
    """Rows in the order of a column; None where its values are of several types, or too many are
    equal.
    """
    values = [row.get(column) for row in rows]
    keys = _cells_as_numbers(values) or _cells_as_texts(values)
    # Rows with one value stand in any order behind pandas' sort.
    if keys is None or len(set(keys)) < MIN_DISTINCT * len(keys):
        return None
    order = sorted(range(len(rows)), key=keys.__getitem__, reverse=is_falling)
    return tuple(rows[place] for place in order)


def _sort_column(node: ast.Call, words: Mapping[str | None, ast.expr]) -> str | None:
    """The one column that rows are sorted by; None for several, and for a key that is computed."""
    is_of_table = isinstance(node.func, ast.Attribute) and node.func.attr in ("sort_values", "sort")
    key = _sort_key_of_table(node, words) if is_of_table else _sort_key_of_rows(words.get("key"))
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return key.value
    return None


def _sort_key_of_table(node: ast.Call, words: Mapping[str | None, ast.expr]) -> ast.expr | None:
    """What `sort_values` of pandas, or `sort` of datasets, sorts by."""
    key = words.get("by") or words.get("column_names") or next(iter(node.args), None)
    return key.elts[0] if isinstance(key, ast.List) and len(key.elts) == 1 else key


def _sort_key_of_rows(key: ast.expr | None) -> ast.expr | None:
    """What `sorted` sorts rows by: `lambda row: row["id"]`, `itemgetter("id")`."""
    if isinstance(key, ast.Lambda):
        return key.body.slice if isinstance(key.body, ast.Subscript) else None
    if isinstance(key, ast.Call) and ast.unparse(key.func).endswith("itemgetter"):
        return key.args[0] if len(key.args) == 1 else None
    return None


def _cells_as_numbers(values: list[Any]) -> list[float] | None:
    """Cells as the numbers that readers of tables make of them; None where one is none."""
    try:
        numbers = [float(one) for one in values]
    except (TypeError, ValueError):
        return None
    return numbers if all(one == one for one in numbers) else None


def _cells_as_texts(values: list[Any]) -> list[str] | None:
    """Cells as texts, in the order of which their dates are, too; None where one is missing."""
    texts = [one for one in values if isinstance(one, str) and one]
    has_dates = any(SLASHED_DATE.match(one) for one in texts)
    return texts if len(texts) == len(values) and not has_dates else None


def _first_id_column_in_other_order(
    join: _Join, one: FileRows | None, other: FileRows | None
) -> FilesInOtherOrder | None:
    """The first column of ids that both files have, where its order differs."""
    if one is None or other is None or one.source == other.source:
        return None
    for column in one.rows[0]:
        if not ID_COLUMN.fullmatch(column):
            continue
        ids, others = _unique_ids(one.rows, column), _unique_ids(other.rows, column)
        if len(ids) < MIN_ROWS or not others:
            continue
        if len(set(ids) & set(others)) < MIN_COMMON * max(len(ids), len(others)):
            continue
        pairs = list(zip(ids, others, strict=False))
        different = [pair for pair in pairs if pair[0] != pair[1]]
        if len(different) > (1 - MAX_IN_PLACE) * len(pairs):
            files = (one.source, other.source)
            return FilesInOtherOrder(
                join.node, join.what, column, files, different[0], len(different), len(pairs)
            )
    return None


def _unique_ids(rows: tuple[Mapping[str, Any], ...], column: str) -> list[str]:
    """The ids of the rows; none where a row has none, or where two have one."""
    ids = [row.get(column) for row in rows]
    texts = [str(one) for one in ids if isinstance(one, str | int)]
    return texts if len(texts) == len(ids) == len(set(texts)) else []
