"""Finds two files that hold the same things row by row: tickets in one, and the reply to each of
them in the other.

How it works: both are read where they lie beside the script. They are parallel where a column of
ids that both have holds the same id at nearly each place; or, where they share no ids, where both
have the same number of rows.

The trade-off: of a filter it is counted how many rows it leaves out only where it is `dropna` or
`drop_duplicates`; another one is taken to leave out some.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from truetune.checks.source.evidence.file_rows_behind_values import FileRows, local_rows_of_value
from truetune.checks.source.evidence.files_joined_in_different_order import ID_COLUMN, MIN_ROWS
from truetune.checks.source.evidence.row_filters_and_sorts import Alignment, AlignmentChange
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.values_of_run import Value

MIN_IN_PLACE = 0.95
"""Share of the places at which both hold one id. Chosen, not measured: a file may lack its last rows"""
COUNTED_FILTERS = ("dropna", "drop_duplicates")
"""Methods of frames whose left out rows can be counted without running the script"""
MISSING = ("", "nan", "NaN", "null", "None", "NA", "N/A")
"""Cells that a reader of tables takes for missing"""
Rows = tuple[Mapping[str, Any], ...]


class ParallelFiles(NamedTuple):
    """Two files whose rows belong together by their places."""

    names: tuple[str, str]
    column: str
    """The ids that both hold; empty where only the number of rows says it"""
    rows: int

    def describe(self) -> str:
        """What makes the files parallel, as a note for a finding."""
        one, other = self.names
        if self.column:
            return f"{one} and {other} hold the same `{self.column}` at each of {self.rows:,} places, as they are read"
        return f"{one} and {other} have {self.rows:,} rows each, as they are read"


def find_parallel_files(
    module: Module, sides: list[Value], ways: list[Alignment]
) -> ParallelFiles | None:
    """The two files that two sides of a join are read from, where their rows belong together; None
    for any others.
    """
    if len(sides) != 2 or ways[0].source == ways[1].source:
        return None
    # A source that is not named is a value that something else was done to: an index that was set, a join by a key.
    if not all(isinstance(way.source, tuple) for way in ways):
        return None
    one, other = (local_rows_of_value(module, side) for side in sides)
    if one is None or other is None or one.source == other.source:
        return None
    return _parallel_by_ids_or_counts(one, other)


def _parallel_by_ids_or_counts(one: FileRows, other: FileRows) -> ParallelFiles | None:
    """Two files as they are read, if they are parallel: by a column of ids, else by equal counts."""
    names, rows = (one.source, other.source), min(len(one.rows), len(other.rows))
    if rows < MIN_ROWS:
        return None
    shared = [name for name in one.rows[0] if name in other.rows[0] and ID_COLUMN.fullmatch(name)]
    for column in shared:
        if _have_same_ids_row_by_row(one, other, column):
            return ParallelFiles(names, column, rows)
    is_equal = len(one.rows) == len(other.rows)
    return ParallelFiles(names, "", rows) if is_equal and not shared else None


def _have_same_ids_row_by_row(one: FileRows, other: FileRows, column: str) -> bool:
    """Has a column of ids, most of them different, the same id in nearly each row of both files?"""
    pairs = [(a.get(column), b.get(column)) for a, b in zip(one.rows, other.rows, strict=False)]
    different = {first for first, _ in pairs if first is not None}
    in_place = sum(first == second and first is not None for first, second in pairs)
    longest = max(len(one.rows), len(other.rows))
    return len(different) > len(pairs) // 2 and in_place >= MIN_IN_PLACE * longest


def _subset_columns(module: Module, call: ast.Call) -> tuple[str, ...] | None:
    """The columns that `dropna` or `drop_duplicates` looks at, empty for all; None where they are
    not known.
    """
    subset = next((one.value for one in call.keywords if one.arg == "subset"), None)
    given = subset if subset is not None else next(iter(call.args), None)
    value = module.flow.value(given) if given is not None else None
    if value is None:
        return ()
    columns = (value,) if isinstance(value, str) else value
    return tuple(columns) if isinstance(columns, list | tuple) else None


def filter_leaves_rows_out(module: Module, side: Value, change: AlignmentChange) -> bool:
    """Does a filter leave rows of a file out? One that is not known here is taken to."""
    file_rows = local_rows_of_value(module, side)
    call = change.node
    method = _called_method(call)
    if file_rows is None or not isinstance(call, ast.Call) or method not in COUNTED_FILTERS:
        return True
    columns = _subset_columns(module, call)
    if columns is None:
        return True
    picked = [tuple(row.get(name) for name in columns or row) for row in file_rows.rows]
    if method == "drop_duplicates":
        return len(set(map(str, picked))) < len(picked)
    return any(one is None or one in MISSING for cells in picked for one in cells)


def _called_method(node: ast.AST | None) -> str:
    """The name of the method that a node calls; empty where it calls none."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr
    return ""
