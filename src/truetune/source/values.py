"""Values: what an expression is, where the file says so."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from truetune.source.flow import Flow

DEPTH = 12
LONGEST = 10_000
"""Characters of a text, digits of a number: what is longer is not computed"""


class _Unknown:
    """Nothing is known of a value."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Final = _Unknown()
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def constant(flow: Flow, node: ast.AST, depth: int = 0) -> Any:
    """A constant, list, tuple, set or dictionary; UNKNOWN where any part of it is not known.

    Where several values may reach the place, they must be equal.
    """
    if node in flow.known_values or depth > DEPTH:
        return flow.known_values.get(node, UNKNOWN)
    flow.known_values[node] = UNKNOWN
    flow.known_values[node] = _constant(flow, node, depth)
    return flow.known_values[node]


def _constant(flow: Flow, node: ast.AST, depth: int) -> Any:
    found: list[Any] = []
    origins = flow.origins(node)
    for origin in origins:
        whole = node if isinstance(node, ast.Name) and len(origins) == 1 else origin.node
        value = UNKNOWN if origin.path or origin.element else _literal(flow, origin.node, depth, whole)
        if value is UNKNOWN or (found and (value != found[0] or type(value) is not type(found[0]))):
            return UNKNOWN
        found.append(value)
    return found[0]


def _literal(flow: Flow, node: ast.AST, depth: int, name: ast.AST) -> Any:
    """What a literal is; `name` stands for it, and a dictionary may have been added to under it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        items = [constant(flow, item, depth + 1) for item in node.elts]
        if any(item is UNKNOWN for item in items):
            return UNKNOWN
        if isinstance(node, ast.Set):
            return frozenset(item for item in items if isinstance(item, (str, int, float, bool, type(None))))
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and flow.name(node.func) == "dict"):
        known, whole = entries(flow, name)
        result = {key: constant(flow, value, depth + 1) for key, value in known.items()}
        return result if whole and all(value is not UNKNOWN for value in result.values()) else UNKNOWN
    if isinstance(node, ast.UnaryOp):
        value = constant(flow, node.operand, depth + 1)
        if isinstance(value, (int, float)) and isinstance(node.op, (ast.USub, ast.UAdd, ast.Not)):
            return -value if isinstance(node.op, ast.USub) else (not value if isinstance(node.op, ast.Not) else value)
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return _computed(node, constant(flow, node.left, depth + 1), constant(flow, node.right, depth + 1))
    return UNKNOWN


def _computed(node: ast.BinOp, left: Any, right: Any) -> Any:
    numbers = all(isinstance(v, (int, float)) and abs(v) < 1e15 for v in (left, right))
    texts = isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str)
    lists = isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list)
    if not (numbers or ((texts or lists) and len(left) + len(right) < LONGEST)):
        return UNKNOWN
    try:
        return ARITHMETIC[type(node.op)](left, right)
    except ArithmeticError:
        return UNKNOWN


def entries(flow: Flow, node: ast.AST, depth: int = 0) -> tuple[dict[str, ast.expr], bool]:
    """The entries with string keys of a dictionary, and whether they are all.

    Of a name, with those set afterwards (`d["x"] = 1`, `d.update(x=1)`) before it is used.
    """
    origins = flow.origins(node)
    if len(origins) != 1 or origins[0].path or origins[0].element or depth > DEPTH:
        return {}, False
    literal = origins[0].node
    found: dict[str, ast.expr] = {}
    whole = True
    if isinstance(literal, ast.Dict):
        for key, value in zip(literal.keys, literal.values, strict=True):
            if key is None:
                more, all_known = entries(flow, value, depth + 1) if value is not literal else ({}, False)
                found.update(more)
                whole = whole and all_known
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[key.value] = value
            else:
                whole = False
    elif isinstance(literal, ast.Call) and flow.name(literal.func) == "dict":
        whole = not literal.args
        for keyword in literal.keywords:
            if keyword.arg is None:
                more, all_known = entries(flow, keyword.value, depth + 1)
                found.update(more)
                whole = whole and all_known
            else:
                found[keyword.arg] = keyword.value
    else:
        return {}, False
    if isinstance(node, ast.Name):
        whole = _set_later(flow, node, literal, found) and whole
    return found, whole


def _set_later(flow: Flow, name: ast.Name, literal: ast.AST, found: dict[str, ast.expr]) -> bool:
    """Adds what is set on the dictionary between its literal and the use of the name. Is all of it known?"""
    whole = True
    for node, base in _writes(flow):
        if base.id != name.id or not literal.lineno < node.lineno <= name.lineno:  # type: ignore[attr-defined]
            continue
        if flow.scopes.of[base] is not flow.scopes.of[name]:
            continue
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            assert isinstance(target, ast.Subscript)
            if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                found[target.slice.value] = node.value
            else:
                whole = False
        elif isinstance(node, ast.Call):
            more, known = entries(flow, node.args[0]) if node.args else ({}, True)
            found.update(more)
            found.update({k.arg: k.value for k in node.keywords if k.arg})
            whole = whole and known and all(k.arg for k in node.keywords)
    return whole


def _writes(flow: Flow) -> list[tuple[ast.Assign | ast.Call, ast.Name]]:
    """`d[...] = x` and `d.update(...)`, once per file."""
    if flow.dictionary_writes is None:
        flow.dictionary_writes = [
            (node, base)
            for node in flow.scopes.order
            if (base := _written(node)) and isinstance(node, (ast.Assign, ast.Call))
        ]
    return flow.dictionary_writes


def _written(node: ast.AST) -> ast.Name | None:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        base: ast.expr = node.targets[0].value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        base = node.func.value
    else:
        return None
    return base if isinstance(base, ast.Name) else None


def default(arguments: ast.arguments, parameter: ast.arg) -> ast.expr | None:
    """The default of a parameter."""
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    with_default.update(
        {a: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    )
    return with_default.get(parameter)
