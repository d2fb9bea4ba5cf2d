"""Which of two places of a file runs first, where one way of calling decides it.

A place is described by routes: the calls that lead to it, from the inside out. Two places are compared in the first
function or file that both pass, by their lines and by the loops around them. No code is run, and conditions are not
evaluated: an order counts only where every route shows it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
MAX_CALLERS = 6
"""Functions that are followed outwards"""
# Routes multiply with each helper that is called from several places; without a bound a long file takes minutes.
MAX_ROUTES = 40
"""Ways to one place that are followed: a helper that a file calls a hundred times is no single place"""


class RouteStop(NamedTuple):
    """Where a route passes through a function or the file: the node that runs there."""

    scope: ast.AST
    node: ast.AST


Route = tuple[RouteStop, ...]
"""From a place outwards: itself in its function, the call of that function in its caller, and so on"""


def routes_to(module: Module, node: ast.AST) -> list[Route]:
    """The ways in which a place is reached, each from the inside out."""
    found: list[Route] = []
    waiting: list[Route] = [(_route_stop(module, node),)]
    while waiting and len(found) < MAX_ROUTES:
        route = waiting.pop(0)
        scope = route[-1].scope
        callers = module.flow.calls_of(scope) if isinstance(scope, FUNCTIONS) else []
        if not callers or len(route) > MAX_CALLERS:
            found.append(route)
            continue
        waiting += [(*route, _route_stop(module, caller)) for caller in callers[:MAX_ROUTES]]
    return found


def _route_stop(module: Module, node: ast.AST) -> RouteStop:
    """A place with the function or file that it stands in."""
    around = (one for one in module.parents(node) if isinstance(one, FUNCTIONS))
    return RouteStop(next(around, module.home(node).tree), node)


def runs_after(late: Route, early: Route) -> bool:
    """Does the late one run after the early one has: further down in the first function or file that both pass?"""
    for stop in late:
        for other in early:
            if stop.scope is other.scope:
                return _stands_below(stop.node, other.node)
    return False


def runs_before(module: Module, early: Route, late: Route) -> bool:
    """Does the early one run before the late one, and not again after it in a loop around both?"""
    for stop in early:
        for other in late:
            if stop.scope is other.scope:
                loops = {
                    one
                    for one in _parents_within_function(module, stop.node)
                    if isinstance(one, LOOPS)
                }
                shares = any(one in loops for one in _parents_within_function(module, other.node))
                return not shares and _stands_below(other.node, stop.node)
    return False


def runs_surely_before(module: Module, early: ast.AST, late: ast.AST) -> bool:
    """Does each way to one place run before each way to the other, and may both run in one pass?"""
    before, after = routes_to(module, early), routes_to(module, late)
    return all(
        runs_before(module, one, other) and not _are_alternatives(module, one, other)
        for one in before
        for other in after
    )


def _are_alternatives(module: Module, one: Route, other: Route) -> bool:
    """Do they part in the branches of one statement: in the first function or file that both pass?"""
    for stop in one:
        for second in other:
            if stop.scope is second.scope:
                first_arms = module.scopes.arms.get(stop.node, ())
                second_arms = module.scopes.arms.get(second.node, ())
                pairs = zip(first_arms, second_arms, strict=False)
                parted = next(((a, b) for a, b in pairs if a != b), None)
                return parted is not None and parted[0][0] == parted[1][0]
    return False


def _stands_below(late: ast.AST, early: ast.AST) -> bool:
    """Does the late place stand further down than the early one?"""
    one = (getattr(late, "lineno", 0), getattr(late, "col_offset", 0))
    other = (getattr(early, "end_lineno", 0), getattr(early, "end_col_offset", 0))
    return one >= other


def runs_unconditionally(module: Module, node: ast.AST) -> bool:
    """Is a place reached on some way without a condition, other than `if __name__ == "__main__"`?"""
    return any(
        all(_is_always_reached(module, stop.node) for stop in route)
        for route in routes_to(module, node)
    )


def _is_always_reached(module: Module, node: ast.AST) -> bool:
    """Does each run of the function or file around a place reach it?"""
    inner = node
    for around in module.parents(node):
        if _is_condition(around) or leaves_before(around, inner):
            return False
        if isinstance(around, FUNCTIONS):
            return True
        inner = around
    return True


def _is_condition(node: ast.AST) -> bool:
    """Does something decide whether what stands inside is run?"""
    if isinstance(node, ast.If):
        return "__name__" not in ast.unparse(node.test)
    return isinstance(node, ast.IfExp | ast.BoolOp | ast.Match | ast.ExceptHandler)


def leaves_before(block: ast.AST, inner: ast.AST) -> bool:
    """Does a statement of a block, above one of its others, leave the block: `if not debug: return`?"""
    body = getattr(block, "body", None)
    above = body[: body.index(inner)] if isinstance(body, list) and inner in body else []
    return any(isinstance(part, LEAVES) for one in above for part in _walk_own_code(one))


def _walk_own_code(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a statement, without the bodies of functions and of loops, which are left by themselves."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, (*FUNCTIONS, *LOOPS, ast.ClassDef)):
            yield one
            waiting += ast.iter_child_nodes(one)


def trains_anything(module: Module) -> bool:
    """Does a file train anything: with a trainer, or by a backward pass anywhere?"""
    return any(training_places(module)) or any(module.methods("backward"))


def training_places(module: Module) -> Iterator[ast.AST]:
    """Calls of a trainer's `train`, and loops that call `backward`."""
    for call in module.methods("train"):
        if call.receiver is not None and "trainer" in module.flow.types(call.receiver):
            yield call.node
    for call in module.methods("backward"):
        loops = [
            one for one in _parents_within_function(module, call.node) if isinstance(one, LOOPS)
        ]
        if loops:
            yield loops[-1]


def _parents_within_function(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """What stands around a place, up to its function."""
    for around in module.parents(node):
        if isinstance(around, FUNCTIONS):
            return
        yield around
