"""Finds loops that count their evaluations without a gain wrongly, so that they stop, or save, at the wrong time.

How it works: an `if` compares a metric with the best one so far. One arm keeps the new best, the other raises a count,
and a limit of that count ends the training. Such a count must be set back where the metric is better. And the best
must not be replaced by the new value before the two are compared: the condition is then never true.

The trade-off: any assignment to the count in the loop, or outside of the constructor of its class, counts as setting
it back.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable, variables_set_by_target

LOOPS = (ast.For, ast.AsyncFor, ast.While)
STRICT = (ast.Lt, ast.Gt)
WITHOUT_GAIN = re.compile(
    r"patien|no_?improv|not_?improv|without_?improv|since_?improv|stall|stagn|plateau|bad_?(epoch|step|round|eval|count)"
    r"|early_?stop|(^|_)wait",
    re.I,
)
"""Names of counts of evaluations without a gain, and of their limits"""
ENDS = (ast.Break, ast.Return, ast.Raise)
STOP_NAME = re.compile(r"stop|done|finish|halt|terminate", re.I)
"""Names of flags and functions that end a training"""
BUILDERS = frozenset(("__init__", "__post_init__"))


class CountNeverReset(NamedTuple):
    """A count of evaluations without a gain that is never set back."""

    raised: ast.AugAssign
    variable: str
    comparison: ast.If
    """Where the metric is compared with the best one"""
    limit: ast.If
    """Where the count ends the training"""


class BestReplacedFirst(NamedTuple):
    """A best value that is replaced before the new value is compared with it."""

    replaced: ast.stmt
    best: str
    comparison: ast.If


def counts_never_reset(module: Module) -> Iterator[CountNeverReset]:
    """The counts of evaluations without a gain that nothing sets back.

    Args:
        module: A file that is judged.

    Yields:
        Each count once.
    """
    for comparison, raised in comparisons_that_change_count(module):
        count = spelling_of_variable(raised.target)
        limit = _test_that_ends_training(module, raised, count) if count else None
        if count is None or limit is None or _is_count_reset_during_training(module, raised, count):
            continue
        if _does_comparison_update_best(comparison) or _do_names_mean_count_without_gain(
            count, limit
        ):
            yield CountNeverReset(raised, count, comparison, limit)


def comparisons_that_change_count(module: Module) -> Iterator[tuple[ast.If, ast.AugAssign]]:
    """The conditions that compare two numbers and raise or lower a count by one in an arm."""
    for test in module.nodes(ast.If):
        compares = any(isinstance(part, ast.Compare) for part in ast.walk(test.test))
        for statement in (*test.body, *test.orelse) if compares else ():
            if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub):
                if isinstance(statement.value, ast.Constant) and statement.value.value == 1:
                    yield test, statement


def _does_comparison_update_best(comparison: ast.If) -> bool:
    """Does an arm of the condition set one side of the comparison to the other: `best = loss`?"""
    sides = {
        spelling_of_variable(side)
        for part in ast.walk(comparison.test)
        if isinstance(part, ast.Compare)
        for side in (part.left, *part.comparators)
    } - {None}
    return any(
        isinstance(statement, ast.Assign)
        and spelling_of_variable(statement.targets[0]) in sides
        and spelling_of_variable(statement.value) is not None
        for statement in (*comparison.body, *comparison.orelse)
    )


def _do_names_mean_count_without_gain(count: str, limit: ast.If) -> bool:
    """Do the names say that evaluations without a gain are counted?"""
    return bool(WITHOUT_GAIN.search(count) or WITHOUT_GAIN.search(ast.unparse(limit.test)))


def _test_that_ends_training(module: Module, raised: ast.AugAssign, count: str) -> ast.If | None:
    """The condition on a count whose arm ends the training."""
    for test in module.nodes(ast.If):
        reads = {
            spelling_of_variable(part)
            for part in ast.walk(test.test)
            if _is_name_or_attribute(part)
        }
        is_compared = any(isinstance(part, ast.Compare) for part in ast.walk(test.test))
        if is_compared and count in reads and _shares_loop_or_class(module, test, raised):
            if any(_ends_training(statement) for statement in test.body):
                return test
    return None


def _shares_loop_or_class(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Do two places stand in one loop, or in one class?"""
    kinds = (*LOOPS, ast.ClassDef)
    around = {part for part in module.parents(one) if isinstance(part, kinds)}
    return any(part in around for part in module.parents(other))


def _ends_training(statement: ast.stmt) -> bool:
    """Does a statement end the training, or set what does?"""
    for part in ast.walk(statement):
        if isinstance(part, ENDS):
            return True
        if isinstance(part, ast.Assign) and STOP_NAME.search(ast.unparse(part.targets[0])):
            return True
    return False


def _is_count_reset_during_training(module: Module, raised: ast.AugAssign, count: str) -> bool:
    """Is the count assigned anywhere that runs after the training has begun?"""
    loop = next((one for one in module.parents(raised) if isinstance(one, LOOPS)), None)
    if "." not in count and loop is None:
        return True
    return any(
        _does_assignment_run_in_count_loop(module, node, count, loop)
        for node in _assignments_to(module, count)
    )


def _assignments_to(module: Module, variable: str) -> Iterator[ast.stmt]:
    """The statements that set a variable, alone or in a tuple."""
    for node in module.nodes(ast.Assign, ast.AnnAssign):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(variable in variables_set_by_target(target) for target in targets):
            yield node


def _does_assignment_run_in_count_loop(
    module: Module, node: ast.stmt, count: str, loop: ast.AST | None
) -> bool:
    """Does an assignment run in the loop of a count; for an attribute: outside of the constructor of its class?"""
    if "." in count:
        function = module.function_around(node)
        return function is None or function.name not in BUILDERS
    return loop is not None and loop in module.parents(node)


def _is_name_or_attribute(node: ast.AST) -> bool:
    """Is it a name or an attribute?"""
    return isinstance(node, ast.Name | ast.Attribute)


def comparisons_after_best_was_replaced(module: Module) -> Iterator[BestReplacedFirst]:
    """The conditions that compare a new value with a best one that was just set to it.

    Args:
        module: A file that is judged.

    Yields:
        Each condition once.
    """
    for test in module.nodes(ast.If):
        sides = _sides_of_strict_test(test.test)
        suite = _statement_list_around(module, test)
        if sides is None or suite is None:
            continue
        for before in reversed(suite[: suite.index(test)]):
            best = _best_set_to_better_value(before, *sides)
            if best is not None:
                yield BestReplacedFirst(before, best, test)
            if best is not None or _sets_any_of_names(before, set(sides)):
                break


def _sides_of_strict_test(test: ast.expr) -> tuple[str, str] | None:
    """The lower and the greater side of `a < b` or `b > a`; None for other tests."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = spelling_of_variable(test.left), spelling_of_variable(test.comparators[0])
    if left is None or right is None or not isinstance(test.ops[0], STRICT):
        return None
    return (left, right) if isinstance(test.ops[0], ast.Lt) else (right, left)


def _statement_list_around(module: Module, statement: ast.stmt) -> Sequence[ast.stmt] | None:
    """The statements among which one stands."""
    around = module.scopes.parent.get(statement)
    for name in ("body", "orelse", "finalbody"):
        suite = getattr(around, name, None)
        if isinstance(suite, list) and statement in suite:
            return suite
    return None


def _best_set_to_better_value(statement: ast.stmt, lower: str, greater: str) -> str | None:
    """The best value that a statement sets to the better one of two: after it, `lower < greater` is never true."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        return _best_set_by_min_or_max_call(statement, statement.value, lower, greater)
    if isinstance(statement, ast.If) and not statement.orelse:
        if _sides_of_strict_test(statement.test) == (lower, greater):
            return _name_set_to_other_of_two(statement.body, {lower, greater})
    return None


def _best_set_by_min_or_max_call(
    statement: ast.Assign, call: ast.Call, lower: str, greater: str
) -> str | None:
    """The best value in `best = min(best, loss)`, which is never above the loss, or `best = max(best, score)`, which is
    never below the score.
    """
    if {spelling_of_variable(one) for one in call.args} != {lower, greater}:
        return None
    called = call.func.id if isinstance(call.func, ast.Name) else ""
    best = {"min": greater, "max": lower}.get(called)
    return best if best == spelling_of_variable(statement.targets[0]) else None


def _name_set_to_other_of_two(body: Sequence[ast.stmt], names: set[str]) -> str | None:
    """The one of two names that a suite sets to the other."""
    for statement in body:
        if isinstance(statement, ast.Assign):
            target = spelling_of_variable(statement.targets[0])
            value = spelling_of_variable(statement.value)
            if target in names and value in names and target != value:
                return target
    return None


def _sets_any_of_names(statement: ast.stmt, names: set[str]) -> bool:
    """Does a statement, or one inside of it, set one of these names?"""
    for part in ast.walk(statement):
        is_stored = isinstance(getattr(part, "ctx", None), ast.Store)
        if is_stored and isinstance(part, ast.expr) and spelling_of_variable(part) in names:
            return True
    return False
