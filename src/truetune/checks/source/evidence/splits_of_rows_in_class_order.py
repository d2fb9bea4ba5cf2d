"""Finds splits in order of rows that a script itself puts into the order of their classes.

How it works: in the symbolic run each pass of a loop is run twice, so a list of labels that is filled class by class
holds 0 0 1 1, and one that is filled row by row 0 1 0 1. `[1] * len(good) + [0] * len(bad)`, rows with a label in them,
tables made of such lists, and rows that are sorted by their label are followed as well.

The trade-off: labels that are no constants of the script (names of folders) are not known, and where anything in the
run shuffles, nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from truetune.checks.source.evidence.row_filters_and_sorts import SHUFFLES
from truetune.checks.source.evidence.unshuffled_splits_of_sorted_rows import (
    SKLEARN,
    second_slices_with_bound,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Attribute,
    Item,
    Mapping,
    Operation,
    Result,
    Sequence,
    Value,
)

LABEL_NAME = re.compile(
    r"(?:\w+_)?(?:labels?|class|classes|category|intent|sentiment|topic|target|y)", re.I
)
"""Keys of rows under which a class stands: one of a source or a file may be held out on purpose"""
TABLES = (
    "pandas.DataFrame",
    "datasets.Dataset.from_*",
    "numpy.array",
    "numpy.asarray",
    "torch.tensor",
    "list",
    "tuple",
    "zip",
)
"""What makes a table or list of lists, and keeps their order"""
SORTS = frozenset(("sort_values", "sort"))
MIXING_METHODS = ("shuffle", "permutation", "sample", "randperm")
MAX_DEPTH = 8
"""Tables and lists around one list of labels"""


class SplitInClassOrder(NamedTuple):
    """A split in order of rows that stand class by class."""

    node: ast.AST
    ordered: ast.AST | None
    """What puts them into that order"""
    classes: tuple[str, ...]
    """In their order; empty where the rows are sorted by a label"""


def splits_in_class_order(module: Module) -> Iterator[SplitInClassOrder]:
    """The splits of a file whose rows stand class by class, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if any(trace.calls(*SHUFFLES)) or any(trace.methods(*MIXING_METHODS)):
            continue
        for node, rows in _rows_split_in_order(trace, module):
            order = next(
                (found for one in rows if (found := _class_order(one, 0)) is not None), None
            )
            if order is not None and node not in seen:
                seen.add(node)
                yield SplitInClassOrder(node, *order)


def _rows_split_in_order(
    trace: Trace, module: Module
) -> Iterator[tuple[ast.AST, tuple[Value, ...]]]:
    """The places of splits in order, with what they split."""
    for call in trace.all_calls:
        is_method = call.method == "train_test_split"
        if call.home.path != module.path or not (is_method or call.named(*SKLEARN)):
            continue
        shuffles = call.keywords.get("shuffle")
        if shuffles is None or constant_of(shuffles) is not False:
            continue
        yield call.node, (call.receiver,) if is_method and call.receiver else call.args
    for tail, _ in second_slices_with_bound(trace):
        node = tail.key.node
        if node is not None and module.holds(node):
            yield node, (tail.base,)


def _class_order(value: Value, depth: int) -> tuple[ast.AST | None, tuple[str, ...]] | None:
    """What puts rows into the order of their classes, and the classes; None where nothing is known to do so."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Attribute):
        return (
            _class_order(value.base, depth + 1) if value.name in ("iloc", "loc", "values") else None
        )
    if isinstance(value, Item):
        return _class_order(value.base, depth + 1) if _is_column(value) else None
    if isinstance(value, Mapping):
        return _first_order(value.entries.values(), depth)
    if isinstance(value, Result):
        if _sorts_by_label(value):
            return value.call.node, ()
        return _first_order(value.call.args, depth) if value.call.named(*TABLES) else None
    classes = _blocks_of_constants(value)
    return None if classes is None else (value.node, classes)


def _first_order(values: Any, depth: int) -> tuple[ast.AST | None, tuple[str, ...]] | None:
    """The order of the first of these values that is in the order of classes."""
    orders = (_class_order(one, depth + 1) for one in values)
    return next((order for order in orders if order is not None), None)


def _is_column(item: Item) -> bool:
    """Is it a column of a table, `frame["label"]`?"""
    return isinstance(constant_of(item.key), str)


def _sorts_by_label(value: Result) -> bool:
    """Is it the result of a sort by a label: `sorted(rows, key=lambda row: row["label"])`, `sort_values("label")`?"""
    call = value.call
    if call.method not in SORTS and not call.named("sorted"):
        return False
    node = call.node
    if not isinstance(node, ast.Call):
        return False
    keys = [*node.args[0 if call.method in SORTS else 1 :], *node.keywords]
    parts = [part for key in keys for part in ast.walk(key)]
    # `key=lambda row: len(row["target"])` sorts by a length.
    if any(isinstance(part, ast.Call) for part in parts):
        return False
    return any(_is_name_of_label(part) for part in parts)


def _is_name_of_label(node: ast.AST) -> bool:
    """Is it the name of a column of labels, as a constant?"""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return LABEL_NAME.fullmatch(node.value) is not None


def _blocks_of_constants(value: Value) -> tuple[str, ...] | None:
    """The classes of a list whose labels stand in blocks, in their order; None for any other."""
    labels = _labels_of_list(value)
    if labels is None:
        return None
    blocks = [name for name, _ in groupby(labels)]
    return tuple(blocks) if 2 <= len(blocks) == len(set(blocks)) else None


def _labels_of_list(value: Value) -> list[str] | None:
    """The labels of a list of unknown length, in its order, as far as it is run; None where they are not constants."""
    if isinstance(value, Operation) and value.operator == "+":
        return _labels_of_joined_lists(value.operands)
    if isinstance(value, Operation) and value.operator == "*":
        return _labels_of_repeated_list(value.operands)
    if isinstance(value, Sequence) and value.kind == "list" and value.is_open:
        return _labels_of_items(value.items)
    return None


def _labels_of_joined_lists(lists: Iterable[Value]) -> list[str] | None:
    """The labels of lists one after the other; None where those of one are not known."""
    joined: list[str] = []
    for one in lists:
        labels = _labels_of_list(one)
        if labels is None:
            return None
        joined += labels
    return joined


def _labels_of_repeated_list(factors: Iterable[Value]) -> list[str] | None:
    """The labels of the list in `[item] * count`."""
    lists = [one for one in factors if isinstance(one, Sequence)]
    return _labels_of_items(lists[0].items) if len(lists) == 1 else None


def _labels_of_items(items: list[Value]) -> list[str] | None:
    """The label of each item: itself, or the one that a row holds; None where one has none."""
    labels = [_label_of_item(item) for item in items]
    return None if None in labels else [label for label in labels if label is not None]


def _label_of_item(item: Value) -> str | None:
    """A constant, or the constant that a row (a dictionary or a pair) holds as its label; None where it is none."""
    if isinstance(item, Mapping):
        named = [
            entry
            for key, entry in item.entries.items()
            if isinstance(key, str) and LABEL_NAME.fullmatch(key)
        ]
        item = named[0] if len(named) == 1 else item
    elif isinstance(item, Sequence) and item.kind == "tuple" and len(item.items) == 2:
        item = item.items[1]
    plain = constant_of(item)
    is_label = plain is not NO_CONSTANT and isinstance(plain, str | int)
    return repr(plain) if is_label else None
