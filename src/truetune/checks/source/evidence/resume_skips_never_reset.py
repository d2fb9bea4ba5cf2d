"""Finds batches that a resumed run skips in the epoch that was interrupted, and in each later epoch too.

How it works: a loop over epochs holds the loop that trains. In it, something skips the first rows or batches (a slice,
`islice`, `skip_first_batches`, a condition on the batch's number), as many as a name says that is set where the run is
resumed. Then the name must be set again in the loop over epochs, or the skip must depend on the epoch.

The trade-off: a name that is set anywhere in the loop over epochs counts as reset, and a condition that names the epoch
counts as right, whatever it asks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.loops_resumed_at_first_batch import is_set_by_resume
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.name_bindings_in_scopes import FUNCTIONS
from truetune.source.parsed_source_file import Module

SKIPPING_ARGUMENT = {"skip_first_batches": (1, "num_batches"), "islice": (1, ""), "skip": (0, "n")}
"""What skips the first items of what it is given -> where it gets how many"""


class SkipNeverReset(NamedTuple):
    """A skip that each epoch makes again."""

    skip: ast.expr
    """The place that skips"""
    restored: ast.Assign
    """What sets how much is skipped, where the run is resumed"""
    epochs: ast.For
    """The loop over epochs"""


def skips_never_reset(module: Module) -> Iterator[SkipNeverReset]:
    """The skips of a resumed run that later epochs make too.

    Args:
        module: A file that is judged.

    Yields:
        Each skip once.
    """
    for epochs in epoch_loops(module):
        for skip, count in _skips_with_counts_in_epoch_loop(module, epochs):
            name = ast.unparse(count)
            restored = _assignment_restoring_name_on_resume(module, epochs, name)
            if restored is None or _is_set_in(epochs, name):
                continue
            if not _depends_on_epoch(module, epochs, skip):
                yield SkipNeverReset(skip, restored, epochs)


def epoch_loops(module: Module) -> Iterator[ast.For]:
    """The loops that hold a loop which makes backward passes, in the file or in a function that is called there."""
    for loop in module.nodes(ast.For):
        if isinstance(loop.target, ast.Name) and any(
            _statement_runs_training_loop(module, part) for part in loop.body
        ):
            yield loop


def _statement_runs_training_loop(module: Module, statement: ast.stmt) -> bool:
    """Does a statement hold a loop with a backward pass, or call a function that does?"""
    if _has_training_loop(statement):
        return True
    called = (part for part in ast.walk(statement) if isinstance(part, ast.Call))
    functions = (module.flow.function_called(call.func) for call in called)
    return any(function is not None and _has_training_loop(function) for function in functions)


def _has_training_loop(node: ast.AST) -> bool:
    """Is there a loop with a backward pass inside?"""
    loops = (part for part in ast.walk(node) if isinstance(part, ast.For | ast.While))
    return any(is_backward_call(part) for loop in loops for part in ast.walk(loop))


def _skips_with_counts_in_epoch_loop(
    module: Module, epochs: ast.For
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What skips in a loop over epochs, each with the name that says how much."""
    for statement in epochs.body:
        for part in ast.walk(statement):
            skip = _name_of_skip_count(module, part)
            if skip is not None and isinstance(part, ast.expr):
                yield part, skip
            elif isinstance(part, ast.Call):
                yield from _calls_skipping_given_count(module, part)


def _calls_skipping_given_count(
    module: Module, call: ast.Call
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The call of a function that skips as many as it is given, with what it is given."""
    function = module.flow.function_called(call.func)
    if function is None or isinstance(function, ast.Lambda):
        return
    for part in ast.walk(function):
        count = _name_of_skip_count(module, part)
        if not isinstance(count, ast.Name):
            continue
        for binding in module.scopes.bindings_that_reach(count):
            expression = _argument_for(call, function, binding.node)
            if isinstance(expression, ast.Name | ast.Attribute):
                yield call, expression


def _argument_for(
    call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.AST
) -> ast.expr | None:
    """What a call gives for a parameter of a function; None where it gives nothing that is seen."""
    parameters = [one for one in function.args.args if one.arg not in ("self", "cls")]
    if parameter not in parameters:
        return None
    position = parameters.index(parameter)
    named = (one.value for one in call.keywords if one.arg == parameters[position].arg)
    given = next(named, None)
    if given is not None:
        return given
    return call.args[position] if position < len(call.args) else None


def _name_of_skip_count(module: Module, node: ast.AST) -> ast.expr | None:
    """The name that says how many items a place skips; None where it skips none."""
    count: ast.expr | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        is_of_rows = node.slice.upper is None and not _is_inside_training_loop_body(module, node)
        count = node.slice.lower if is_of_rows else None
    elif isinstance(node, ast.Call) and last_name_of_called(node) in SKIPPING_ARGUMENT:
        position, name = SKIPPING_ARGUMENT[last_name_of_called(node)]
        count = module.flow.call(node).argument(position, name)
    elif isinstance(node, ast.Compare):
        count = _count_compared_with_batch_number(module, node)
    return count if isinstance(count, ast.Name | ast.Attribute) else None


def _is_inside_training_loop_body(module: Module, node: ast.AST) -> bool:
    """Is a place inside a pass that trains: where it cuts a batch, and skips none?"""
    loop = _loop_around(module, node)
    return loop is not None and any(
        is_backward_call(part) and _loop_around(module, part) is loop for part in ast.walk(loop)
    )


def _loop_around(module: Module, node: ast.AST) -> ast.For | ast.While | None:
    """The innermost loop whose passes run a place; what a loop goes over is outside of it."""
    inner = node
    for around in module.parents(node):
        if isinstance(around, FUNCTIONS):
            return None
        if isinstance(around, ast.While):
            return around
        if isinstance(around, ast.For) and inner is not around.iter:
            return around
        inner = around
    return None


def _count_compared_with_batch_number(module: Module, node: ast.Compare) -> ast.expr | None:
    """The name in `if number < skip: continue`, where `enumerate` gives the number of the batch."""
    test = module.scopes.parent.get(node)
    goes_on = isinstance(test, ast.If) and isinstance(test.body[-1], ast.Continue)
    is_below = len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt | ast.LtE)
    loop = next((up for up in module.parents(node) if isinstance(up, ast.For)), None)
    number = None if loop is None else _index_name_of_enumerate_loop(loop)
    is_number = number is not None and ast.unparse(node.left) == number
    return node.comparators[0] if goes_on and is_below and is_number else None


def _index_name_of_enumerate_loop(loop: ast.For) -> str | None:
    """The name of the number that `enumerate` gives in a loop; None where it goes over anything else."""
    if not isinstance(loop.target, ast.Tuple) or not isinstance(loop.iter, ast.Call):
        return None
    is_numbered = last_name_of_called(loop.iter) == "enumerate"
    return ast.unparse(loop.target.elts[0]) if is_numbered else None


def _assignment_restoring_name_on_resume(
    module: Module, epochs: ast.For, name: str
) -> ast.Assign | None:
    """The assignment outside of the loop over epochs that sets a name where a run is resumed."""
    for node in module.nodes(ast.Assign):
        is_named = any(name in _names_assigned_by_target(target) for target in node.targets)
        is_plain = isinstance(node.value, ast.Constant)
        if not is_named or is_plain or epochs in module.parents(node):
            continue
        if _function_around(module, node) is _function_around(module, epochs):
            if is_set_by_resume(module, node):
                return node
    return None


def _function_around(module: Module, node: ast.AST) -> ast.AST | None:
    """The function that a place is in; None at the top of the file."""
    return next((up for up in module.parents(node) if isinstance(up, FUNCTIONS)), None)


def _names_assigned_by_target(target: ast.expr) -> list[str]:
    """The names that a target of an assignment sets, as text."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [ast.unparse(part) for part in parts]


def _is_set_in(loop: ast.For, name: str) -> bool:
    """Is a name set anywhere in a loop?"""
    for part in ast.walk(loop):
        is_store = isinstance(getattr(part, "ctx", None), ast.Store | ast.Del)
        if is_store and isinstance(part, ast.expr) and ast.unparse(part) == name:
            return True
    return False


def _depends_on_epoch(module: Module, epochs: ast.For, skip: ast.expr) -> bool:
    """Does a condition around a skip ask for the epoch, or for something that the loop changes?"""
    changed = {
        ast.unparse(part)
        for part in ast.walk(epochs)
        if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Store)
    }
    for around in module.parents(skip):
        if around is epochs:
            return False
        test = getattr(around, "test", None)
        if isinstance(test, ast.expr) and _test_uses_name_outside_skip(test, changed, skip):
            return True
        if isinstance(around, ast.BoolOp) and _test_uses_name_outside_skip(around, changed, skip):
            return True
    return False


def _test_uses_name_outside_skip(test: ast.expr, names: set[str], skip: ast.expr) -> bool:
    """Does a test, apart from the skip itself, hold one of these names?"""
    inside = {id(part) for part in ast.walk(skip)}
    return any(
        ast.unparse(part) in names
        for part in ast.walk(test)
        if isinstance(part, ast.Name | ast.Attribute) and id(part) not in inside
    )
