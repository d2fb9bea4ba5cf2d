"""Finds importance ratios whose old log-probabilities are those of the same step, in a loop of several updates.

How it works: `exp(new - old)` is looked for, in which `old` is `new.detach()`, or the same call once more in the same
loop. The loop has to be a `range` of a known number of epochs around the optimizer's step, within another loop, and
what the pass reads has to come from outside of it: each of its passes then updates the policy on the same answers.

The trade-off: with a single update on each batch such a ratio is right (its gradient is that of the policy gradient),
so nothing is said unless the number of epochs is known and above 1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.wrong_signs_of_policy_losses import LOG_PROBABILITY
from truetune.source.parsed_source_file import Module

MAX_EPOCHS = 16
"""PPO's paper (arXiv:1707.06347) uses 3 to 15 epochs on a batch; longer loops are those of a whole training"""
FRESH = re.compile(
    r"next|get|pop|sampl|generat|rollout|choice|collect|fetch|load|experience|explore|recv|read|chat|complet",
    re.I,
)
"""Parts of the names of calls that may give other rows at each pass"""
SAME_VALUES = ("detach", "clone", "data", "stop_gradient", "float")
MAX_NAMES = 100


class RatioOfOnePass(NamedTuple):
    """A ratio that is always 1, in a loop of several updates on one batch."""

    ratio: ast.BinOp
    old: ast.expr
    loop: ast.For
    epochs: int


def log_ratios(module: Module) -> Iterator[ast.BinOp]:
    """The differences of two log-probabilities in `exp(new - old)`."""
    for call in module.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "exp":
            continue
        given = call.args[0] if call.args else call.func.value
        for origin in module.flow.origins(given):
            node = origin.node
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                if LOG_PROBABILITY.search(ast.unparse(node.left)):
                    yield node


def ratios_of_one_pass(module: Module) -> Iterator[RatioOfOnePass]:
    """The ratios of a file that are 1 at each of several updates on one batch, each once."""
    seen: set[ast.AST] = set()
    for ratio in log_ratios(module):
        if ratio in seen:
            continue
        seen.add(ratio)
        old = _copy_of_new(module, ratio)
        loop = _loop_of_updates(module, ratio) if old is not None else None
        if old is None or loop is None or not _is_in(module, old, loop):
            continue
        if not _reads_fresh_rows(module, ratio.left, loop):
            yield RatioOfOnePass(ratio, old, loop, _epochs(module, loop))


def _copy_of_new(module: Module, ratio: ast.BinOp) -> ast.expr | None:
    """What the old log-probabilities are, where they have the values of the new ones; None where they have not."""
    new = _expressions_of(module, ratio.left)
    for old in _expressions_of(module, ratio.right):
        copied = _without_copies(old)
        if copied is not old:
            if ast.unparse(copied) == ast.unparse(ratio.left):
                return old
            if any(one in new for one in _expressions_of(module, copied)):
                return old
        elif any(_is_same_pass(module, one, old) for one in new):
            return old
    return None


def _expressions_of(module: Module, node: ast.expr) -> list[ast.expr]:
    """An expression, or those that a name is bound to."""
    if not isinstance(node, ast.Name):
        return [node]
    bindings = module.scopes.bindings_that_reach(node)
    values = [one.value for one in bindings if one.kind == "value" and not one.path]
    return [one for one in values if isinstance(one, ast.expr)]


def _without_copies(node: ast.expr) -> ast.expr:
    """What an expression copies: `x.detach().clone()` -> `x`."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in SAME_VALUES:
                return node
            node = node.func.value
        else:
            return node


def _is_same_pass(module: Module, new: ast.expr, old: ast.expr) -> bool:
    """Is the same call written twice, with the same loops around it?"""
    if new is old or not isinstance(new, ast.Call) or ast.unparse(new) != ast.unparse(old):
        return False
    return _innermost_loop(module, new) is _innermost_loop(module, old)


def _innermost_loop(module: Module, node: ast.AST) -> ast.AST | None:
    """The innermost loop around a node."""
    loops = (one for one in module.parents(node) if isinstance(one, ast.For | ast.While))
    return next(loops, None)


def _is_in(module: Module, node: ast.AST, loop: ast.AST) -> bool:
    """Is a node in a loop?"""
    return any(one is loop for one in module.parents(node))


def _epochs(module: Module, loop: ast.For) -> int:
    """How often a `for _ in range(n)` runs; 0 where that is not known."""
    iterated = loop.iter
    if not isinstance(iterated, ast.Call) or ast.unparse(iterated.func) != "range":
        return 0
    number = module.flow.value(iterated.args[0]) if len(iterated.args) == 1 else None
    return number if isinstance(number, int) else 0


def _loop_of_updates(module: Module, ratio: ast.BinOp) -> ast.For | None:
    """The loop of several epochs around a ratio and the optimizer's step, within another loop or a function."""
    for loop in module.parents(ratio):
        if isinstance(loop, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        if isinstance(loop, ast.For) and 1 < _epochs(module, loop) <= MAX_EPOCHS:
            is_inner = _innermost_loop(module, loop) is not None or module.function_around(loop)
            return loop if is_inner and _makes_step(loop) else None
    return None


def _makes_step(loop: ast.For) -> bool:
    """Does a loop make the optimizer's step?"""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and "sched" not in ast.unparse(node.func.value)
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _reads_fresh_rows(module: Module, node: ast.expr, loop: ast.For) -> bool:
    """May what a pass reads be other rows at each pass of the loop?"""
    waiting: list[ast.expr] = [node]
    seen: set[ast.AST] = set()
    while waiting and len(seen) < MAX_NAMES:
        for part in ast.walk(waiting.pop()):
            if isinstance(part, ast.Call) and _may_be_fresh(part):
                return True
            if not isinstance(part, ast.Name) or part in seen:
                continue
            seen.add(part)
            for binding in module.scopes.bindings_that_reach(part):
                value = binding.value
                if isinstance(value, ast.expr) and _is_in(module, value, loop):
                    waiting.append(value)
    return bool(waiting)


def _may_be_fresh(call: ast.Call) -> bool:
    """Does the name of a call say that it may give other rows each time?"""
    name = ast.unparse(call.func).rpartition(".")[2]
    return FRESH.search(name) is not None and not LOG_PROBABILITY.search(name)
