"""Finds code that certainly runs in each training step: in the loop with the backward pass, or in a
hook of each step.

How it works: a place is followed outwards through the functions around it and their callers, also
in other files, up to the loop that holds the backward pass. A condition on the way, a `return` or
`continue` above, or an error handler means that it may run more rarely, so that nothing is said of
it. A condition on the rank alone is none: one process of all runs the code in each step then, and
the others wait for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.one_process_conditions import is_one_process_test
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    MAX_CALLERS,
    block_may_leave_before,
    call_routes_to,
)
from truetune.source.parsed_source_file import Module

STEP_HOOKS = ("on_step_end", "on_substep_end", "on_train_batch_end")
"""Methods of callbacks that run in each step"""
Loop = ast.For | ast.While
Function = ast.FunctionDef | ast.AsyncFunctionDef
OF_RANK = re.compile(
    r"is_(?:world_|local_|main_)?process_zero|is_(?:local_)?main_process|\brank\b|local_rank"
)
OF_COUNT = re.compile(r"%|step|iter|batch|epoch|\bi\b|idx|count", re.IGNORECASE)


def loop_or_hook_of_each_step(
    module: Module, node: ast.AST, callers: int = MAX_CALLERS
) -> ast.AST | None:
    """The loop of the training or the hook that runs a node in each step; None where it may run
    more rarely.
    """
    inner = node
    for outer in module.parents(node):
        if _may_node_keep_code_from_running(module, outer) or block_may_leave_before(outer, inner):
            return None
        inner = outer
        # Another loop inside of a step runs in each of them as well.
        if isinstance(outer, Loop) and outer in innermost_loops_around_backward(module):
            return outer
        if isinstance(outer, Function):
            if outer.name in STEP_HOOKS:
                return outer
            return _loop_or_hook_of_callers(module, outer, callers - 1) if callers else None
    return None


def _loop_or_hook_of_callers(module: Module, function: Function, callers: int) -> ast.AST | None:
    """The one loop or hook from which all calls of a function come, each in each step."""
    calls = module.flow.calls_of_function_or_class(function)
    places = {loop_or_hook_of_each_step(module, call, callers) for call in calls[:MAX_CALLERS]}
    return places.pop() if len(places) == 1 and len(calls) <= MAX_CALLERS else None


def innermost_loops_around_backward(module: Module) -> set[ast.AST]:
    """The innermost loops around the backward passes of a file and those that it is linked with."""
    return {
        loop
        for part in module.self_and_files_run_together
        for node in ast.walk(part.tree)
        if is_backward_call(node)
        for loop in _first_loop_on_each_way(module, node)
    }


def _first_loop_on_each_way(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The first loop on each way to a node, from the inside out."""
    for route in call_routes_to(module, node):
        loops = (loop for stop in route for loop in _loops_around_in_function(module, stop.node))
        first = next(loops, None)
        if first is not None:
            yield first


def _loops_around_in_function(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The loops around a node in its own function, from the inside out."""
    for outer in module.parents(node):
        if isinstance(outer, Function):
            return
        if isinstance(outer, Loop):
            yield outer


def _may_node_keep_code_from_running(module: Module, node: ast.AST) -> bool:
    """May it keep what it holds from running in a step? A condition on the rank alone does not."""
    if isinstance(node, ast.If):
        return not _always_lets_one_process_through(module, node.test)
    return isinstance(node, ast.IfExp | ast.ExceptHandler | ast.Match)


def _always_lets_one_process_through(module: Module, test: ast.expr) -> bool:
    """Does a condition let one process through in each step, whatever else holds?"""
    if isinstance(test, ast.BoolOp):
        enough = all if isinstance(test.op, ast.And) else any
        return enough(_always_lets_one_process_through(module, part) for part in test.values)
    text = ast.unparse(test)
    if OF_COUNT.search(text):
        return False
    return OF_RANK.search(text) is not None or is_one_process_test(module, test)
