"""Finds losses that a loop divides by the batches of a step, and the places where they are logged
divided.

How it works: a division counts where a step is due at every so many batches (`% n` in a condition),
or where a loop runs over that many (`range(n)`), with the same `n`. A place logs the loss where its
value reaches a call that prints or logs, through nothing that changes it.

The trade-off: a figure that is added, multiplied or kept in a list is left alone, as the parts of a
step may be added up to the whole.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.While, ast.AsyncFor)
LOGGING_METHODS = frozenset(
    (
        "log", "add_scalar", "add_scalars", "info", "debug", "set_postfix", "set_postfix_str", "set_description",
        "log_metric", "log_metrics", "log_scalar", "report_scalar", "write",
    )
)  # fmt: skip
PLAIN_CALLS = frozenset(("round", "float", "str", "dict", "format"))
"""Calls that leave a figure what it is"""
READING_METHODS = frozenset(("item", "detach", "cpu", "tolist", "numpy", "float", "data"))
HANDS_ON = (
    ast.Dict, ast.JoinedStr, ast.FormattedValue, ast.keyword, ast.Tuple, ast.List, ast.Starred,
)  # fmt: skip
"""What holds a figure without changing it"""


class DividedLoss(NamedTuple):
    """A statement that divides the loss of a batch by the batches of a step."""

    name: str
    statement: ast.stmt
    divisor: ast.expr


def divided_losses(module: Module) -> Iterator[DividedLoss]:
    """The losses of a file that are divided by the batches of a step before their backward pass."""
    for statement in (*module.nodes(ast.Assign), *module.nodes(ast.AugAssign)):
        divided = _division_of_loss(statement)
        if divided is None or module.flow.value(divided.divisor) == 1:
            continue
        block = _outermost_loop(module, statement)
        if block is not None and _has_backward_on_name(block, divided.name):
            if _is_batches_per_step(module, block, divided):
                yield divided


def _division_of_loss(statement: ast.AST) -> DividedLoss | None:
    """The division of a loss that a statement makes: `loss = x / n` and `loss /= n`; None for
    others.
    """
    if isinstance(statement, ast.AugAssign):
        if isinstance(statement.op, ast.Div) and isinstance(statement.target, ast.Name):
            return DividedLoss(statement.target.id, statement, statement.value)
        return None
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Name) or not isinstance(value, ast.BinOp):
        return None
    return DividedLoss(target.id, statement, value.right) if isinstance(value.op, ast.Div) else None


def _outermost_loop(module: Module, statement: ast.AST) -> ast.AST | None:
    """The outermost loop of the function around a statement; None where it stands in no loop."""
    outermost: ast.AST | None = None
    for parent in module.parents(statement):
        if isinstance(parent, FUNCTIONS):
            break
        if isinstance(parent, LOOPS):
            outermost = parent
    return outermost


def _has_backward_on_name(block: ast.AST, name: str) -> bool:
    """Is a backward pass made of this name: `loss.backward()`, `scaler.scale(loss).backward()`?"""
    for part in ast.walk(block):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            if part.func.attr == "backward":
                names = {one.id for one in ast.walk(part) if isinstance(one, ast.Name)}
                if name in names:
                    return True
    return False


def _is_batches_per_step(module: Module, block: ast.AST, divided: DividedLoss) -> bool:
    """Is the divisor the number of batches after which a step is due?"""
    counts = (
        *_moduli_of_step_conditions(block, divided),
        *_lengths_of_range_loops(module, divided),
    )
    return any(_are_same_number(module, divided.divisor, count) for count in counts)


def _are_same_number(module: Module, one: ast.expr, other: ast.expr) -> bool:
    """Are two expressions the same number, or written alike?"""
    value = module.flow.value(one)
    is_same_number = isinstance(value, int) and module.flow.value(other) == value
    return is_same_number or ast.unparse(other) == ast.unparse(one)


def _moduli_of_step_conditions(block: ast.AST, divided: DividedLoss) -> Iterator[ast.expr]:
    """The moduli of the conditions on a step in a loop: `n` of `step % n == 0`."""
    # `(a + b) / 2` beside `step % 2 == 0` is a mean: a number counts where the optimizer goes by it.
    is_number = isinstance(divided.divisor, ast.Constant)
    for test in ast.walk(block):
        if not isinstance(test, ast.If) or (is_number and not _condition_decides_step(test)):
            continue
        for part in ast.walk(test.test):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                yield part.right


def _lengths_of_range_loops(module: Module, divided: DividedLoss) -> Iterator[ast.expr]:
    """The lengths of the loops around a division: `n` of `range(n)`."""
    for loop in module.parents(divided.statement):
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
            continue
        if module.flow.name(loop.iter.func) == "range" and len(loop.iter.args) == 1:
            yield loop.iter.args[0]


def _condition_decides_step(test: ast.If) -> bool:
    """Does a condition decide on a step of the optimizer, or leave the rest of the pass out?"""
    return any(
        isinstance(part, ast.Continue) or (isinstance(part, ast.Attribute) and part.attr == "step")
        for part in ast.walk(test)
    )


def logs_of_divided_loss(module: Module, divided: DividedLoss) -> Iterator[ast.AST]:
    """The calls that log the divided loss as it is."""
    names = [node for node in module.nodes(ast.Name) if node.id == divided.name]
    for name in names:
        if not _name_is_divided_loss(module, divided, name):
            continue
        found = _call_logging_value(module, name)
        if found is not None:
            yield found


def _name_is_divided_loss(module: Module, divided: DividedLoss, name: ast.Name) -> bool:
    """Does a name stand for the divided loss? Also after `if n > 1: loss = loss / n`."""
    bindings = [one.node for one in module.scopes.bindings_that_reach(name)]
    if divided.statement not in bindings:
        return False
    block = module.scopes.parent.get(divided.statement)
    is_optional = isinstance(block, ast.If) and (
        ast.unparse(divided.divisor) in ast.unparse(block.test)
    )
    if is_optional:
        return len(bindings) <= 2
    # Behind a loop, what its body bound before the division may reach the name as well, but never does.
    line = divided.statement.lineno
    return all(
        one is divided.statement
        or (module.scopes.parent.get(one) is block and getattr(one, "lineno", line) < line)
        for one in bindings
    )


def _call_logging_value(module: Module, read: ast.AST, depth: int = 1) -> ast.AST | None:
    """The call that logs a value, where nothing changes it on the way."""
    inner = read
    for parent in module.parents(read):
        if isinstance(parent, ast.Call):
            if inner is not parent.func and _prints_or_logs(module, parent):
                return parent
            if not _call_leaves_number_as_is(parent, inner):
                return None
        elif isinstance(parent, ast.Assign) and depth and isinstance(parent.targets[0], ast.Name):
            return _call_logging_assigned_name(module, parent, parent.targets[0].id)
        elif not _node_passes_number_unchanged(parent):
            return None
        inner = parent
    return None


def _prints_or_logs(module: Module, call: ast.Call) -> bool:
    """Does a call print or log what it is given?"""
    if isinstance(call.func, ast.Attribute) and call.func.attr in LOGGING_METHODS:
        return True
    return module.flow.name(call.func) == "print"


def _call_leaves_number_as_is(call: ast.Call, inner: ast.AST) -> bool:
    """Does a call leave a number as it is: `loss.item()`, `round(x, 4)`, `"{}".format(x)`?"""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in (READING_METHODS if inner is call.func else PLAIN_CALLS)
    return isinstance(call.func, ast.Name) and call.func.id in PLAIN_CALLS


def _node_passes_number_unchanged(node: ast.AST) -> bool:
    """Does a part of an expression hold a figure without changing it?"""
    if isinstance(node, ast.Attribute):
        return node.attr in (*READING_METHODS, *PLAIN_CALLS)
    return isinstance(node, HANDS_ON) or _is_percent_formatting_of_text(node)


def _is_percent_formatting_of_text(node: ast.AST) -> bool:
    """Does it fill a text by `%`: `"%.4f" % loss`?"""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.left.value, str)
    )


def _call_logging_assigned_name(module: Module, statement: ast.Assign, name: str) -> ast.AST | None:
    """The call that logs what a statement binds to a name, as it is."""
    for node in module.nodes(ast.Name):
        if node.id != name or isinstance(node.ctx, ast.Store):
            continue
        bindings = module.scopes.bindings_that_reach(node)
        if bindings and all(one.node is statement for one in bindings):
            found = _call_logging_value(module, node, depth=0)
            if found is not None:
                return found
    return None
