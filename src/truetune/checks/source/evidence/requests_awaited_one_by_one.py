"""Says whether a coroutine that asks a server waits for its answer before the next row is asked.

How it works: from the call outwards to the loop, and from the loop to what starts the program, each
coroutine has to be awaited where it is called. One that is handed on as an object
(`gather(*(ask(row) for row in rows))`, `create_task`) may run beside others, and then nothing is
said.

The trade-off: what a helper of another package does with a coroutine is not followed; it counts as
run beside others.
"""

from __future__ import annotations

import ast

from truetune.checks.source.evidence.what_makes_code_run_again import calls_running_function
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

STARTERS = ("asyncio.run", "anyio.run", "trio.run", "uvloop.run")
START_METHODS = ("run_until_complete",)
WAITERS = ("wait_for", "shield")
"""Functions that are awaited instead of the coroutine that they are given"""
TASK_MAKERS = ("create_task", "ensure_future")
PARALLEL_SIGNS = ("PoolExecutor", "threading", "multiprocessing")
"""Signs that whole loops run beside one another"""
MAX_CALLERS = 12
"""Functions that are followed outwards. Chosen: a request, its retry, a row, a file, main"""


def is_request_asynchronous(module: Module, call: Call) -> bool:
    """Is a request awaited, or made in an `async with`, so that others could run meanwhile?"""
    parent = module.scopes.parent.get(call.node)
    if isinstance(parent, ast.withitem):
        return isinstance(module.scopes.parent.get(parent), ast.AsyncWith)
    return isinstance(parent, ast.Await) or _is_awaited_at_once(module, call.node)


def waits_for_each_answer(module: Module, call: Call) -> bool:
    """Is each coroutine from a request to the start of the program awaited where it is called?"""
    if module.mentions(*PARALLEL_SIGNS):
        return False
    waiting: list[ast.AST] = [call.node]
    seen: set[ast.AST] = set()
    while waiting:
        function = _function_around(module, waiting.pop())
        if function is None or function in seen:
            continue
        seen.add(function)
        if len(seen) > MAX_CALLERS or isinstance(function, ast.Lambda):
            return False
        callers = calls_running_function(module, function)
        if isinstance(function, ast.AsyncFunctionDef) and not all(
            _is_awaited_at_once(module, one) for one in callers
        ):
            return False
        if _is_function_passed_to_caller(module, function, callers):
            return False
        waiting += callers
    return True


def _function_around(
    module: Module, node: ast.AST
) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """The function that a node stands in."""
    for around in module.parents(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return around
    return None


def _is_awaited_at_once(module: Module, call: ast.AST) -> bool:
    """Is a coroutine awaited at once: `await ask(row)`, `await wait_for(ask(row), 60)`,
    `asyncio.run(main())`?
    """
    parent = module.scopes.parent.get(call)
    if isinstance(parent, ast.Await):
        return True
    if not isinstance(parent, ast.Call) or call not in parent.args:
        return False
    name = last_name_of_called(parent)
    if module.flow.call(parent).named(*STARTERS) or name in START_METHODS:
        return True
    outer = module.scopes.parent.get(parent)
    if name in WAITERS:
        return isinstance(outer, ast.Await)
    return name in TASK_MAKERS and _is_awaited_in_the_next_statement(module, outer)


def _is_awaited_in_the_next_statement(module: Module, outer: ast.AST | None) -> bool:
    """Is a created task awaited at once, or in the statement after the one that names it: `await
    create_task(...)`?
    """
    if isinstance(outer, ast.Await):
        return True
    if not isinstance(outer, ast.Assign) or not isinstance(outer.targets[0], ast.Name):
        return False
    body = getattr(module.scopes.parent.get(outer), "body", None)
    if not isinstance(body, list) or outer not in body[:-1]:
        return False
    name = outer.targets[0].id
    following = body[body.index(outer) + 1]
    return any(
        isinstance(node, ast.Await) and isinstance(node.value, ast.Name) and node.value.id == name
        for node in ast.walk(following)
    )


def _is_function_passed_to_caller(
    module: Module, function: ast.AST, callers: list[ast.Call]
) -> bool:
    """Is a function itself given to something that calls it as often as it likes: `pool.map(ask,
    rows)`?
    """
    name = getattr(function, "name", "")
    called = {id(part) for one in callers for part in ast.walk(one.func)}
    return any(
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Load)
        and id(node) not in called
        for part in module.self_and_files_run_together
        for node in part.nodes(ast.Name)
    )
