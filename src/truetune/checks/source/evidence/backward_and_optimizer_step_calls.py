"""Finds the calls of `backward` and of an optimizer's `step` in hand-written loops.

They are known by the names of their methods, and the optimizer by what makes it. A loss may stand
in several places of a call of backward: before the dot, as an argument, or inside of what a
gradient scaler gives.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


def optimizer_steps_with_optimizers(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The steps of an optimizer, its own or those of a gradient scaler, each with the optimizer."""
    for call in module.methods("step"):
        # `optimizer.step()` has it before the dot, `scaler.step(optimizer)` as its argument.
        for candidate in (call.receiver, *call.args[:1]):
            if candidate is not None and "optimizer" in module.flow.types(candidate):
                yield call, candidate


OPTIMIZER_STEPS = CodePlaces("steps of an optimizer", optimizer_steps_with_optimizers)


def is_backward_call(node: ast.AST) -> bool:
    """Is it a call of a method or function named `backward`?"""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
    )


def backward_calls(module: Module) -> Iterator[Call]:
    """All calls of backward: `loss.backward()`, `accelerator.backward(loss)`,
    `scaler.scale(loss).backward()`.
    """
    yield from module.methods("backward", "manual_backward")


def possible_losses(call: Call) -> Iterator[ast.expr]:
    """The expressions that a call of backward may take as the loss: its receiver and its arguments."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    yield from (part for part in (owner, *call.node.args) if part is not None)
    # `scaler.scale(loss).backward()` has the loss inside of the call before the dot.
    if isinstance(owner, ast.Call):
        yield from owner.args
