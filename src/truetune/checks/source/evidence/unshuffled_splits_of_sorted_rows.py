"""Finds splits of sorted rows in file order that leave classes to the test part alone.

How it works: a split in file order (`shuffle=False`, `rows[:n]` and `rows[n:]`) is made on the rows
of the file; a column of few values tells which of them stand in the last part alone.

The trade-off: where anything on the way from the file filters, sorts or shuffles, nothing is known.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.source.evidence.file_rows_behind_values import FileRows, local_rows_of_value
from truetune.checks.source.evidence.row_filters_and_sorts import SHUFFLES, alignment_to_source
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Item,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
)

SKLEARN = ("sklearn.model_selection.train_test_split",)
DEFAULT_TEST_SHARE = 0.25
"""Of `train_test_split`, in sklearn and in datasets"""
MAX_CLASSES = 20
"""Different values of a column that is a class, a topic or a language"""
MIN_ROWS_PER_CLASS = 3
"""Rows for each value, on average, from which a column is one of classes. Chosen by hand: with fewer,
the values are nearly all different and a split lacks some of them by chance
"""
MIN_ROWS = 10
"""Fewer rows are an example"""


class ClassInTestPartOnly(NamedTuple):
    """A split that leaves values of a column to the test part alone."""

    node: ast.AST
    column: str
    only_in_test: tuple[str, ...]
    test_rows: int
    source: str


def splits_with_class_in_test_only(module: Module) -> Iterator[ClassInTestPartOnly]:
    """The splits of a file that leave values of a column to the test part alone, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if any(trace.calls(*SHUFFLES)):
            continue
        for split in (
            *_one_sided_splits_by_calls(trace, module),
            *_one_sided_splits_by_slices(trace, module),
        ):
            if split.node not in seen:
                seen.add(split.node)
                yield split


def _one_sided_splits_by_calls(trace: Trace, module: Module) -> Iterator[ClassInTestPartOnly]:
    """The one-sided splits by `train_test_split(..., shuffle=False)` of datasets and of sklearn."""
    for call in trace.all_calls:
        is_method = call.method == "train_test_split"
        if call.home.path != module.path or not (is_method or call.named(*SKLEARN)):
            continue
        shuffles = call.keywords.get("shuffle")
        data = call.receiver if is_method else next(iter(call.args), None)
        if data is None or shuffles is None or constant_of(shuffles) is not False:
            continue
        rows = rows_in_file_order(trace, module, data)
        share = _test_share_or_number(call)
        if rows is not None and share is not None:
            count = len(rows.rows)
            size = round(share * count) if isinstance(share, float) else share
            yield from _first_column_with_test_only_values(call.node, rows, count - size)


def _test_share_or_number(call: CallEvent) -> float | int | None:
    """The share or number of test rows; None where it is not known."""
    test_size_argument = call.argument(0 if call.method == "train_test_split" else -1, "test_size")
    if test_size_argument is None:
        train = call.keywords.get("train_size")
        plain = None if train is None else constant_of(train)
        if train is None:
            return DEFAULT_TEST_SHARE
        return 1 - plain if isinstance(plain, float) else None
    plain = constant_of(test_size_argument)
    return plain if isinstance(plain, int | float) and not isinstance(plain, bool) else None


def _one_sided_splits_by_slices(trace: Trace, module: Module) -> Iterator[ClassInTestPartOnly]:
    """The one-sided splits by two slices: `rows[:n]` and `rows[n:]`."""
    for tail, start in second_slices_with_bound(trace):
        node = tail.key.node
        if node is None or not module.holds(node):
            continue
        rows = rows_in_file_order(trace, module, tail.base)
        row = None if rows is None else _bound_as_row_number(start, len(rows.rows))
        if rows is not None and row is not None:
            yield from _first_column_with_test_only_values(node, rows, row)


def second_slices_with_bound(trace: Trace) -> Iterator[tuple[Item, Value]]:
    """The second slice of each split of a run into `rows[:n]` and `rows[n:]`, with `n`; both bounds
    are written alike.
    """
    heads: set[tuple[int, str]] = set()
    tails: dict[tuple[int, str], tuple[Item, Value]] = {}
    for part in slices_of_run(trace):
        key = part.key
        if not isinstance(key, Slice) or key.step is not None:
            continue
        if key.start is None and key.stop is not None and key.stop.node is not None:
            heads.add((id(part.base), ast.unparse(key.stop.node)))
        elif key.stop is None and key.start is not None and key.start.node is not None:
            tails[id(part.base), ast.unparse(key.start.node)] = (part, key.start)
    for place, tail in tails.items():
        if place in heads:
            yield tail


def slices_of_run(trace: Trace) -> Iterator[Item]:
    """The slices of a run: of what is not known, and of lists that it makes."""
    for value in trace.values:
        if isinstance(value, Item):
            yield value
        elif isinstance(value, Sequence) and value.part_of is not None:
            yield value.part_of


def _bound_as_row_number(bound: Value, count: int) -> int | None:
    """The row number that the bound of a slice is: `n` of `rows[n:]`, also as `int(0.8 *
    len(rows))`; None where it is not known.
    """
    plain = constant_of(bound)
    if type(plain) is int:
        return plain if plain >= 0 else count + plain
    if isinstance(bound, Result) and bound.call.named("int", "round") and bound.call.args:
        bound = bound.call.args[0]
    return _row_number_of_share(bound, count) if isinstance(bound, Operation) else None


def _row_number_of_share(product: Operation, count: int) -> int | None:
    """The row number that is a share of all rows, rounded down: `0.8 * len(rows)`, `len(rows) //
    5`; None for any other operation.
    """
    lengths = [one for one in product.operands if isinstance(one, Result) and one.call.named("len")]
    factors = map(constant_of, product.operands)
    numbers = [one for one in factors if isinstance(one, int | float)]
    if product.operator not in ("*", "//") or len(lengths) != 1 or len(numbers) != 1:
        return None
    return int(count * numbers[0]) if product.operator == "*" else int(count // numbers[0])


def rows_in_file_order(trace: Trace, module: Module, data: Value) -> FileRows | None:
    """The rows of a file, where a data set certainly holds them in their order."""
    if alignment_to_source(trace, data).changes:
        return None
    rows = local_rows_of_value(module, data)
    return rows if rows is not None and rows.is_whole and len(rows.rows) >= MIN_ROWS else None


def _first_column_with_test_only_values(
    node: ast.AST, rows: FileRows, start: int
) -> Iterator[ClassInTestPartOnly]:
    """The first column with values that stand in the rows from `start` on alone."""
    if not 0 < start < len(rows.rows):
        return
    for column in columns_of_few_values(rows.rows):
        cells = [row[column] for row in rows.rows]
        only = [one for one in dict.fromkeys(cells[start:]) if one not in set(cells[:start])]
        if only:
            names = tuple(str(one) for one in only)
            yield ClassInTestPartOnly(node, column, names, len(rows.rows) - start, rows.source)
            return


def columns_of_few_values(rows: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    """Columns of few values, which stand in every row."""
    for column in rows[0]:
        if not all(column in row for row in rows):
            continue
        cells = [row[column] for row in rows]
        if not all(isinstance(cell, Hashable) and cell is not None for cell in cells):
            continue
        distinct = len(set(cells))
        if 2 <= distinct <= MAX_CLASSES and len(cells) >= MIN_ROWS_PER_CLASS * distinct:
            yield column
