"""Rows that a script joins by their position, although the two sides hold other rows at one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.row_alignment_in_runs import (
    Alignment,
    Change,
    alignment_of,
)
from truetune.source.module import Module
from truetune.source.symbolic_execution.constants import constant_of
from truetune.source.symbolic_execution.trace import CallEvent, Trace
from truetune.source.symbolic_execution.traces import traces_of
from truetune.source.symbolic_execution.values import Constant, Sequence, Value

ANY = frozenset(("filter", "order", "parts"))
OF_ONE_LENGTH = frozenset(("order",))
"""Changes that keep the number of rows: with others, a join that compares lengths ends in an error"""


class WrongJoin(NamedTuple):
    """A join by position of sides that hold other rows at one place."""

    node: ast.AST
    what: str
    change: Change
    is_by_index: bool
    """Would the index of frames have joined them rightly, had it not been rebuilt?"""


def wrong_joins(module: Module) -> Iterator[WrongJoin]:
    """The joins of a file whose sides hold other rows at one place, each once."""
    seen: set[ast.AST] = set()
    for trace in traces_of(module):
        for found in _joins_of_trace(trace, module):
            if found.node not in seen:
                seen.add(found.node)
                yield found


def _joins_of_trace(trace: Trace, module: Module) -> Iterator[WrongJoin]:
    """The wrong joins of one run that stand in a file."""
    for call in trace.all_calls:
        if call.home.path == module.path and not call.is_repeated:
            yield from _joins_of_call(trace, call)
    for store in trace.stores:
        if store.home.path != module.path or store.is_repeated or isinstance(store.key, str):
            continue
        if isinstance(constant_of(store.key), str) and not isinstance(store.value, Constant):
            sides = [store.base, store.value]
            yield from _compared_column(trace, store.node, "the new column", sides)


def _joins_of_call(trace: Trace, call: CallEvent) -> Iterator[WrongJoin]:
    """The wrong joins of one call: `zip`, `concat` side by side, `assign`, `add_column`."""
    if call.named("zip") and len(call.args) > 1 and not call.is_open:
        kinds = OF_ONE_LENGTH if _is_strict(call) else ANY
        yield from _compared(trace, call.node, "zip", list(call.args), kinds)
    elif call.named("pandas.concat") and call.args and _joins_columns(call):
        parts = call.args[0]
        sides = parts.items if isinstance(parts, Sequence) and not parts.is_open else []
        yield from _compared_by_index(trace, call.node, "pandas.concat(axis=1)", sides)
    elif call.method == "assign" and call.receiver is not None:
        for value in call.keywords.values():
            yield from _compared_column(trace, call.node, "assign", [call.receiver, value])
    elif call.method == "add_column" and call.receiver is not None and len(call.args) > 1:
        sides = [call.receiver, call.args[1]]
        yield from _compared(trace, call.node, "add_column", sides, OF_ONE_LENGTH)


def _is_strict(call: CallEvent) -> bool:
    """Does `zip` raise where its sides differ in length?"""
    strict = call.keywords.get("strict")
    return strict is not None and constant_of(strict) is True


def _joins_columns(call: CallEvent) -> bool:
    """Does `concat` put frames side by side?"""
    axis = call.argument(1, "axis")
    return axis is not None and constant_of(axis) in (1, "columns")


def _compared(
    trace: Trace, node: ast.AST, what: str, sides: list[Value], kinds: frozenset[str]
) -> Iterator[WrongJoin]:
    """Sides that are joined by position alone."""
    ways = [alignment_of(trace, side) for side in sides]
    change = _change_of_one(ways, kinds)
    if change is not None:
        yield WrongJoin(node, what, change, False)


def _compared_by_index(
    trace: Trace, node: ast.AST, what: str, sides: list[Value]
) -> Iterator[WrongJoin]:
    """Frames, which are joined by their index: wrong only where one of them was renumbered."""
    ways = [alignment_of(trace, side) for side in sides]
    if any(way.is_renumbered or way.is_positional for way in ways):
        change = _change_of_one(ways, ANY)
        if change is not None:
            yield WrongJoin(node, what, change, True)


def _compared_column(
    trace: Trace, node: ast.AST, what: str, sides: list[Value]
) -> Iterator[WrongJoin]:
    """A column that a frame gets: a list goes by position, another frame's column by the index."""
    frame, column = (alignment_of(trace, side) for side in sides)
    if column.is_positional and not frame.is_positional:
        change = _change_of_one([frame, column], OF_ONE_LENGTH)
    elif frame.is_renumbered != column.is_renumbered and not frame.is_positional:
        change = _change_of_one([frame, column], ANY)
    else:
        change = None
    if change is not None:
        yield WrongJoin(node, what, change, True)


def _change_of_one(ways: list[Alignment], kinds: frozenset[str]) -> Change | None:
    """The first change that one side of one source went through and another did not; None where there is none."""
    for way in ways:
        for other in ways:
            if way is other or way.source != other.source:
                continue
            alone = _changes_of_one_side(way, other)
            if alone and all(one.kind in kinds for one in alone):
                return alone[-1]
    return None


def _changes_of_one_side(one: Alignment, other: Alignment) -> list[Change]:
    """What one side went through and another did not; nothing where it puts its rows back itself."""
    others = {(change.kind, change.what) for change in other.changes}
    alone = [change for change in one.changes if (change.kind, change.what) not in others]
    # A sort after the parts of processes puts the rows back, by the number that each carries.
    is_put_back = {"parts", "order"} <= {change.kind for change in alone}
    return [] if is_put_back else alone
