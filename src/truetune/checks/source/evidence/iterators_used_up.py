"""Finds iterators that a loop over epochs reads to their end in its first pass, and finds empty in each later one.

How it works: a generator, `iter(...)`, `zip`, `map`, `enumerate` and their likes give each item once. Where one is made
before a loop and read by a loop inside of it, the second pass has nothing to read. A loader, a list, a `range` begin
again at each loop, and are no such thing.

The trade-off: an iterator that the outer loop makes again, or that is read by `next`, is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

ONCE = frozenset(
    ("iter", "zip", "map", "filter", "enumerate", "reversed", "islice", "chain", "starmap")
)
"""Functions that give each item once, and end"""
ENDLESS = frozenset(("cycle", "repeat", "count"))
"""Functions whose items never end, and with them what is made of them"""
WRAPPERS = frozenset(("tqdm", "enumerate", "list", "track", "progress_bar"))
"""Calls that read an iterator to its end; `islice` and `zip` may stop before"""
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LEAVING = (ast.Break, ast.Return, ast.Raise)


class UsedUpIterator(NamedTuple):
    """An iterator that is empty from the second pass on."""

    made: ast.expr
    name: str
    read: ast.For
    repeated: ast.AST
    """The loop around it"""


def iterators_used_up(module: Module) -> Iterator[UsedUpIterator]:
    """The iterators that a second pass finds empty, each once.

    Args:
        module: A file that is judged.

    Yields:
        Each inner loop over such an iterator.
    """
    for read in loops_in_loops(module):
        name = _iterated_name(read.iter)
        outer = _loop_around(module, read)
        node = _only_expression_making_iterator(module, name) if name is not None else None
        if name is None or outer is None or node is None or outer in module.parents(node):
            continue
        # A loop over the same iterator reads on where the inner one stopped.
        outer_name = _iterated_name(outer.iter)
        if outer_name is not None and outer_name.id == name.id:
            continue
        if _reads_to_the_end(read) and not _is_read_in_one_pass(module, read, outer):
            yield UsedUpIterator(node, name.id, read, outer)


def loops_in_loops(module: Module) -> Iterator[ast.For]:
    """The loops that stand in another loop."""
    for loop in module.nodes(ast.For):
        if any(isinstance(up, ast.For) for up in module.parents(loop)):
            yield loop


def _iterated_name(iterated: ast.expr) -> ast.Name | None:
    """The name that a loop reads, also inside of `tqdm(...)` or `enumerate(...)`."""
    while isinstance(iterated, ast.Call) and last_name_of_called(iterated) in WRAPPERS:
        if not iterated.args:
            return None
        iterated = iterated.args[0]
    return iterated if isinstance(iterated, ast.Name) else None


def _loop_around(module: Module, read: ast.For) -> ast.For | None:
    """The innermost loop around another one, in the same function."""
    function = module.function_around(read)
    loops = (up for up in module.parents(read) if isinstance(up, ast.For))
    return next((one for one in loops if module.function_around(one) is function), None)


def _is_read_in_one_pass(module: Module, read: ast.For, outer: ast.For) -> bool:
    """Does only one pass of the outer loop reach the inner one: does it end after it, or ask for `epoch == 0`?"""
    if any(isinstance(one, LEAVING) for one in outer.body):
        return True
    counters = {part.id for part in ast.walk(outer.target) if isinstance(part, ast.Name)}
    for up in module.parents(read):
        if up is outer:
            return False
        if isinstance(up, ast.If) and _tests_counter_for_one_value(up.test, counters):
            return True
    return False


def _tests_counter_for_one_value(test: ast.expr, counters: set[str]) -> bool:
    """Is a condition `epoch == 0`, of a counter of the loop?"""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    return isinstance(test.left, ast.Name) and test.left.id in counters


def _only_expression_making_iterator(module: Module, name: ast.Name) -> ast.expr | None:
    """The expression that makes the iterator, where it is the only one that the name may stand for."""
    bindings = module.scopes.bindings_that_reach(name)
    if len(bindings) != 1 or bindings[0].kind != "value" or bindings[0].path:
        return None
    value = bindings[0].value
    return value if value is not None and _makes_iterator_that_ends(module, value) else None


def _makes_iterator_that_ends(module: Module, value: ast.expr) -> bool:
    """Does an expression make an iterator that ends?"""
    if isinstance(value, ast.GeneratorExp):
        return True
    if not isinstance(value, ast.Call):
        return False
    name = last_name_of_called(value)
    if isinstance(value.func, ast.Name) and name in ONCE:
        inner = {last_name_of_called(one) for one in value.args if isinstance(one, ast.Call)}
        return module.flow.function_called(value.func) is None and not inner & ENDLESS
    function = module.flow.function_called(value.func)
    return isinstance(function, FUNCTIONS) and _is_generator_that_ends(module, function)


def _is_generator_that_ends(module: Module, function: ast.AST) -> bool:
    """Is a function a generator without an endless loop?"""
    parts = [part for part in ast.walk(function) if part is not function]
    yields = [
        part
        for part in parts
        if isinstance(part, ast.Yield | ast.YieldFrom) and module.function_around(part) is function
    ]
    is_endless = any(
        isinstance(part, ast.While) and isinstance(part.test, ast.Constant) for part in parts
    )
    is_wrapped = bool(getattr(function, "decorator_list", ()))
    return bool(yields) and not is_endless and not is_wrapped


def _reads_to_the_end(loop: ast.For) -> bool:
    """Does a loop read all items: does nothing leave it, but a return or a raise?"""
    waiting: list[ast.AST] = [*loop.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Break):
            return False
        if not isinstance(node, (*LOOPS, *FUNCTIONS)):
            waiting += ast.iter_child_nodes(node)
    return True
