"""Counts that a loop keeps for a score: those that each batch makes again, and rows that are skipped uncounted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.module import Module

Loop = ast.For | ast.AsyncFor
LOADER_NAME = re.compile(r"loader|dataloader|_dl\b|batches", re.I)
"""Names of what gives batches"""
ANSWER_READER_NAME = re.compile(
    r"extract|parse|search|match|find|loads|read_answer|get_answer|to_number", re.I
)
"""Names of functions that read an answer out of a text, and give None where there is none"""


class LastBatch(NamedTuple):
    """A count that a loop over batches assigns and does not add up."""

    name: str
    assigned: ast.Assign
    read: ast.Name
    """Where it is read behind the loop"""


class SkippedRows(NamedTuple):
    """Rows that a loop leaves before it counts them."""

    counter: str
    skip: ast.If
    counting: ast.AugAssign


def counts_of_last_batch(module: Module) -> Iterator[LastBatch]:
    """Right answers of a batch that are assigned in a loop, never read in it, and read behind it."""
    for loop in module.nodes(ast.For):
        if not LOADER_NAME.search(ast.unparse(loop.iter)):
            continue
        for part in ast.walk(loop):
            target = part.targets[0] if isinstance(part, ast.Assign) else None
            if isinstance(part, ast.Assign) and isinstance(target, ast.Name):
                read = _read_after_loop(module, loop, target.id)
                if read is not None and _counts_equal_elements(part.value):
                    yield LastBatch(target.id, part, read)


def _counts_equal_elements(value: ast.expr) -> bool:
    """Is it the number or share of equal elements: `(guess == gold).sum().item()`, `.float().mean()`?"""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    sums = any(
        isinstance(one.func, ast.Attribute) and one.func.attr in ("sum", "mean") for one in calls
    )
    compares = (node for node in ast.walk(value) if isinstance(node, ast.Compare))
    return sums and any(isinstance(one.ops[0], ast.Eq) for one in compares)


def _read_after_loop(module: Module, loop: Loop, name: str) -> ast.Name | None:
    """Where a name that the loop does not read is read behind it, in the same function; None where it is read in the
    loop, or assigned again behind it."""
    inside = set(ast.walk(loop))
    around = module.scopes.of[loop]
    uses = [
        node
        for node in module.nodes(ast.Name)
        if node.id == name and module.scopes.of[node] is around
    ]
    if any(node in inside and isinstance(node.ctx, ast.Load) for node in uses):
        return None
    end = loop.end_lineno or loop.lineno
    behind = sorted((one for one in uses if one.lineno > end), key=lambda one: one.lineno)
    if not behind or not isinstance(behind[0].ctx, ast.Load):
        return None
    return behind[0]


def skipped_rows(module: Module) -> Iterator[SkippedRows]:
    """Loops that `continue` where no answer is read, and count rows only behind that."""
    for loop in module.nodes(ast.For):
        skip: ast.If | None = None
        for statement in loop.body:
            if _skips_unread_answers(loop, statement):
                skip = statement if isinstance(statement, ast.If) else None
            elif skip is not None and _increments_by_one(statement):
                assert isinstance(statement, ast.AugAssign)
                name = ast.unparse(statement.target)
                if _is_divisor(module, loop, name):
                    yield SkippedRows(name, skip, statement)


def _skips_unread_answers(loop: Loop, statement: ast.stmt) -> bool:
    """Is it `if value is None: continue`, of a value that a function read out of an answer?"""
    if not isinstance(statement, ast.If) or statement.orelse or len(statement.body) != 1:
        return False
    value = _value_that_is_none(statement.test)
    if value is None or not isinstance(statement.body[0], ast.Continue):
        return False
    return any(
        ANSWER_READER_NAME.search(name) for name in _functions_assigned(loop, ast.unparse(value))
    )


def _value_that_is_none(test: ast.expr) -> ast.expr | None:
    """`value` of `not value` and of `value is None`; None of any other test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        return test.left
    return None


def _functions_assigned(loop: Loop, name: str) -> Iterator[str]:
    """The functions whose results get a name in a loop, as they are written."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if ast.unparse(node.targets[0]) == name:
                yield ast.unparse(node.value.func)


def _increments_by_one(statement: ast.stmt) -> bool:
    """`total += 1`"""
    return (
        isinstance(statement, ast.AugAssign)
        and isinstance(statement.op, ast.Add)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value == 1
    )


def _is_divisor(module: Module, loop: Loop, name: str) -> bool:
    """Is something divided by this count behind the loop?"""
    end = loop.end_lineno or loop.lineno
    return any(
        isinstance(node.op, ast.Div) and node.lineno > end and name in _names_in(node.right)
        for node in module.nodes(ast.BinOp)
    )


def _names_in(node: ast.expr) -> list[str]:
    """The names in a divisor: `max(total, 1)` has `total`."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
