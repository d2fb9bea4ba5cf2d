"""Says whether one place of a script may run before another, as far as its functions and their
callers tell.

A place in a function runs where the function is called. So each place has chains: itself, the call
of its function, the call of the function around that, out to the module. Two chains meet in a
function that both are in; there the lines decide, or a loop around both. The trade-off: conditions
are not followed, so the answer is "may".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.parsed_source_file import Module

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
MAX_CALLERS = 4
"""Calls of calls that are followed outwards: a main, an epoch, a step and a helper"""
MAX_CALLS_OF_ONE = 6
"""Calls of one function that are followed; where there are more, the others are like them"""


def call_chains(
    module: Module, node: ast.AST, depth: int = MAX_CALLERS
) -> Iterator[tuple[ast.AST, ...]]:
    """The chains of calls through which a place is reached: the place, then the calls from the
    inside out; one chain for each way.
    """
    function = _function_around(module, node)
    callers = (
        module.flow.calls_of_function_or_class(function) if isinstance(function, FUNCTIONS) else []
    )
    if not callers or depth == 0:
        yield (node,)
    for caller in callers[:MAX_CALLS_OF_ONE] if depth else ():
        for chain in call_chains(module, caller, depth - 1):
            yield (node, *chain)


def may_run_before(module: Module, first: ast.AST, second: ast.AST) -> bool:
    """May the first place have run when the second is reached?"""
    earlier = [link for chain in call_chains(module, first) for link in chain]
    later = [link for chain in call_chains(module, second) for link in chain]
    return any(
        _function_around(module, one) is _function_around(module, other)
        and _is_above_or_in_a_loop(module, one, other)
        for one in earlier
        for other in later
    )


def _function_around(module: Module, node: ast.AST) -> ast.AST:
    """The function that a place stands in; the tree of its file outside of any."""
    around = (part for part in module.parents(node) if isinstance(part, FUNCTIONS))
    return next(around, module.home(node).tree)


def _is_above_or_in_a_loop(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Does a place stand above another of the same function, or in one loop with it?"""
    if getattr(one, "lineno", 0) < getattr(other, "lineno", 0):
        return True
    loops = {part for part in module.parents(one) if isinstance(part, LOOPS)}
    return any(part in loops for part in module.parents(other))
