"""Says whether a loop does something only in some of its passes, by a test that counts them.

A test counts where it holds a remainder (`step % 4`, also under a name), or a number that the loop raises. It decides
over an event that is in one of its arms, or after an arm that leaves (`continue`, `return`).

The trade-off: a test of anything else (`if torch.isfinite(loss)`) does not count, though it leaves passes out too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.name_bindings_in_scopes import STATEMENTS_THAT_LEAVE
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.trace_of_events import Event

SYNC_FLAG = "sync_gradients"
"""The attribute of an Accelerator that is true in the last batch of a step"""


def is_done_in_some_passes(event: Event) -> bool:
    """Does a test that counts the passes of the loop around an event decide whether it happens?

    Args:
        event: An event of a run.

    Returns:
        False where no such test is seen.
    """
    return any(_test_counts_loop_passes(event.home, test) for test in _tests_that_decide(event))


def _tests_that_decide(event: Event) -> Iterator[ast.expr]:
    """The tests in the innermost loop around an event that decide whether a pass reaches it."""
    places = [event.node]
    for frame in event.frames():
        if frame.kind == "loop":
            break
        if frame.kind == "call":
            places.append(frame.node)
    for place in places:
        yield from _conditions_to_reach_place(event.home, place)


def _conditions_to_reach_place(module: Module, place: ast.AST) -> Iterator[ast.expr]:
    """The tests around a place, and those before it whose arm leaves, within its loop or function."""
    inner = place
    for around in module.parents(place):
        if isinstance(around, ast.If | ast.IfExp):
            yield around.test
        for body in _bodies_of(around):
            if inner in body:
                yield from _conditions_of_exiting_statements(body[: body.index(inner)])
        if isinstance(around, ast.For | ast.While | ast.FunctionDef):
            return
        inner = around


def _bodies_of(node: ast.AST) -> Iterator[list[ast.AST]]:
    """The blocks of statements of a node."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _conditions_of_exiting_statements(statements: list[ast.AST]) -> Iterator[ast.expr]:
    """The tests of statements that leave what is around them."""
    for one in statements:
        if isinstance(one, ast.If) and isinstance(one.body[-1], STATEMENTS_THAT_LEAVE):
            yield one.test


def _test_counts_loop_passes(module: Module, test: ast.expr) -> bool:
    """Does a test hold a remainder, a number that is raised, or what accelerate counted?"""
    return any(
        _is_remainder_or_raised_number(module, part) for part in backward_slice(module, test)
    )


def _is_remainder_or_raised_number(module: Module, part: ast.AST) -> bool:
    """Is a part of a test a remainder, a number that is raised, or accelerate's own flag?"""
    if isinstance(part, ast.BinOp):
        return isinstance(part.op, ast.Mod)
    if isinstance(part, ast.Call):
        return module.flow.call(part).named("divmod")
    if isinstance(part, ast.Attribute) and part.attr == SYNC_FLAG:
        return True
    return isinstance(part, ast.Name | ast.Attribute) and bool(
        module.expressions_added_to_variable(part)
    )
