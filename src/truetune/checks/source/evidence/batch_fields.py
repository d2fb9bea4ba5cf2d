"""Fields of a batch that a loop takes apart, and what the data set or the collate function puts there.

`labels=batch["y"]`, `x, y = batch` and `for x, y in loader` name a field by its key or place. The rows come from
`__getitem__` or `__iter__` of a class, or from a collate function, in this file or in one that runs with it. The
trade-off: rows are found by field alone, not by which loader reads which class, so a field that two classes give must
look the same in both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.module import Module

Field = str | int
ROW_METHODS = ("__getitem__", "__iter__")
SAME_VALUE = ("to", "cuda", "long", "clone", "contiguous", "detach", "view", "reshape", "squeeze")
"""Methods that give the same tokens again"""
MAX_STEPS = 4


class RowPair(NamedTuple):
    """Two fields of one row, as the code makes them."""

    ids: ast.expr
    labels: ast.expr
    module: Module


def field_of(module: Module, node: ast.expr | None) -> Field | None:
    """The key or place in a batch that an expression is; None where it is no part of one."""
    for _ in range(MAX_STEPS):
        if node is None:
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value if node.func.attr in SAME_VALUE else None
            continue
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return _as_field(node.slice.value)
        origins = module.flow.origins(node)
        if len(origins) != 1:
            return None
        if origins[0].path:
            place = origins[0].path[-1]
            return place if place >= 0 else None
        node = _other_expression(origins[0].node, node)
    return None


def _as_field(value: object) -> Field | None:
    """A key or place; None where a subscript is neither."""
    return value if isinstance(value, str | int) else None


def _other_expression(origin: ast.AST, node: ast.expr) -> ast.expr | None:
    """The expression that a node comes from; None where it is the node itself, or no expression."""
    return origin if isinstance(origin, ast.expr) and origin is not node else None


def row_pairs(module: Module, ids: Field, labels: Field) -> Iterator[RowPair]:
    """The values of two fields in each row or batch that the files make: collate functions first, then rows."""
    parts = module.with_linked
    collated = [
        pair
        for part in parts
        for function in _collate_functions(part)
        for pair in _pairs_of_function(part, function, ids, labels)
    ]
    if collated:
        yield from collated
        # A collate function that stacks `row["y"]` hands on what the rows hold under its name.
        names = {(_field_inside(pair.ids), _field_inside(pair.labels)) for pair in collated}
        if len(names) != 1:
            return
        inner_ids, inner_labels = names.pop()
        if inner_ids is None or inner_labels is None:
            return
        ids, labels = inner_ids, inner_labels
    for part in parts:
        for function in part.nodes(ast.FunctionDef):
            if function.name in ROW_METHODS:
                yield from _pairs_of_function(part, function, ids, labels)


def _collate_functions(module: Module) -> Iterator[ast.FunctionDef]:
    """Functions that make a batch of rows, by their name or by the loader that is given them."""
    given = {
        ast.unparse(call.keywords["collate_fn"])
        for call in module.all_calls
        if "collate_fn" in call.keywords
    }
    for function in module.nodes(ast.FunctionDef):
        if "collate" in function.name or function.name in given:
            yield function


def _pairs_of_function(
    module: Module, function: ast.FunctionDef, ids: Field, labels: Field
) -> Iterator[RowPair]:
    """Both fields of what a function returns or yields."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Return | ast.Yield) or node.value is None:
            continue
        for origin in module.flow.origins(node.value):
            fields = fields_of_row(origin.node)
            if ids in fields and labels in fields:
                yield RowPair(fields[ids], fields[labels], module)


def fields_of_row(node: ast.AST) -> dict[Field, ast.expr]:
    """The values of a row by key (`{"x": a}`, `dict(x=a)`) or place (`a, b`)."""
    if isinstance(node, ast.Tuple | ast.List):
        return dict(enumerate(node.elts))
    if isinstance(node, ast.Dict):
        return {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str | int)
        }
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return {word.arg: word.value for word in node.keywords if word.arg is not None}
    return {}


def _field_inside(node: ast.expr) -> Field | None:
    """The one key or place that an expression takes out of rows: `stack([row["y"] for row in rows])`."""
    keys = {
        part.slice.value
        for part in ast.walk(node)
        if isinstance(part, ast.Subscript)
        and isinstance(part.slice, ast.Constant)
        and isinstance(part.slice.value, str | int)
    }
    return keys.pop() if len(keys) == 1 else None
