"""Finds which of the values that a class sets `self.x` to may be there where `self.x` is read.

How it works: methods are ordered as they run. The body of the class comes first, then `__init__`, then the rest. Inside
of one method the order of the text and its branches decide, as for a name (`scopes.py`).

The trade-off: which of the other methods ran before is open, so what they set may always be there. A value that a later
line of a loop sets comes around to the lines before it. So a reading has too many values rather than too few.
"""

from __future__ import annotations

import ast

from truetune.source.name_bindings_in_scopes import END_OF_SCOPE, Arm, Binding, Position, Scopes

AssignedValue = tuple[ast.expr, tuple[int, ...]]
"""What an attribute is set to: an expression, and which part of it where a tuple is taken apart"""
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def values_that_reach_read(
    scopes: Scopes, read: ast.Attribute, assigned: list[AssignedValue]
) -> list[AssignedValue]:
    """The values among those of its class that `self.x` may have where it is read; all where the order says nothing."""
    if len(assigned) < 2:
        return assigned
    method, position, arms = _function_position_and_arms(scopes, read)
    by_method: dict[ast.AST, list[Binding]] = {}
    for value, path in assigned:
        binding = _assignment_as_binding(scopes, read.attr, value, path)
        by_method.setdefault(scopes.of[value].node, []).append(binding)
    kept: set[Binding] = set()
    own = by_method.pop(method, [])
    is_set = _keep_bindings_and_has_one_run(scopes, own, position, arms, kept)
    kept.update(_later_bindings_brought_back_by_loop(scopes, own, read, position))
    for earlier in sorted(
        (one for one in by_method if _is_class_body_or_init(one)),
        key=_run_order_of_method,
        reverse=True,
    ):
        bindings = by_method.pop(earlier)
        # In `__init__` itself only the body of the class has run before.
        is_set = is_set or _keep_bindings_and_has_one_run(scopes, bindings, END_OF_SCOPE, (), kept)
    for others in by_method.values():
        kept.update(others)
    values = [(binding.value, binding.path) for binding in kept]
    return [one for one in assigned if one in values] or assigned


def _function_position_and_arms(
    scopes: Scopes, node: ast.AST
) -> tuple[ast.AST, Position, tuple[Arm, ...]]:
    """The function that a node stands in, and where it stands there; the end of it for what a comprehension's scope
    does not order.
    """
    scope, arms = scopes.of[node], scopes.arms[node]
    while (
        scope.runs_in_place and not isinstance(scope.node, ast.ClassDef) and scope.outer is not None
    ):
        arms = scopes.arms[scope.node]
        scope = scope.outer
    return scope.node, (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)), arms


def _assignment_as_binding(
    scopes: Scopes, name: str, value: ast.expr, path: tuple[int, ...]
) -> Binding:
    """The assignment of an attribute in the form of that of a name, so that one reading of order serves both."""
    end = (value.end_lineno or value.lineno, value.end_col_offset or value.col_offset)
    return Binding(name, "value", value, value, path, "", end, scopes.arms[value])


def _keep_bindings_and_has_one_run(
    scopes: Scopes,
    bindings: list[Binding],
    position: Position,
    arms: tuple[Arm, ...],
    kept: set[Binding],
) -> bool:
    """Keep the bindings of a method that may hold at a place of it; has one of them surely run?"""
    reaching = scopes.bindings_that_hold(bindings, position, arms)
    kept.update(reaching)
    return any(arms[: len(binding.arms)] == binding.arms for binding in reaching)


def _later_bindings_brought_back_by_loop(
    scopes: Scopes, bindings: list[Binding], read: ast.AST, position: Position
) -> list[Binding]:
    """The bindings behind a reading that a loop around both brings back to it."""
    ends: list[Position] = []
    parent = scopes.parent.get(read)
    while parent is not None and not isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if isinstance(parent, LOOPS):
            ends.append((parent.end_lineno or 0, parent.end_col_offset or 0))
        parent = scopes.parent.get(parent)
    if not ends:
        return []
    return [one for one in bindings if position < one.position <= max(ends)]


def _is_class_body_or_init(method: ast.AST) -> bool:
    """Is it the body of the class or its `__init__`?"""
    return _run_order_of_method(method) > 0 or isinstance(method, ast.ClassDef)


def _run_order_of_method(method: ast.AST) -> int:
    """1 for `__init__`, else 0: of the body of the class and `__init__`, it orders which runs first."""
    return int(getattr(method, "name", "") == "__init__" and not isinstance(method, ast.ClassDef))
