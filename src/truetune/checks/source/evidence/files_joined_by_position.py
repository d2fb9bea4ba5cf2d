"""Two files that a script joins by position, although their ids stand in another order.

How it works: each side of a `zip` is followed to the file that it was read from, in the symbolic run; where both files
have a column of ids, which are distinct and nearly the same, their order is compared.

The trade-off: a side that the script sorts, filters or looks up by id is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.source.evidence.row_alignment_in_runs import alignment_of
from truetune.checks.source.evidence.rows_behind_values import FileRows, rows_behind
from truetune.source.module import Module
from truetune.source.symbolic_execution.traces import traces_of

ID_COLUMN = re.compile(r"(?:\w+_)?(?:id|idx|index|uid|uuid|qid|key|number)", re.I)
MIN_ROWS = 8
"""Fewer ids may agree by chance. Chosen, not measured"""
# Chosen, not measured: a file that lacks a few rows is still the other's; of two others next to none agree.
MIN_COMMON, MAX_IN_PLACE = 0.8, 0.9
"""Share of the ids that both files have, and of the places that hold one id in both, from which all is well"""


class FilesInOtherOrder(NamedTuple):
    """A join of two files whose rows stand in another order."""

    node: ast.AST
    column: str
    files: tuple[str, str]
    first: tuple[object, object]
    """The ids at the first place that differs"""
    different: int
    rows: int


def files_in_other_order(module: Module) -> Iterator[FilesInOtherOrder]:
    """The joins by position of a script whose files hold other rows at one place, each once."""
    seen: set[ast.AST] = set()
    for trace in traces_of(module):
        for call in trace.calls("zip"):
            if call.home.path != module.path or len(call.args) != 2 or call.node in seen:
                continue
            if any(alignment_of(trace, side).changes for side in call.args):
                continue
            sides = [rows_behind(module, side) for side in call.args]
            found = None if None in sides else _compare(call.node, sides[0], sides[1])
            if found is not None:
                seen.add(call.node)
                yield found


def _compare(
    node: ast.AST, one: FileRows | None, other: FileRows | None
) -> FilesInOtherOrder | None:
    """The first column of ids that both files have, where its order differs."""
    if one is None or other is None or one.source == other.source:
        return None
    for column in one.rows[0]:
        if not ID_COLUMN.fullmatch(column):
            continue
        ids, others = _ids(one.rows, column), _ids(other.rows, column)
        if len(ids) < MIN_ROWS or not others:
            continue
        if len(set(ids) & set(others)) < MIN_COMMON * max(len(ids), len(others)):
            continue
        pairs = list(zip(ids, others, strict=False))
        different = [pair for pair in pairs if pair[0] != pair[1]]
        if len(different) > (1 - MAX_IN_PLACE) * len(pairs):
            files = (one.source, other.source)
            return FilesInOtherOrder(node, column, files, different[0], len(different), len(pairs))
    return None


def _ids(rows: tuple[Mapping[str, Any], ...], column: str) -> list[str]:
    """The ids of the rows; none where a row has none, or where two have one."""
    ids = [row.get(column) for row in rows]
    texts = [str(one) for one in ids if isinstance(one, str | int)]
    return texts if len(texts) == len(ids) == len(set(texts)) else []
