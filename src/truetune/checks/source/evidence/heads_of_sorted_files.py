"""Heads of a data file that an evaluation takes, compared with the whole file beside the script.

How it works: in the symbolic run, `select(range(n))`, `rows[:n]`, `islice`, `head`, `take`, `nrows=n` and
`split="test[:n]"` are made on the rows of the file; a column of labels that the script reads tells which of them the
head lacks.

The trade-off: where anything on the way from the file filters, sorts or shuffles, nothing is known; a label that is so
rare that it may be missing from as many rows drawn at random is no evidence.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.possible_values import possible_numbers
from truetune.checks.source.evidence.row_alignment_in_runs import SHUFFLES
from truetune.checks.source.evidence.rows_behind_values import FileRows
from truetune.checks.source.evidence.unshuffled_splits_in_runs import (
    class_columns,
    rows_in_order,
    slices_of,
)
from truetune.source.module import Module
from truetune.source.symbolic_execution.constants import constant_of
from truetune.source.symbolic_execution.trace import CallEvent, Trace
from truetune.source.symbolic_execution.traces import traces_of
from truetune.source.symbolic_execution.values import (
    Choice,
    Item,
    Operation,
    Result,
    Slice,
    Value,
)

LABEL_COLUMN = re.compile(
    r"(?:\w+_)?(?:labels?|class|category|target|answer|gold|expected|intent|sentiment|reference|output|completion|"
    r"verdict|topic|y)",
    re.I,
)
MIN_HEAD = 20
"""Fewer rows are printed to see them, or are examples for a prompt. Chosen, not measured"""
MAX_CHANCE = 1e-3
"""Chance that rows drawn at random lack a label, from which it is the order of the file. Chosen, not measured"""
SPLIT_OF_ROWS = re.compile(r"\w+\[:(?P<rows>\d+)\]")
HEADS = {"head": "n", "take": "n", "limit": "n"}
"""Methods that give the first rows, with the name of their argument"""


class SortedHead(NamedTuple):
    """A head that lacks labels of its file."""

    node: ast.AST
    source: str
    column: str
    rows: int
    whole: int
    held: tuple[str, ...]
    missing: tuple[tuple[str, int], ...]
    """The labels that are not in the head, each with its rows"""


class _Head(NamedTuple):
    """Rows of which the first so many are taken."""

    node: ast.AST
    data: Value
    rows: int


def sorted_heads(module: Module) -> Iterator[SortedHead]:
    """The heads of a file that lack labels, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of(module):
        if any(trace.calls(*SHUFFLES)):
            continue
        for head in (
            *_by_calls(trace, module),
            *_by_slices(trace, module),
            *_by_breaks(trace, module),
        ):
            found = None if head.node in seen else _without_labels(trace, module, head)
            if found is not None:
                seen.add(head.node)
                yield found


def _by_calls(trace: Trace, module: Module) -> Iterator[_Head]:
    """`select(range(n))`, `head(n)`, `islice(rows, n)`, and readers that stop early."""
    for call in trace.all_calls:
        if call.home.path != module.path or call.is_repeated:
            continue
        given = _data_and_count(call)
        if given is not None and given[0] is not None and given[1] is not None:
            yield _Head(call.node, given[0], given[1])


def _data_and_count(call: CallEvent) -> tuple[Value | None, int | None] | None:
    """The rows that a call takes the first of, and how many; None for another call."""
    if call.method == "select":
        return call.receiver, _count_of_range(call.argument(0, "indices"))
    if call.method in HEADS:
        return call.receiver, _number(call.argument(0, HEADS[call.method]))
    if call.named("itertools.islice") and len(call.args) == 2:
        return call.args[0], _number(call.args[1])
    if call.named("pandas.read_*"):
        return call.result, _number(call.keywords.get("nrows"))
    if call.named("datasets.load_dataset"):
        split = constant_of(call.keywords.get("split"))
        match = SPLIT_OF_ROWS.fullmatch(split) if isinstance(split, str) else None
        return call.result, int(match["rows"]) if match else None
    return None


def _count_of_range(value: Value | None) -> int | None:
    """The rows of `range(n)`."""
    is_range = isinstance(value, Result) and value.call.named("range")
    if not isinstance(value, Result) or not is_range or not value.call.args:
        return None
    first, *rest = value.call.args
    if not rest:
        return _number(first)
    return _number(rest[0]) if constant_of(first) == 0 and len(rest) == 1 else None


def _by_slices(trace: Trace, module: Module) -> Iterator[_Head]:
    """`rows[:n]` without a `rows[n:]`, which would be the other part of a split."""
    slices = list(slices_of(trace))
    starts = {_place(one, one.key.start) for one in slices if isinstance(one.key, Slice)}
    for one in slices:
        key = one.key
        if not isinstance(key, Slice) or key.start is not None or key.step is not None:
            continue
        rows = _number(key.stop)
        is_split = _place(one, key.stop) in starts
        node = key.node
        if rows is not None and not is_split and node is not None and module.holds(node):
            yield _Head(node, one.base, rows)


def _by_breaks(trace: Trace, module: Module) -> Iterator[_Head]:
    """`for n, row in enumerate(rows)` that ends by `if n >= 100: break`."""
    limits = dict(_loops_with_a_limit(module))
    for call in trace.all_calls if limits else ():
        for loop in call.frames("loop"):
            counted = loop.value.call if isinstance(loop.value, Result) else None
            if loop.node in limits and counted is not None and counted.named("enumerate"):
                yield _Head(limits[loop.node][0], counted.args[0], limits[loop.node][1])


def _loops_with_a_limit(module: Module) -> Iterator[tuple[ast.AST, tuple[ast.AST, int]]]:
    """The loops over `enumerate` that a number of rows ends, with the test and the number."""
    for test in module.nodes(ast.If):
        loop = module.scopes.parent.get(test)
        compared = test.test
        if not isinstance(loop, ast.For) or not isinstance(test.body[-1], ast.Break):
            continue
        if not isinstance(loop.target, ast.Tuple) or not isinstance(compared, ast.Compare):
            continue
        is_number = ast.unparse(compared.left) == ast.unparse(loop.target.elts[0])
        numbers = possible_numbers(module, compared.comparators[0])
        is_end = isinstance(compared.ops[0], ast.GtE | ast.Gt | ast.Eq)
        if is_number and is_end and len(numbers) == 1 and numbers[0] >= MIN_HEAD:
            yield loop, (compared, int(numbers[0]))


def _place(item: Item, bound: Value | None) -> tuple[int, str]:
    """What is sliced, and the bound as it is written; no place where there is no bound."""
    text = "" if bound is None or bound.node is None else ast.unparse(bound.node)
    return (id(item.base) if text else id(item), text)


def _number(value: Value | None) -> int | None:
    """A number of rows, also the default of an option and `min(n, len(rows))`."""
    if isinstance(value, Result) and value.call.named("min", "int"):
        numbers = [one for one in map(_number, value.call.args) if one is not None]
        return min(numbers, default=None)
    if isinstance(value, Operation) and value.operator == "or":
        return _number(value.operands[0])
    if isinstance(value, Choice):
        found = {_number(one) for one in value.options} - {None}
        return found.pop() if len(found) == 1 else None
    plain = constant_of(value)
    return plain if type(plain) is int and plain >= MIN_HEAD else None


def _without_labels(trace: Trace, module: Module, head: _Head) -> SortedHead | None:
    """The labels of the file that a head lacks, where chance does not explain it."""
    found = rows_in_order(trace, module, head.data)
    if found is None or head.rows >= len(found.rows):
        return None
    for column in _label_columns(module, found):
        counts = Counter(str(row[column]) for row in found.rows)
        held = Counter(str(row[column]) for row in found.rows[: head.rows])
        missing = [
            (name, count)
            for name, count in counts.most_common()
            if name not in held and (1 - count / len(found.rows)) ** head.rows < MAX_CHANCE
        ]
        if missing:
            sizes = (head.rows, len(found.rows))
            return SortedHead(head.node, found.source, column, *sizes, tuple(held), tuple(missing))
    return None


def _label_columns(module: Module, rows: FileRows) -> Iterator[str]:
    """The columns of few values that a script reads as labels."""
    read = {one.value for one in module.nodes(ast.Constant) if isinstance(one.value, str)}
    read |= {one.attr for one in module.nodes(ast.Attribute)}
    for column in class_columns(rows.rows):
        if LABEL_COLUMN.fullmatch(column) and column in read:
            yield column
