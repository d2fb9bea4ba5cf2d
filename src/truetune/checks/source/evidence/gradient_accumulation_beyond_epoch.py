"""Finds loops whose gradients are accumulated over more batches than an epoch has, by the symbolic
run of a script.

How it works: each `optimizer.step()` stands under a test such as `(i + 1) % 32 == 0`. The counter
in it is the number that `enumerate` gives, or a name that a loop raises; where it begins again with
each epoch, it never passes the batches of one. These are counted at most, so a test that none of
its numbers passes is certainly never passed.

The trade-off: loops whose rows are not in the script or a file beside it, and counters that
anything but `+= 1` changes, are not judged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.count_optimizer_steps import FEW
from truetune.checks.source.evidence.optimizers_before_adapters import (
    NO_OPTIMIZERS,
    OPTIMIZER_CLASSES,
)
from truetune.checks.source.evidence.upper_row_counts import UpperCount, batches_at_most
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.element_of_iterable import (
    representative_element_of_iterable,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Frame, NameEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Element,
    Operation,
    Result,
    Sequence,
    Value,
)

MAX_NUMBERS = 1_000_000
"""Values of one counter that are tried; a run of more batches accumulates over fewer"""


class LongAccumulation(NamedTuple):
    """Gradients that are accumulated over more batches than an epoch has."""

    step: CallEvent
    accumulation: int
    epoch: UpperCount
    """The batches of an epoch"""
    steps: int
    """Steps of the whole run, at most"""


class StepCondition(NamedTuple):
    """When a step is due: `(counter + shift) % every == rest`."""

    counter: Element
    shift: int
    every: int
    rest: int


def accumulations_longer_than_epoch(module: Module) -> Iterator[LongAccumulation]:
    """The optimizers of a file that never step, or nearly never, each at its first step."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for accumulation in _long_accumulations_of_run(trace) if trace.is_whole else ():
            if accumulation.step.home.path == module.path and accumulation.step.node not in seen:
                seen.add(accumulation.step.node)
                yield accumulation


def _long_accumulations_of_run(trace: Trace) -> Iterator[LongAccumulation]:
    """The accumulations of one run that are longer than an epoch."""
    by_optimizer: dict[int, list[LongAccumulation | None]] = {}
    for step in trace.methods("step"):
        optimizer = _construction_of_stepped_optimizer(step)
        if optimizer is not None:
            by_optimizer.setdefault(id(optimizer), []).append(
                _long_accumulation_of_step(trace, step)
            )
    for accumulation in by_optimizer.values():
        long = [one for one in accumulation if one is not None]
        # One step that is not understood may be the one of the epoch's end.
        if long and len(long) == len(accumulation) and sum(one.steps for one in long) < FEW:
            yield long[0]


def _construction_of_stepped_optimizer(step: CallEvent) -> CallEvent | None:
    """The call that made the optimizer which a step is of, also by a gradient scaler."""
    for value in (step.receiver, *step.args[:1]):
        ways = [] if value is None else lineages_back_to_origins(value)
        load = ways[0].call_that_gave_origin if len(ways) == 1 else None
        if load is not None and load.named(*OPTIMIZER_CLASSES) and not load.named(*NO_OPTIMIZERS):
            return load
    return None


def _long_accumulation_of_step(trace: Trace, step: CallEvent) -> LongAccumulation | None:
    """The accumulation of a step, if it is longer than an epoch; None for any other."""
    loops = list(step.frames("loop"))
    epoch = batches_at_most(loops[0].value) if loops else None
    if epoch is None:
        return None
    accumulated = _batches_accumulated_by_accelerate(step)
    if accumulated is not None:
        # Accelerate steps at the end of a loader, whatever was accumulated.
        passes = _total_passes(loops[1:])
        return _accumulation_if_beyond_epoch(step, accumulated, epoch, passes)
    for due in _step_conditions(trace, step, loops[0]):
        numbers = _counter_values_at_step(trace, step, due.counter, loops, epoch)
        if numbers is None:
            continue
        passed = sum((one + due.shift) % due.every == due.rest for one in numbers.one_round)
        return _accumulation_if_beyond_epoch(
            step, due.every, epoch, passed and passed * numbers.rounds
        )
    return None


def _accumulation_if_beyond_epoch(
    step: CallEvent, accumulation: int, epoch: UpperCount, steps: int | None
) -> LongAccumulation | None:
    """The finding of an accumulation that is longer than an epoch, where the steps of the run are
    known; else None.
    """
    if steps is None or accumulation <= epoch.most:
        return None
    return LongAccumulation(step, accumulation, epoch, steps)


def _batches_accumulated_by_accelerate(step: CallEvent) -> int | None:
    """The batches that `with accelerator.accumulate(model)` sums over; None where a step stands in
    no such block.
    """
    for frame in step.frames("with"):
        given = frame.value
        if not isinstance(given, Result) or given.call.method != "accumulate":
            continue
        made = given.call.receiver
        if isinstance(made, Result) and made.call.named("accelerate.Accelerator"):
            number = constant_of(made.call.argument(-1, "gradient_accumulation_steps"))
            return number if type(number) is int else None
    return None


def _step_conditions(trace: Trace, step: CallEvent, loop: Frame) -> Iterator[StepCondition]:
    """When a step is due, by each test that it stands under inside its loop; all of them have to
    hold.
    """
    for frame in step.frames():
        if frame is loop:
            break
        if frame.kind == "branch" and frame.value is not None:
            yield from _step_conditions_of_test(frame.value, holds=frame.taken)
    for test in _tests_that_skip_step(loop.node, step.node):
        for value in trace.values:
            if value.node is test:
                yield from _step_conditions_of_test(value, holds=False)


def _tests_that_skip_step(loop: ast.AST, step: ast.AST) -> Iterator[ast.expr]:
    """The tests `if ...: continue` in front of a step, in the body of its loop."""
    for statement in getattr(loop, "body", ()):
        if any(node is step for node in ast.walk(statement)):
            return
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Continue):
            yield statement.test


def _step_conditions_of_test(test: Value, *, holds: bool) -> Iterator[StepCondition]:
    """What a test that holds, or does not hold, says of when a step is due."""
    if not isinstance(test, Operation):
        return
    if test.operator == "not":
        yield from _step_conditions_of_test(test.operands[0], holds=not holds)
    elif test.operator == "and" and holds:
        for part in test.operands:
            yield from _step_conditions_of_test(part, holds=True)
    elif test.operator == ("==" if holds else "!="):
        due = _step_condition_of_remainder(test.operands[0], constant_of(test.operands[1]))
        if due is not None:
            yield due
    elif test.operator == "%" and not holds:
        due = _step_condition_of_remainder(test, 0)
        if due is not None:
            yield due


def _step_condition_of_remainder(remainder: Value, rest: object) -> StepCondition | None:
    """When a step is due by a remainder that is compared with a number: `(i + 1) % 32 == 0`; None
    for another value.
    """
    if not isinstance(remainder, Operation) or remainder.operator != "%":
        return None
    every, shift = constant_of(remainder.operands[1]), 0
    counter = remainder.operands[0]
    while isinstance(counter, Operation) and counter.operator in ("+", "-"):
        added = constant_of(counter.operands[1])
        if type(added) is not int:
            return None
        shift += added if counter.operator == "+" else -added
        counter = counter.operands[0]
    is_known = type(every) is int and every > 1 and type(rest) is int
    if not is_known or not isinstance(counter, Element):
        return None
    return StepCondition(counter, shift, every, int(str(rest)))


class CounterValues(NamedTuple):
    """The values that a counter takes."""

    one_round: range
    """From where it begins to where it begins again, or the run ends"""
    rounds: int
    """How often it begins"""


def _counter_values_at_step(
    trace: Trace, step: CallEvent, counter: Element, loops: list[Frame], epoch: UpperCount
) -> CounterValues | None:
    """The numbers that a counter takes at a step; None where they are not known."""
    first = (
        representative_element_of_iterable(loops[0].value) if loops[0].value is not None else None
    )
    if isinstance(first, Sequence) and first.items and first.items[0] is counter:
        begin = _first_number_of_enumerate(loops[0].value)
        rounds = _total_passes(loops[1:]) or 1
        return None if begin is None else CounterValues(range(begin, begin + epoch.most), rounds)
    return _counter_values_of_raised_name(trace, step, counter, loops, epoch)


def _first_number_of_enumerate(value: Value | None) -> int | None:
    """The number that `enumerate` begins with, also inside of a progress bar."""
    while isinstance(value, Result) and not value.call.named("enumerate"):
        value = value.call.args[0] if value.call.args else None
    if not isinstance(value, Result):
        return None
    start = value.call.argument(1, "start")
    begin = 0 if start is None else constant_of(start)
    return begin if type(begin) is int else None


def _counter_values_of_raised_name(
    trace: Trace, step: CallEvent, counter: Element, loops: list[Frame], epoch: UpperCount
) -> CounterValues | None:
    """The numbers of a counter that the loop of a step raises by 1 in each pass; None where they
    are not known.
    """
    raised = counter.node
    if not isinstance(raised, ast.AugAssign) or not _is_raised_by_one(raised, loops[0].node):
        return None
    begun = _initial_assignment_of_counter(trace, step, raised)
    if begun is None:
        return None
    begin = constant_of(begun.value)
    if type(begin) is not int:
        return None
    return _counter_values_from(
        begin, {id(one.node) for one in begun.frames("loop")}, loops[1:], epoch
    )


def _counter_values_from(
    begin: int, around: set[int], outer: list[Frame], epoch: UpperCount
) -> CounterValues | None:
    """The numbers of a counter from the one that it begins with, which is inside of some of the
    loops around its own.
    """
    passes = _total_passes([frame for frame in outer if id(frame.node) not in around])
    rounds = _total_passes([frame for frame in outer if id(frame.node) in around]) or 1
    last = epoch.most * passes if passes is not None else MAX_NUMBERS + 1
    return (
        CounterValues(range(begin + 1, begin + last + 1), rounds) if last <= MAX_NUMBERS else None
    )


def _is_raised_by_one(raised: ast.AugAssign, loop: ast.AST) -> bool:
    """Is it `n += 1`, inside of a loop?"""
    is_by_one = isinstance(raised.op, ast.Add) and ast.unparse(raised.value) == "1"
    is_name = isinstance(raised.target, ast.Name)
    return is_by_one and is_name and any(node is raised for node in ast.walk(loop))


def _initial_assignment_of_counter(
    trace: Trace, step: CallEvent, raised: ast.AugAssign
) -> NameEvent | None:
    """The event that gives a counter the number that it begins with; None where something else
    raises it too.
    """
    name = ast.unparse(raised.target)
    events = [
        event
        for event in trace.events
        if isinstance(event, NameEvent) and event.name == name and event.number < step.number
    ]
    if any(event.is_augmented and event.node is not raised for event in events):
        return None
    return next((event for event in reversed(events) if not event.is_augmented), None)


def _total_passes(loops: list[Frame]) -> int | None:
    """The passes of loops inside one another, multiplied; None where those of one are not known."""
    product = 1
    for loop in loops:
        count = batches_at_most(loop.value)
        if count is None:
            return None
        product *= count.most
    return product
