"""Finds schedules that step at each micro-batch of an inner loop, after which their optimizer steps.

How it works: where the loops around `scheduler.step()` are those around `optimizer.step()` and more,
the schedule is the faster of the two. That is right where its length counts micro-batches, so the
length must prove to count optimizer steps: the loop around the optimizer runs that often, a counter
beside the optimizer is compared with it, or it is a number of batches that is divided by the number
of micro-batches.

The trade-off: a length that is only a setting (`args.max_steps`) and is compared with nothing proves
neither.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.learning_rate_schedules import (
    BY_NAME,
    constructor_calls_through_prepare,
    expressions_of_number,
    len_calls_in_expression,
    loops_around,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LIMITED_LOOPS = ("range", "trange", "itertools.islice")
"""Calls whose last argument is how often a loop runs"""


class MicroBatchSteps(NamedTuple):
    """A schedule that steps more often than its optimizer."""

    step: Call
    """The `scheduler.step()`"""
    inner: ast.For | ast.While
    """The loop over micro-batches around it"""
    optimizer_step: Call
    outer: ast.For | ast.While
    """The innermost loop around the optimizer's step"""


def steps_at_micro_batches(module: Module, schedule: Call) -> MicroBatchSteps | None:
    """Where a schedule steps in a loop inside of the one that steps its optimizer; else None."""
    optimizer = schedule.argument(int(schedule.named(BY_NAME)), "optimizer")
    steps = [
        call
        for call in module.methods("step")
        if schedule.node in constructor_calls_through_prepare(module, call.receiver)
    ]
    if len(steps) != 1 or optimizer is None:
        return None
    around = loops_around(module, steps[0].node)
    if not around or _is_conditional_in_loop(module, steps[0].node):
        return None
    makers = constructor_calls_through_prepare(module, optimizer)
    micro_batch_stepses: list[MicroBatchSteps] = []
    for call in _steps_of_optimizer(module, makers):
        outer = loops_around(module, call.node)
        if not outer or len(outer) >= len(around) or around[-len(outer) :] != outer:
            return None
        micro_batch_stepses.append(MicroBatchSteps(steps[0], around[0], call, outer[0]))
    return micro_batch_stepses[0] if micro_batch_stepses else None


def length_counts_optimizer_steps(module: Module, total: ast.expr, steps: MicroBatchSteps) -> bool:
    """Is the length of a schedule the number of its optimizer's steps?"""
    return (
        _outer_loop_runs_that_often(total, steps.outer)
        or _is_step_counter_compared_with_length(module, total, steps)
        or _counts_groups_of_batches(module, total, steps)
    )


def _steps_of_optimizer(module: Module, makers: set[ast.AST]) -> Iterator[Call]:
    """The steps of an optimizer, its own or those of a gradient scaler."""
    for call in module.methods("step"):
        stepped = (call.receiver, *call.args[:1])
        if any(
            makers & constructor_calls_through_prepare(module, part) for part in stepped if part
        ):
            yield call


def _is_conditional_in_loop(module: Module, node: ast.AST) -> bool:
    """Is there a condition between a place and its innermost loop, or a way past it to the next batch?"""
    for parent in module.parents(node):
        if isinstance(parent, ast.If | ast.IfExp | ast.Match | ast.BoolOp):
            return True
        if isinstance(parent, ast.For | ast.While):
            return any(isinstance(one, ast.Continue) for one in ast.walk(parent))
    return False


def _outer_loop_runs_that_often(total: ast.expr, outer: ast.For | ast.While) -> bool:
    """Does the loop around the optimizer's step run as often as the schedule is long, by the same
    words: `range(total)`, `while step < total`?
    """
    if isinstance(total, ast.Constant):
        return False
    text = ast.unparse(total)
    if isinstance(outer, ast.While):
        return any(text in _texts_of_operands(test) for test in ast.walk(outer.test))
    return any(
        isinstance(call, ast.Call)
        and ast.unparse(call.func) in LIMITED_LOOPS
        and text in map(ast.unparse, call.args)
        for call in ast.walk(outer.iter)
    )


def _texts_of_operands(test: ast.AST) -> list[str]:
    """What a comparison compares, as text."""
    if not isinstance(test, ast.Compare):
        return []
    return [ast.unparse(part) for part in (test.left, *test.comparators)]


def _is_step_counter_compared_with_length(
    module: Module, total: ast.expr, steps: MicroBatchSteps
) -> bool:
    """Is a counter, raised by one beside the optimizer's step, compared with the length?"""
    if isinstance(total, ast.Constant):
        return False
    text = ast.unparse(total)
    statement = module.statement(steps.optimizer_step.node)
    counters = {
        ast.unparse(one.target)
        for one in steps.outer.body
        if isinstance(one, ast.AugAssign) and ast.unparse(one.value) == "1"
    }
    if statement not in steps.outer.body or not counters:
        return False
    return any(
        text in operands and counters & set(operands)
        for operands in map(_texts_of_operands, module.nodes(ast.Compare))
    )


def _counts_groups_of_batches(module: Module, total: ast.expr, steps: MicroBatchSteps) -> bool:
    """Is the length a number of batches or rows that is divided by the number of micro-batches?"""
    lengths = list(len_calls_in_expression(module, total))
    if not lengths:
        return False
    of_loader = any("loader" in module.flow.types(length.args[0]) for length in lengths)
    # Rows may be divided by the size of a micro-batch, which gives their number and not that of groups.
    groups = list(
        _possible_batches_per_step_numbers(module, steps)
        if of_loader
        else _iteration_counts_of_loop(steps.inner)
    )
    texts = {ast.unparse(one) for one in groups}
    values = {value for one in groups if isinstance(value := module.flow.value(one), int)} - {1}
    return any(
        ast.unparse(part) in texts or module.flow.value(part) in values
        for part in _divisor_parts(module, total)
    )


def _divisor_parts(module: Module, total: ast.expr) -> Iterator[ast.expr]:
    """The expressions in what a number is divided by."""
    for node in expressions_of_number(module, total):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv):
            yield from (part for part in ast.walk(node.right) if isinstance(part, ast.expr))


def _possible_batches_per_step_numbers(
    module: Module, steps: MicroBatchSteps
) -> Iterator[ast.expr]:
    """What may say how many batches one step takes: numbers that the two loops are made of."""
    for loop in (steps.inner, steps.outer):
        if isinstance(loop, ast.For):
            for part in backward_slice(module, loop.iter):
                if isinstance(part, ast.Name | ast.Attribute | ast.Constant):
                    yield part


def _iteration_counts_of_loop(loop: ast.For | ast.While) -> Iterator[ast.expr]:
    """How often a loop runs: `n` of `range(n)`; nothing where it counts in strides."""
    if isinstance(loop, ast.While):
        return
    for call in ast.walk(loop.iter):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in LIMITED_LOOPS:
            if 0 < len(call.args) < 3:
                yield call.args[-1]
