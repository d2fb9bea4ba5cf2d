"""Finds faults in the conditions under which a hand-written loop steps its optimizer only at every
so many batches.

Gradients are accumulated between two steps. Two slips spoil that without an error: `zero_grad()`
stands outside of the condition, so that every batch clears what the ones before it left, and the
counter of the condition is raised inside of it, so that it holds once and never again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.source.parsed_source_file import Module


def zero_grads_at_each_batch_with_their_step(module: Module) -> Iterator[tuple[ast.Call, ast.Call]]:
    """The `zero_grad()` calls that run at every batch of a loop which steps the same optimizer only
    at some, each with that step.
    """
    loops: list[ast.For | ast.While] = [*module.nodes(ast.For), *module.nodes(ast.While)]
    for loop in loops:
        always = list(_statements_with_those_of_with_blocks(loop.body))
        if not any(_calls_backward_outside_inner_loop(statement) for statement in always):
            continue
        steps = list(_optimizer_steps_every_n_batches(module, always))
        at_each_batch = _statements_run_at_each_batch(module, always)
        for clearing in _method_calls_as_statements(at_each_batch, "zero_grad"):
            step = next(
                (one for one in steps if _does_zero_grad_clear_stepped_optimizer(clearing, one)),
                None,
            )
            if step is not None:
                yield clearing, step


def counters_raised_only_when_stepping(module: Module) -> Iterator[tuple[ast.AugAssign, ast.Call]]:
    """The counters that are raised only under the condition of the step which tests them, each with
    the optimizer's step there.

    `n += 1` under `if n % 8 == 0:`, and nowhere else: the condition is never met again.
    """
    for branch in module.nodes(ast.If):
        steps = list(_optimizer_step_calls_in(branch.body))
        for remainder in _remainders_in_test(branch.test) if steps else ():
            if module.flow.value(remainder.right) == 1:
                continue
            for counter in ast.walk(remainder.left):
                raised = _counter_raise_inside_branch_alone(module, counter, branch)
                if raised is not None:
                    yield raised, steps[0]


def _optimizer_steps_every_n_batches(module: Module, always: list[ast.stmt]) -> Iterator[ast.Call]:
    """The steps of optimizers that a loop takes at every so many batches.

    They are under a condition that counts, or after one that continues with the next batch.
    """
    for index, branch in enumerate(always):
        if not isinstance(branch, ast.If) or not _is_condition_met_every_n_batches(
            module, branch, always
        ):
            continue
        yield from _optimizer_step_calls_in(branch.body)
        if _continues_with_next_batch(branch):
            yield from _optimizer_step_calls_in(always[index + 1 :])


def _statements_run_at_each_batch(module: Module, always: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that run at each batch: those before a condition that counts and continues with
    the next one.
    """
    for index, branch in enumerate(always):
        if isinstance(branch, ast.If) and _continues_with_next_batch(branch):
            if _is_condition_met_every_n_batches(module, branch, always):
                return always[:index]
    return always


def _continues_with_next_batch(branch: ast.If) -> bool:
    """Does a condition leave out the statements after it?"""
    return isinstance(branch.body[-1], ast.Continue) and not branch.orelse


def _is_condition_met_every_n_batches(
    module: Module, branch: ast.If, always: list[ast.stmt]
) -> bool:
    """Does a condition hold at every so many batches: `n % 8 == 0`, a name for that, or a counter
    that is raised at each batch and begins again in the branch?
    """
    return _tests_remainder(module, branch.test) or _tests_counter_that_restarts(branch, always)


def _tests_remainder(module: Module, test: ast.expr) -> bool:
    """Does a condition test a remainder, in place or by a name for it?"""
    tests: list[ast.AST] = [test]
    for name in ast.walk(test):
        if isinstance(name, ast.Name):
            tests += [origin.node for origin in module.flow.origins(name)]
    return any(isinstance(one, ast.expr) and _remainders_in_test(one) for one in tests)


def _tests_counter_that_restarts(branch: ast.If, always: list[ast.stmt]) -> bool:
    """Does a condition test a counter that each batch raises and that the branch sets again?"""
    tested = {ast.unparse(node) for node in ast.walk(branch.test) if isinstance(node, ast.expr)}
    begins_again = {
        ast.unparse(target)
        for statement in branch.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
    }
    raised = {
        ast.unparse(statement.target)
        for statement in always
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add)
    }
    return bool(tested & begins_again & raised)


def _calls_backward_outside_inner_loop(statement: ast.stmt) -> bool:
    """Does it call backward, outside of a loop of its own, which would accumulate between two of
    the outer loop?
    """
    if isinstance(statement, (ast.For, ast.While)):
        return False
    return any(is_backward_call(node) for node in ast.walk(statement))


def _counter_raise_inside_branch_alone(
    module: Module, counter: ast.AST, branch: ast.If
) -> ast.AugAssign | None:
    """The statement that raises a counter, if that is in the branch alone and all else gives it a
    constant; else None.
    """
    if not isinstance(counter, (ast.Name, ast.Attribute)):
        return None
    stored = _places_assigning_name(module, ast.unparse(counter))
    holders = [module.scopes.parent.get(node) for node in stored]
    raises = [holder for holder in holders if isinstance(holder, ast.AugAssign)]
    inside = {node for statement in branch.body for node in ast.walk(statement)}
    others = [node for node in stored if not _is_assigned_constant(module, node)]
    is_raised_inside = len(raises) == 1 and raises[0] in inside
    return raises[0] if is_raised_inside and others == [raises[0].target] else None


def _places_assigning_name(module: Module, name: str) -> list[ast.Name | ast.Attribute]:
    """Every place of the files that assigns to this name."""
    nodes: list[ast.Name | ast.Attribute] = []
    for part in module.self_and_files_run_together:
        nodes += part.nodes(ast.Name)
        nodes += part.nodes(ast.Attribute)
    return [node for node in nodes if isinstance(node.ctx, ast.Store) and ast.unparse(node) == name]


def _is_assigned_constant(module: Module, target: ast.AST) -> bool:
    """Is a target assigned a constant, outside of any tuple: `n = 0`?"""
    parent = module.scopes.parent.get(target)
    return isinstance(parent, ast.Assign) and isinstance(parent.value, ast.Constant)


def _statements_with_those_of_with_blocks(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a block, and those of its `with` blocks."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _statements_with_those_of_with_blocks(statement.body)
        else:
            yield statement


def _remainders_in_test(test: ast.expr) -> list[ast.BinOp]:
    """The remainders by a modulus in a condition: `(i + 1) % 8`."""
    return [
        node
        for node in ast.walk(test)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
    ]


def _method_calls_as_statements(statements: list[ast.stmt], method: str) -> Iterator[ast.Call]:
    """Calls of a method that are statements of their own."""
    for statement in statements:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == method:
            yield call


def _optimizer_step_calls_in(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """The steps of optimizers, or of gradient scalers, in a block."""
    for call in _method_calls_as_statements(
        list(_statements_with_those_of_with_blocks(body)), "step"
    ):
        owner = ast.unparse(call.func).removesuffix(".step").lower()
        if "opt" in owner or "scaler" in owner:
            yield call


def _does_zero_grad_clear_stepped_optimizer(clearing: ast.Call, step: ast.Call) -> bool:
    """Does a step use the gradients that a `zero_grad()` clears, by the names of optimizers?"""
    cleared = ast.unparse(clearing.func).removesuffix(".zero_grad")
    stepped = {ast.unparse(step.func).removesuffix(".step"), *map(ast.unparse, step.args)}
    return cleared in stepped
