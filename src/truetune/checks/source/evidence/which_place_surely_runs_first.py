"""Says which of two places of a file runs first, and whether a place is always reached, where the
calls leave one answer.

A place is described by routes: the calls that lead to it, from the inside out. Two places are
compared in the first function or file that both pass, by their lines and by the loops around them.
No code is run, and conditions are not evaluated: an order counts only where every route shows it.
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


class RouteStep(NamedTuple):
    """Where a route passes through a function or the file: the node that runs there."""

    scope: ast.AST
    node: ast.AST


Route = tuple[RouteStep, ...]
"""From a place outwards: itself in its function, the call of that function in its caller, and so on"""


def call_routes_to(module: Module, node: ast.AST) -> list[Route]:
    """The ways in which a place is reached, each from the inside out."""
    routes: list[Route] = []
    waiting: list[Route] = [(_route_step_of(module, node),)]
    while waiting and len(routes) < MAX_ROUTES:
        route = waiting.pop(0)
        scope = route[-1].scope
        callers = (
            module.flow.calls_of_function_or_class(scope) if isinstance(scope, FUNCTIONS) else []
        )
        if not callers or len(route) > MAX_CALLERS:
            routes.append(route)
            continue
        waiting += [(*route, _route_step_of(module, caller)) for caller in callers[:MAX_ROUTES]]
    return routes


def _route_step_of(module: Module, node: ast.AST) -> RouteStep:
    """The step of a route for a place: the place, with the function or file that it stands in."""
    around = (one for one in module.parents(node) if isinstance(one, FUNCTIONS))
    return RouteStep(next(around, module.home(node).tree), node)


def route_runs_after(late: Route, early: Route) -> bool:
    """Does the late one run after the early one has: further down in the first function or file
    that both pass?
    """
    for stop in late:
        for other in early:
            if stop.scope is other.scope:
                return _is_on_a_later_line(stop.node, other.node)
    return False


def route_runs_only_before(module: Module, early: Route, late: Route) -> bool:
    """Does the early route run before the late one, and not again after it in a loop around both?"""
    for stop in early:
        for other in late:
            if stop.scope is other.scope:
                loops = {
                    one
                    for one in _parents_within_function(module, stop.node)
                    if isinstance(one, LOOPS)
                }
                shares = any(one in loops for one in _parents_within_function(module, other.node))
                return not shares and _is_on_a_later_line(other.node, stop.node)
    return False


def runs_surely_before(module: Module, early: ast.AST, late: ast.AST) -> bool:
    """Does each way to one place run before each way to the other, and may both run in one pass?"""
    before, after = call_routes_to(module, early), call_routes_to(module, late)
    return all(
        route_runs_only_before(module, one, other)
        and not _are_routes_in_exclusive_branches(module, one, other)
        for one in before
        for other in after
    )


def _are_routes_in_exclusive_branches(module: Module, one: Route, other: Route) -> bool:
    """Do two routes part in the branches of one statement, so that only one of them runs?"""
    for stop in one:
        for second in other:
            if stop.scope is second.scope:
                first_arms = module.scopes.arms.get(stop.node, ())
                second_arms = module.scopes.arms.get(second.node, ())
                pairs = zip(first_arms, second_arms, strict=False)
                parted = next(((a, b) for a, b in pairs if a != b), None)
                return parted is not None and parted[0][0] == parted[1][0]
    return False


def _is_on_a_later_line(late: ast.AST, early: ast.AST) -> bool:
    """Does the late place stand further down than the early one?"""
    one = (getattr(late, "lineno", 0), getattr(late, "col_offset", 0))
    other = (getattr(early, "end_lineno", 0), getattr(early, "end_col_offset", 0))
    return one >= other


def runs_unconditionally(module: Module, node: ast.AST) -> bool:
    """Is a place reached on some way without a condition, other than `if __name__ == "__main__"`?"""
    return any(
        all(_is_always_reached(module, stop.node) for stop in route)
        for route in call_routes_to(module, node)
    )


def _is_always_reached(module: Module, node: ast.AST) -> bool:
    """Does each run of the function or file around a place reach it?"""
    inner = node
    for around in module.parents(node):
        if _may_skip_its_body(around) or block_may_leave_before(around, inner):
            return False
        if isinstance(around, FUNCTIONS):
            return True
        inner = around
    return True


def _may_skip_its_body(node: ast.AST) -> bool:
    """Does something decide whether what stands inside is run?"""
    if isinstance(node, ast.If):
        return "__name__" not in ast.unparse(node.test)
    return isinstance(node, ast.IfExp | ast.BoolOp | ast.Match | ast.ExceptHandler)


def block_may_leave_before(block: ast.AST, inner: ast.AST) -> bool:
    """Does a statement of a block, above the inner one, leave the block: `if not debug: return`?"""
    body = getattr(block, "body", None)
    above = body[: body.index(inner)] if isinstance(body, list) and inner in body else []
    return any(
        isinstance(part, LEAVES) for one in above for part in _walk_without_functions_and_loops(one)
    )


def _walk_without_functions_and_loops(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a statement, without the bodies of functions and of loops, which are left by
    themselves.
    """
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
