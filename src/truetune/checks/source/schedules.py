"""Learning rate schedules in source, and how their lengths are computed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.code_places import CodePlaces
from truetune.source.calls import Call
from truetune.source.module import Module

LENGTH = {
    "transformers.get_linear_schedule_with_warmup": (2, "num_training_steps"),
    "transformers.get_cosine_*": (2, "num_training_steps"),
    "transformers.get_polynomial_*": (2, "num_training_steps"),
    "transformers.get_scheduler": (3, "num_training_steps"),
    "torch.optim.lr_scheduler.CosineAnnealingLR": (1, "T_max"),
    "torch.optim.lr_scheduler.LinearLR": (3, "total_iters"),
    "torch.optim.lr_scheduler.OneCycleLR": (2, "total_steps"),
}


def schedules(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """Schedules that are built, each with the expression of its length."""
    for pattern, (position, name) in LENGTH.items():
        for call in module.calls(pattern):
            total = call.argument(position, name)
            if total is not None:
                yield call, total


def expressions(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """Every node that a number is computed from, through names; not what stands inside `len(...)`."""
    seen: set[ast.AST] = set()
    waiting = [node]
    while waiting:
        for origin in module.flow.origins(waiting.pop()):
            made = origin.node
            if made not in seen:
                seen.add(made)
                yield made
                if isinstance(made, (ast.BinOp, ast.Call, ast.UnaryOp)) and not _is_length(
                    module, made
                ):
                    waiting += ast.iter_child_nodes(made)


def lengths(module: Module, total: ast.expr) -> Iterator[ast.Call]:
    """The `len(x)` in an expression."""
    for node in expressions(module, total):
        if isinstance(node, ast.Call) and _is_length(module, node) and len(node.args) == 1:
            yield node


def _is_length(module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and module.flow.name(node.func) == "len"


def divided(module: Module, total: ast.expr) -> bool:
    """Is there a division anywhere in it?"""
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.RShift))
        for node in expressions(module, total)
    )


def stepped_every(module: Module, schedule: Call) -> ast.expr | None:
    """n, where each `step()` of a schedule stands behind `if ... % n == 0`."""
    found: ast.expr | None = None
    for call in module.methods("step"):
        if not any(
            origin.node is schedule.node
            for origin in module.flow.origins(call.receiver or call.node)
        ):
            continue
        every = next(
            (
                n
                for p in module.parents(call.node)
                if isinstance(p, ast.If)
                for n in _moduli(p.test)
            ),
            None,
        )
        if every is None:
            return None
        found = every
    return found


def _moduli(test: ast.expr) -> Iterator[ast.expr]:
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            yield node.right


SCHEDULES = CodePlaces("learning rate schedules with a length", schedules)
