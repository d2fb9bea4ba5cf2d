"""Loops that one process leaves by figures of its own, while the others continue and wait for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.backward_slices import backward_slice
from truetune.checks.source.evidence.multi_process_loops import LOOPS, wrapped_models
from truetune.source.module import Module

AGREEMENT_SIGNS = re.compile(
    r"all_?reduce|broadcast|all_?gather|\.gather\(|dist\.reduce\(|monitored_barrier|\bJoin\(|\.join\(\)"
)
"""Signs that processes agree on what they do, or that a wrapper lets one of them leave"""


class LoopExit(NamedTuple):
    """A `break`, `return` or `continue` of a training loop that each process takes by itself."""

    node: ast.stmt
    test: ast.expr
    """The condition that each process computes from rows of its own"""


def exits_by_rank(module: Module) -> Iterator[LoopExit]:
    """The places where a process may leave a loop of training alone."""
    if not any(wrapped_models(module)) or any(
        AGREEMENT_SIGNS.search(part.text) for part in module.with_linked
    ):
        return
    kinds: tuple[type[ast.stmt], ...] = (ast.Break, ast.Continue, ast.Return)
    for kind in kinds:
        for node in module.nodes(kind):
            test = _own_condition(module, node)
            if test is not None:
                yield LoopExit(node, test)


def _own_condition(module: Module, node: ast.stmt) -> ast.expr | None:
    """The condition on figures of this process under which a training loop is left; None where there is none."""
    around, loop = _conditions_around(module, node)
    if loop is None or not _backward_is_left_out(loop, node):
        return None
    tests = [part.test for part in around]
    counters = {n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)}
    tests += _conditions_of_counters(module, loop, counters)
    return next((test for test in tests if _depends_on_own_rows(module, test)), None)


def _conditions_around(module: Module, node: ast.stmt) -> tuple[list[ast.If], ast.AST | None]:
    """The conditions around a statement, up to the loop that it leaves or begins again."""
    conditions: list[ast.If] = []
    for parent in module.parents(node):
        if isinstance(parent, ast.If):
            conditions.append(parent)
        elif isinstance(parent, LOOPS):
            return conditions, parent
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return conditions, None
    return conditions, None


def _backward_is_left_out(loop: ast.AST, node: ast.stmt) -> bool:
    """Does the loop make a backward pass that is left out by this statement?

    A `continue` leaves out only what stands behind it.
    """
    passes = [
        part.lineno
        for part in ast.walk(loop)
        if isinstance(part, ast.Attribute) and part.attr == "backward"
    ]
    behind = node.lineno if isinstance(node, ast.Continue) else 0
    return any(line > behind for line in passes)


def _conditions_of_counters(module: Module, loop: ast.AST, names: set[str]) -> list[ast.expr]:
    """The conditions under which the loop counts: `if loss < best: bad = 0` ... `else: bad += 1`."""
    tests: list[ast.expr] = []
    for part in ast.walk(loop):
        is_counted = (
            isinstance(part, ast.AugAssign)
            and isinstance(part.target, ast.Name)
            and part.target.id in names
        )
        if is_counted:
            tests += [up.test for up in module.parents(part) if isinstance(up, ast.If)]
    return tests


def _depends_on_own_rows(module: Module, test: ast.expr) -> bool:
    """Is a condition computed from what the model gives for rows that a sampler deals out to this process?"""
    calls = [part for part in backward_slice(module, test) if isinstance(part, ast.Call)]
    runs = any(
        "model" in module.flow.types(part.func) or _is_wrapped_model(module, part) for part in calls
    )
    return runs and any(
        module.flow.call(part).named("torch.*.DistributedSampler") for part in calls
    )


def _is_wrapped_model(module: Module, call: ast.Call) -> bool:
    """Is it a call of a model that is wrapped for several processes?"""
    return module.flow.call(call).named("torch.*.DistributedDataParallel")
