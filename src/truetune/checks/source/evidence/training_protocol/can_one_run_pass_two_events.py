"""Says whether one run can pass two events, by the branches that they are in.

How it works: two events exclude each other where their branches ask for the opposite, or for two values of one thing;
and where the branch of the earlier one leaves its function or loop before the later one.

The trade-off: what a test asks is compared by its text. A variable that changes between two tests is taken to be the
same, so an order over both is missed, never invented.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.symbolic_execution.trace_of_events import Event, Frame

EXITS = frozenset(("exit", "quit", "sys.exit", "os._exit", "os.abort"))
"""Calls that end the process"""
Demand = tuple[str, object]
"""What a branch asks of a run: the text of an expression, and its value"""


def can_follow(earlier: Event, later: Event) -> bool:
    """Can a run pass two events, the earlier one first?

    Args:
        earlier: An event of a run.
        later: One that comes after it in the same run.

    Returns:
        False only where their branches exclude each other.
    """
    shared = {id(frame) for frame in later.frames()}
    own = [frame for frame in earlier.frames() if id(frame) not in shared]
    if any(_branch_exits_for_good(own, position) for position in range(len(own))):
        return False
    if _are_try_and_handler(own, later):
        return False
    demanded = dict(_demands_of_branches(earlier.frames("branch")))
    return not any(
        key in demanded and demanded[key] != value
        for key, value in _demands_of_branches(later.frames("branch"))
    )


def _branch_exits_for_good(own: list[Frame], position: int) -> bool:
    """Does the branch at a position leave what is around both events? `own`: from the inside out."""
    frame = own[position]
    last = _last_statement_of_branch_arm(frame)
    around = {outer.kind for outer in own[position + 1 :]}
    if isinstance(last, ast.Return):
        return "call" not in around
    if isinstance(last, ast.Continue | ast.Break):
        return "loop" not in around
    return isinstance(last, ast.Raise) or _ends_process(last)


def _last_statement_of_branch_arm(frame: Frame) -> ast.stmt | None:
    """The last statement of the arm that a branch's frame stands for."""
    if not isinstance(frame.node, ast.If) or frame.kind != "branch":
        return None
    body = frame.node.body if frame.taken else frame.node.orelse
    return body[-1] if body else None


def _ends_process(statement: ast.stmt | None) -> bool:
    """Does a statement end the process?"""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return ast.unparse(statement.value.func) in EXITS


def _are_try_and_handler(own: list[Frame], later: Event) -> bool:
    """Is the earlier event in a `try` whose handler holds the later one?"""
    tries = [frame.node for frame in own if isinstance(frame.node, ast.Try)]
    handlers = {id(handler) for one in tries for handler in one.handlers}
    return any(id(frame.node) in handlers for frame in later.frames("except"))


def _demands_of_branches(branches: Iterator[Frame]) -> Iterator[tuple[str, object]]:
    """What the branches around an event ask of a run."""
    for frame in branches:
        if isinstance(frame.node, ast.If | ast.IfExp):
            yield from _demands_of_test(frame.node.test, frame.taken)
        else:
            yield f"arm of {id(frame.node)}", frame.taken


def _demands_of_test(test: ast.expr, is_true: bool) -> Iterator[Demand]:
    """What it takes for a test to be true, or false."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _demands_of_test(test.operand, not is_true)
        return
    # Only one side of an `or` need be true, and only one of an `and` false, so nothing follows for each of them.
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == is_true:
        yield ast.unparse(test), is_true
        for part in test.values:
            yield from _demands_of_test(part, is_true)
        return
    yield from _demands_of_comparison(test, is_true)


def _demands_of_comparison(test: ast.expr, is_true: bool) -> Iterator[Demand]:
    """What it takes for a test without `and` and `or` to be true, or false."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        yield ast.unparse(test), is_true
        return
    operator, value = test.ops[0], test.comparators[0]
    left, right = ast.unparse(test.left), ast.unparse(value)
    if isinstance(operator, ast.IsNot | ast.NotEq):
        operator, is_true = _positive_operator(operator), not is_true
    if isinstance(operator, ast.Eq | ast.Is) and is_true and isinstance(value, ast.Constant):
        # `mode == "train"` and `mode == "eval"` exclude each other.
        yield f"value of {left}", right
    if isinstance(operator, ast.Is) and right == "None":
        # `if scaler is not None` asks the same as `if scaler`.
        yield left, not is_true
        return
    sign = "==" if isinstance(operator, ast.Eq) else type(operator).__name__
    yield f"{left} {sign} {right}", is_true


def _positive_operator(operator: ast.cmpop) -> ast.cmpop:
    """`is` of `is not`, `==` of `!=`."""
    return ast.Is() if isinstance(operator, ast.IsNot) else ast.Eq()
