"""Values: what an expression is, where the file says so."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from truetune.source.data_flow import DataFlow
    from truetune.source.scopes import Scope

MAX_NESTED_VALUES = 12
MAX_COMPUTED_CHARACTERS = 10_000
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


def evaluate_constant(flow: DataFlow, node: ast.AST, depth: int = 0) -> Any:
    """A constant, list, tuple, set or dictionary; UNKNOWN where any part of it is not known.

    Where several values may reach the place, they must be equal.
    """
    if node in flow.known_values or depth > MAX_NESTED_VALUES:
        return flow.known_values.get(node, UNKNOWN)
    flow.known_values[node] = UNKNOWN
    flow.known_values[node] = _evaluate_origins(flow, node, depth)
    return flow.known_values[node]


def _evaluate_origins(flow: DataFlow, node: ast.AST, depth: int) -> Any:
    found: list[Any] = []
    origins = flow.origins(node)
    for origin in origins:
        whole = node if isinstance(node, ast.Name) and len(origins) == 1 else origin.node
        value = (
            UNKNOWN
            if origin.path or origin.element
            else _evaluate_literal(flow, origin.node, depth, whole)
        )
        if value is UNKNOWN or (found and (value != found[0] or type(value) is not type(found[0]))):
            return UNKNOWN
        found.append(value)
    return found[0]


def _evaluate_literal(flow: DataFlow, node: ast.AST, depth: int, name: ast.AST) -> Any:
    """What a literal is; `name` stands for it, and a dictionary may have been added to under it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        items = [evaluate_constant(flow, item, depth + 1) for item in node.elts]
        if any(item is UNKNOWN for item in items):
            return UNKNOWN
        if isinstance(node, ast.Set):
            return frozenset(
                item for item in items if isinstance(item, (str, int, float, bool, type(None)))
            )
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict) or (
        isinstance(node, ast.Call) and flow.name(node.func) == "dict"
    ):
        known, whole = resolve_dict_entries(flow, name)
        result = {key: evaluate_constant(flow, value, depth + 1) for key, value in known.items()}
        return (
            result if whole and all(value is not UNKNOWN for value in result.values()) else UNKNOWN
        )
    if isinstance(node, ast.UnaryOp):
        value = evaluate_constant(flow, node.operand, depth + 1)
        if isinstance(value, (int, float)) and isinstance(node.op, (ast.USub, ast.UAdd, ast.Not)):
            return (
                -value
                if isinstance(node.op, ast.USub)
                else (not value if isinstance(node.op, ast.Not) else value)
            )
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return _compute_operation(
            node,
            evaluate_constant(flow, node.left, depth + 1),
            evaluate_constant(flow, node.right, depth + 1),
        )
    return UNKNOWN


def _compute_operation(node: ast.BinOp, left: Any, right: Any) -> Any:
    numbers = all(isinstance(v, (int, float)) and abs(v) < 1e15 for v in (left, right))
    texts = isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str)
    lists = isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list)
    if not (numbers or ((texts or lists) and len(left) + len(right) < MAX_COMPUTED_CHARACTERS)):
        return UNKNOWN
    try:
        return ARITHMETIC[type(node.op)](left, right)
    except ArithmeticError:
        return UNKNOWN


def resolve_dict_entries(
    flow: DataFlow, node: ast.AST, depth: int = 0
) -> tuple[dict[str, ast.expr], bool]:
    """The entries with string keys of a dictionary, and whether they are all.

    Of a name, with those set afterwards (`d["x"] = 1`, `d.update(x=1)`) before it is used.
    """
    origins = flow.origins(node)
    if len(origins) != 1 or origins[0].path or origins[0].element or depth > MAX_NESTED_VALUES:
        return {}, False
    literal = origins[0].node
    found: dict[str, ast.expr] = {}
    whole = True
    if isinstance(literal, ast.Dict):
        for key, value in zip(literal.keys, literal.values, strict=True):
            if key is None:
                more, all_known = (
                    resolve_dict_entries(flow, value, depth + 1)
                    if value is not literal
                    else ({}, False)
                )
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
                more, all_known = resolve_dict_entries(flow, keyword.value, depth + 1)
                found.update(more)
                whole = whole and all_known
            else:
                found[keyword.arg] = keyword.value
    else:
        return {}, False
    if not isinstance(node, ast.Name):
        return found, whole
    if flow.scopes.of[literal] is flow.scopes.of[node]:
        return _add_writes_before_use(flow, node, literal, DictEntries(found, whole))
    return _add_writes_in_other_scopes(flow, literal, DictEntries(found, whole))


class DictEntries(NamedTuple):
    """The entries of a dictionary, and whether they are all."""

    by_name: dict[str, ast.expr]
    whole: bool


@dataclass(slots=True)
class WrittenDict:
    """A dictionary, as it is after the first of the statements that write to its name."""

    entries: DictEntries
    writes: int
    """Statements that are in it"""
    line: int
    """Where its name was used last"""


def _add_writes_before_use(
    flow: DataFlow, name: ast.Name, literal: ast.AST, first: DictEntries
) -> DictEntries:
    """The entries with those set between the dictionary's literal and the use of the name.

    Uses come in the order of the text mostly, so what an earlier use found is taken up again: a file that writes and
    uses one dictionary a thousand times is read once.
    """
    key = (literal, flow.scopes.of[name], name.id)
    so_far = flow.written_dicts.get(key)
    if so_far is None or so_far.line > name.lineno:
        so_far = WrittenDict(first, 0, 0)
    by_name, whole = dict(so_far.entries.by_name), so_far.entries.whole
    writes = _collect_writes(flow).get(key[1:], [])
    after: int = literal.lineno  # type: ignore[attr-defined]
    number = so_far.writes
    while number < len(writes) and writes[number].lineno <= name.lineno:
        if writes[number].lineno > after:
            more, known = _entries_written_by(flow, writes[number])
            by_name.update(more)
            whole = whole and known
        number += 1
    flow.written_dicts[key] = WrittenDict(DictEntries(by_name, whole), number, name.lineno)
    return DictEntries(dict(by_name), whole)


def _add_writes_in_other_scopes(
    flow: DataFlow, literal: ast.AST, first: DictEntries
) -> DictEntries:
    """The entries of a dictionary that a function is given, with all that is set where it was made.

    Which of these come before the call is not asked: a key that is set anywhere may be there.
    """
    by_name, whole = dict(first.by_name), first.whole
    for write in _collect_writes_by_literal(flow).get(literal, ()):
        more, known = _entries_written_by(flow, write)
        by_name.update(more)
        whole = whole and known
    return DictEntries(by_name, whole)


def _collect_writes_by_literal(flow: DataFlow) -> dict[ast.AST, list[ast.Assign | ast.Call]]:
    """The statements that set something in a dictionary, by the literal that it begins as, once per file."""
    if flow.writes_by_literal is None:
        flow.writes_by_literal = {}
        for writes in _collect_writes(flow).values():
            for write in writes:
                base = _name_written_to(write)
                origins = flow.origins(base) if base is not None else ()
                if len(origins) == 1:
                    flow.writes_by_literal.setdefault(origins[0].node, []).append(write)
    return flow.writes_by_literal


def _entries_written_by(flow: DataFlow, node: ast.Assign | ast.Call) -> DictEntries:
    """What one statement sets in a dictionary."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        assert isinstance(target, ast.Subscript)
        if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            return DictEntries({target.slice.value: node.value}, True)
        return DictEntries({}, False)
    more, known = resolve_dict_entries(flow, node.args[0]) if node.args else ({}, True)
    named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    return DictEntries({**more, **named}, known and all(keyword.arg for keyword in node.keywords))


def _collect_writes(flow: DataFlow) -> dict[tuple[Scope, str], list[ast.Assign | ast.Call]]:
    """`d[...] = x` and `d.update(...)` by the scope they stand in and the name of the dictionary, once per file."""
    if flow.dictionary_writes is None:
        flow.dictionary_writes = {}
        for node in flow.scopes.order:
            if (base := _name_written_to(node)) and isinstance(node, (ast.Assign, ast.Call)):
                flow.dictionary_writes.setdefault((flow.scopes.of[base], base.id), []).append(node)
    return flow.dictionary_writes


def _name_written_to(node: ast.AST) -> ast.Name | None:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        base: ast.expr = node.targets[0].value
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "update"
    ):
        base = node.func.value
    else:
        return None
    return base if isinstance(base, ast.Name) else None


def default_of_parameter(arguments: ast.arguments, parameter: ast.arg) -> ast.expr | None:
    """The default of a parameter."""
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    with_default.update(
        {
            a: d
            for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if d is not None
        }
    )
    return with_default.get(parameter)
