"""Finds learning rate schedules in source, how their lengths are computed, and how often they are
stepped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.source.evidence.which_place_surely_runs_first import FUNCTIONS
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LENGTH = {
    "transformers.get_linear_schedule_with_warmup": (2, "num_training_steps"),
    "transformers.get_cosine_*": (2, "num_training_steps"),
    "transformers.get_polynomial_*": (2, "num_training_steps"),
    "transformers.get_scheduler": (3, "num_training_steps"),
    "torch.optim.lr_scheduler.CosineAnnealingLR": (1, "T_max"),
    "torch.optim.lr_scheduler.LinearLR": (3, "total_iters"),
    "torch.optim.lr_scheduler.OneCycleLR": (2, "total_steps"),
}


def schedules_with_length(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """Schedules that are built, each with the expression of its length."""
    for pattern, (position, name) in LENGTH.items():
        for call in module.calls(pattern):
            total = call.argument(position, name)
            if total is not None:
                yield call, total


def expressions_of_number(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """Every node that a number is computed from, through names; not what stands inside `len(...)`."""
    seen: set[ast.AST] = set()
    waiting = [node]
    while waiting:
        for origin in module.flow.origins(waiting.pop()):
            origin_node = origin.node
            if origin_node not in seen:
                seen.add(origin_node)
                yield origin_node
                if isinstance(origin_node, (ast.BinOp, ast.Call, ast.UnaryOp)) and not _is_len_call(
                    module, origin_node
                ):
                    waiting += ast.iter_child_nodes(origin_node)


def len_calls_in_expression(module: Module, total: ast.expr) -> Iterator[ast.Call]:
    """The calls of `len` in the expression of a number: `len(x)`."""
    for node in expressions_of_number(module, total):
        if isinstance(node, ast.Call) and _is_len_call(module, node) and len(node.args) == 1:
            yield node


def _is_len_call(module: Module, node: ast.AST) -> bool:
    """Is it a call of `len`?"""
    return isinstance(node, ast.Call) and module.flow.name(node.func) == "len"


def number_is_divided(module: Module, total: ast.expr) -> bool:
    """Is there a division anywhere in it?"""
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.RShift))
        for node in expressions_of_number(module, total)
    )


def divisor_of_step_condition(module: Module, schedule: Call) -> ast.expr | None:
    """The divisor n, where each `step()` of a schedule, or of an optimizer, stands under `if ... %
    n == 0`; None otherwise.
    """
    step: ast.expr | None = None
    for call in module.methods("step"):
        # A scaler steps the optimizer that it is given: scaler.step(optimizer).
        stepped = (call.receiver or call.node, *call.args[:1])
        if not any(
            origin.node is schedule.node for part in stepped for origin in module.flow.origins(part)
        ):
            continue
        every = next(
            (
                n
                for test in _conditions_around_and_before(module, call.node)
                for n in _moduli_of_test(module, test)
            ),
            None,
        )
        if every is None:
            return None
        step = every
    return step


def _conditions_around_and_before(
    module: Module, node: ast.AST, depth: int = 0
) -> Iterator[ast.expr]:
    """The conditions of a place: those around it, and those before it that continue with the next;
    also of the one call of its function.
    """
    place = node
    for parent in module.parents(node):
        if isinstance(parent, FUNCTIONS):
            calls = module.flow.calls_of_function_or_class(parent)
            if len(calls) == 1 and depth < MOST_CALLS:
                yield from _conditions_around_and_before(module, calls[0], depth + 1)
            return
        if isinstance(parent, ast.If):
            yield parent.test
        if isinstance(parent, ast.For | ast.While) and place in parent.body:
            for statement in parent.body[: parent.body.index(place)]:
                if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Continue):
                    yield statement.test
        place = parent


def _moduli_of_test(module: Module, test: ast.expr) -> Iterator[ast.expr]:
    """The moduli of the remainders in a test: `steps` of `i % steps == 0`, also where a name stands
    for it.
    """
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            yield node.right
        if isinstance(node, ast.Name):
            for origin in module.flow.origins(node):
                if isinstance(origin.node, ast.Compare):
                    yield from _moduli_of_test(module, origin.node)


class SchedulerPace(NamedTuple):
    """How often a schedule is stepped, as far as its loops say."""

    call: Call
    """The `scheduler.step()`"""
    is_by_epoch: bool
    """Once for all batches of a loop, rather than at each"""
    epochs: ast.For
    """The loop over epochs around the batches"""


def scheduler_pace(module: Module, schedule: Call) -> SchedulerPace | None:
    """How often a schedule is stepped beside its optimizer; None where the loops do not tell.

    The optimizer steps in a loop over batches inside of one over epochs, in one function or in two.
    A schedule that steps in the outer one alone steps once an epoch.
    """
    optimizer = schedule.argument(int(schedule.named(BY_NAME)), "optimizer")
    calls = list(module.methods("step"))
    steps = [
        call
        for call in calls
        if schedule.node in constructor_calls_through_prepare(module, call.receiver)
    ]
    if len(steps) != 1 or optimizer is None:
        return None
    optimizers = constructor_calls_through_prepare(module, optimizer)
    for call in calls:
        scaled = call.args[0] if call.args else None  # scaler.step(optimizer)
        if not optimizers & (
            constructor_calls_through_prepare(module, call.receiver)
            | constructor_calls_through_prepare(module, scaled)
        ):
            continue
        batches = loops_around(module, call.node)
        if len(batches) < 2 or not isinstance(batches[1], ast.For):
            continue
        around = loops_around(module, steps[0].node)
        if around[:1] == batches[1:2]:
            return SchedulerPace(steps[0], True, batches[1])
        if around[:2] == batches[:2]:
            return SchedulerPace(steps[0], False, batches[1])
    return None


def constructor_calls_through_prepare(module: Module, node: ast.expr | None) -> set[ast.AST]:
    """The calls that made an object, also where `accelerator.prepare` handed it on."""
    makers: set[ast.AST] = set()
    for origin in module.flow.origins(node) if node is not None else ():
        origin_node = origin.node
        makers.add(origin_node)
        if isinstance(origin_node, ast.Call) and module.flow.call(origin_node).method in PREPARES:
            place = origin.path[0] if origin.path else 0
            if 0 <= place < len(origin_node.args):
                makers |= {one.node for one in module.flow.origins(origin_node.args[place])}
    return makers


BY_NAME = "transformers.get_scheduler"
"""Its first argument is the name of the schedule, where others take the optimizer"""
PREPARES = ("prepare", "prepare_optimizer", "prepare_scheduler")


def loops_around(module: Module, node: ast.AST, depth: int = 0) -> list[ast.For | ast.While]:
    """The loops around a place, the innermost first; those around the one call of its function are
    among them.
    """
    loops: list[ast.For | ast.While] = []
    for parent in module.parents(node):
        if isinstance(parent, (ast.For, ast.While)):
            loops.append(parent)
        elif isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            calls = module.flow.calls_of_function_or_class(parent)
            if len(calls) == 1 and depth < MOST_CALLS:
                loops += loops_around(module, calls[0], depth + 1)
            break
    return loops


MOST_CALLS = 4
"""Functions around a step whose callers are looked at: `main`, `fit`, `train_epoch`, `train_step`"""


SCHEDULES = CodePlaces("learning rate schedules with a length", schedules_with_length)
