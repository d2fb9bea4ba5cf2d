"""Finds joins by position of two sides that hold other rows at one place, because one of them was
filtered, sorted or shuffled alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.files_with_matching_rows import (
    ParallelFiles,
    filter_leaves_rows_out,
    find_parallel_files,
)
from truetune.checks.source.evidence.row_filters_and_sorts import (
    Alignment,
    AlignmentChange,
    alignment_to_source,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Constant, Mapping, Sequence, Value

ANY = frozenset(("filter", "order", "parts"))
OF_ONE_LENGTH = frozenset(("order",))
"""Changes that keep the number of rows: with others, a join that compares lengths ends in an error"""


class WrongJoin(NamedTuple):
    """A join by position of sides that hold other rows at one place."""

    node: ast.AST
    what: str
    change: AlignmentChange
    is_by_index: bool
    """Would the index of frames have joined them rightly, had it not been rebuilt?"""
    files: ParallelFiles | None = None
    """The files that the sides are read from, where these are two"""


class _JoinAlignments(NamedTuple):
    """The ways of the sides of a join back to what was read."""

    ways: list[Alignment]
    files: ParallelFiles | None


def wrong_joins(module: Module) -> Iterator[WrongJoin]:
    """The joins of a file whose sides hold other rows at one place, each once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for wrong_join in _wrong_joins_of_trace(trace, module):
            if wrong_join.node not in seen:
                seen.add(wrong_join.node)
                yield wrong_join


def _wrong_joins_of_trace(trace: Trace, module: Module) -> Iterator[WrongJoin]:
    """The wrong joins of one run that stand in a file."""
    for call in trace.all_calls:
        if call.home.path == module.path and not call.is_in_later_loop_pass:
            yield from _wrong_joins_of_call(trace, module, call)
    for store in trace.stores:
        if (
            store.home.path != module.path
            or store.is_in_later_loop_pass
            or isinstance(store.key, str)
        ):
            continue
        if isinstance(constant_of(store.key), str) and not isinstance(store.value, Constant):
            sides = [store.base, store.value]
            yield from _wrong_joins_of_column(
                store.node, "the new column", _alignments_of_sides(trace, module, sides)
            )


def _wrong_joins_of_call(trace: Trace, module: Module, call: CallEvent) -> Iterator[WrongJoin]:
    """The wrong joins of one call: `zip`, `concat` side by side, `assign`, `add_column`."""
    if call.receiver is not None:
        yield from _wrong_joins_of_method(trace, module, call, call.receiver)
    elif not call.args:
        return
    elif call.named("zip") and len(call.args) > 1 and not call.is_open:
        kinds = OF_ONE_LENGTH if _zip_is_strict(call) else ANY
        yield from _wrong_joins_by_position(
            call.node, "zip", _alignments_of_sides(trace, module, list(call.args)), kinds
        )
    elif call.named("pandas.concat") and _concatenates_side_by_side(call):
        parts = call.args[0]
        sides = parts.items if isinstance(parts, Sequence) and not parts.is_open else []
        ways = _alignments_of_sides(trace, module, list(sides))
        yield from _wrong_joins_by_index(call.node, "pandas.concat(axis=1)", ways)
    elif call.named("pandas.DataFrame", "datasets.Dataset.from_dict"):
        yield from _wrong_joins_of_columns(trace, module, call, call.args[0])


def _wrong_joins_of_method(
    trace: Trace, module: Module, call: CallEvent, rows: Value
) -> Iterator[WrongJoin]:
    """The wrong joins of a method by which rows get columns: `assign`, `add_column`."""
    if call.method == "assign":
        for value in call.keywords.values():
            yield from _wrong_joins_of_column(
                call.node, "assign", _alignments_of_sides(trace, module, [rows, value])
            )
    elif call.method == "add_column" and len(call.args) > 1:
        ways = _alignments_of_sides(trace, module, [rows, call.args[1]])
        yield from _wrong_joins_by_position(call.node, "add_column", ways, OF_ONE_LENGTH)


def _zip_is_strict(call: CallEvent) -> bool:
    """Does `zip` raise where its sides differ in length?"""
    strict = call.keywords.get("strict")
    return strict is not None and constant_of(strict) is True


def _concatenates_side_by_side(call: CallEvent) -> bool:
    """Does `concat` put frames side by side?"""
    axis = call.argument(1, "axis")
    return axis is not None and constant_of(axis) in (1, "columns")


def _wrong_joins_of_columns(
    trace: Trace, module: Module, call: CallEvent, columns: Value
) -> Iterator[WrongJoin]:
    """The wrong joins of a frame or data set that is made of columns of two files.

    `DataFrame({"body": a["body"], "reply": b["reply"]})`.
    """
    if not isinstance(columns, Mapping) or columns.is_open:
        return
    first, *others = columns.entries.values() or (None,)
    for other in others:
        sides = _alignments_of_sides(trace, module, [first, other]) if first is not None else None
        if sides is None or sides.files is None:
            continue
        what = "the frame" if call.named("pandas.*") else "from_dict"
        if any(way.is_positional for way in sides.ways):
            # Lists of two lengths are refused.
            yield from _wrong_joins_by_position(call.node, what, sides, OF_ONE_LENGTH)
        else:
            yield from _wrong_joins_by_index(call.node, what, sides)


def _alignments_of_sides(trace: Trace, module: Module, sides: list[Value]) -> _JoinAlignments:
    """The ways of the sides of a join back to what was read; two files whose rows belong together
    are one source.
    """
    ways = [alignment_to_source(trace, side) for side in sides]
    files = find_parallel_files(module, sides, ways)
    if files is None:
        return _JoinAlignments(ways, None)
    changed = [(side, way) for side, way in zip(sides, ways, strict=True) if way.changes]
    # Two filters may be what brings the files into line: only one that stands alone is judged.
    if len(changed) != 1:
        return _JoinAlignments(ways, None)
    side, way = changed[0]
    if all(
        one.kind == "filter" and not filter_leaves_rows_out(module, side, one)
        for one in way.changes
    ):
        return _JoinAlignments(ways, None)
    return _JoinAlignments([one._replace(source=ways[0].source) for one in ways], files)


def _wrong_joins_by_position(
    node: ast.AST, what: str, sides: _JoinAlignments, kinds: frozenset[str]
) -> Iterator[WrongJoin]:
    """The wrong joins of sides that are joined by position alone."""
    change = _first_change_of_one_side(sides.ways, kinds)
    if change is not None:
        yield WrongJoin(node, what, change, False, sides.files)


def _wrong_joins_by_index(node: ast.AST, what: str, sides: _JoinAlignments) -> Iterator[WrongJoin]:
    """The wrong joins of frames, which are joined by their index: wrong only where one of them was
    renumbered.
    """
    if any(way.is_renumbered or way.is_positional for way in sides.ways):
        change = _first_change_of_one_side(sides.ways, ANY)
        if change is not None:
            yield WrongJoin(node, what, change, True, sides.files)


def _wrong_joins_of_column(node: ast.AST, what: str, sides: _JoinAlignments) -> Iterator[WrongJoin]:
    """The wrong joins of a column that a frame gets: a list is joined by position, another frame's
    column by the index.
    """
    frame, column = sides.ways
    if column.is_positional and not frame.is_positional:
        change = _first_change_of_one_side([frame, column], OF_ONE_LENGTH)
    elif frame.is_renumbered != column.is_renumbered and not frame.is_positional:
        change = _first_change_of_one_side([frame, column], ANY)
    else:
        change = None
    if change is not None:
        yield WrongJoin(node, what, change, True, sides.files)


def _first_change_of_one_side(
    ways: list[Alignment], kinds: frozenset[str]
) -> AlignmentChange | None:
    """The first change that one side of one source went through and another did not; None where
    there is none.
    """
    for way in ways:
        for other in ways:
            if way is other or way.source != other.source:
                continue
            alone = _changes_missing_on_other_side(way, other)
            if alone and all(one.kind in kinds for one in alone):
                return alone[-1]
    return None


def _changes_missing_on_other_side(one: Alignment, other: Alignment) -> list[AlignmentChange]:
    """What one side went through and another did not; nothing where it puts its rows back itself."""
    others = {(change.kind, change.what) for change in other.changes}
    alone = [change for change in one.changes if (change.kind, change.what) not in others]
    # A sort after the parts of processes puts the rows back, by the number that each carries.
    is_put_back = {"parts", "order"} <= {change.kind for change in alone}
    return [] if is_put_back else alone
