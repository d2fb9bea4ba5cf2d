"""Computes whether a condition in a loop holds in the loop's last pass.

How it works: the numbers that the loops around a place count to are computed: of `range`, of `enumerate` over one, and
of a counter that each pass raises once. With them the condition is computed like any expression of numbers.

The trade-off: a loop over rows has no known end. A part of an `and` that is not known (`args.save`) is left out.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SHOWN_PROGRESS = frozenset(("tqdm", "list", "tuple", "iter", "track", "progress_bar"))
"""Calls that give the items of their first argument"""
RANGES = frozenset(("range", "trange"))
MAX_NAMES = 4
"""Names that are followed to the call behind a loop"""
MAX_NUMBER = 10**12
"""Larger numbers count no steps: a product of many would take long"""
ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class KnownItems(NamedTuple):
    """What is known of the items of a loop."""

    last: int | None = None
    length: int | None = None


class NumbersInLoop(NamedTuple):
    """Names with the numbers that they hold in the last pass of a loop."""

    module: Module
    by_name: dict[str, int]
    changed: frozenset[str]
    """The names that the loops give a value: what stands before them tells nothing of the last pass"""

    def number(self, node: ast.expr) -> int | None:
        """The number (True is 1) that an expression gives; None where it is not known."""
        if isinstance(node, ast.Name) and node.id in self.by_name:
            return self.by_name[node.id]
        if isinstance(node, ast.BinOp):
            return self._number_of_operation(node)
        if isinstance(node, ast.Compare):
            return self._number_of_comparison(node)
        if isinstance(node, ast.BoolOp):
            return self._number_of_boolean_operation(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self.number(node.operand)
            return None if value is None else int(not value)
        return None if self._is_changed(node) else _known_number(self.module, node)

    def _is_changed(self, node: ast.expr) -> bool:
        """Does an expression read what a loop changes?"""
        return any(isinstance(one, ast.Name) and one.id in self.changed for one in ast.walk(node))

    def _number_of_operation(self, node: ast.BinOp) -> int | None:
        """The number that an arithmetic operation gives."""
        compute = ARITHMETIC.get(type(node.op))
        left, right = self.number(node.left), self.number(node.right)
        if compute is None or left is None or right is None:
            return None
        is_division = isinstance(node.op, ast.FloorDiv | ast.Mod)
        if (is_division and right == 0) or max(abs(left), abs(right)) > MAX_NUMBER:
            return None
        return compute(left, right)

    def _number_of_comparison(self, node: ast.Compare) -> int | None:
        """1 where a comparison of two numbers holds, 0 where it does not."""
        compare = COMPARISONS.get(type(node.ops[0]))
        left, right = self.number(node.left), self.number(node.comparators[0])
        if compare is None or len(node.ops) > 1 or left is None or right is None:
            return None
        return int(compare(left, right))

    def _number_of_boolean_operation(self, node: ast.BoolOp) -> int | None:
        """What `and` gives of its known parts; `or` is known if all its parts are."""
        values = [self.number(one) for one in node.values]
        known = [one for one in values if one is not None]
        if isinstance(node.op, ast.And):
            return int(all(known)) if known else None
        return int(any(known)) if any(known) or len(known) == len(values) else None


def is_reached_in_last_pass(
    module: Module, place: ast.AST, condition: ast.If, loop: ast.AST
) -> bool:
    """Is a place under a condition certainly reached in the last pass of a loop?

    Args:
        module: The file.
        place: What the condition guards.
        condition: The condition around the place.
        loop: The innermost loop around the condition.

    Returns:
        False too where the last pass is not known.
    """
    outermost = list(_loops_of_function(module, loop))[-1]
    numbers = NumbersInLoop(
        module, _numbers_in_last_pass(module, place, loop), frozenset(_names_set_in([outermost]))
    )
    value = numbers.number(condition.test)
    if value is None or not numbers.by_name:
        return False
    is_in_else = any(place is part for one in condition.orelse for part in ast.walk(one))
    return bool(value) is not is_in_else


def _numbers_in_last_pass(module: Module, place: ast.AST, loop: ast.AST) -> dict[str, int]:
    """The names whose numbers are known at a place in the last pass of the loop and of those around it."""
    numbers: dict[str, int] = {}
    for one in _loops_of_function(module, loop):
        if isinstance(one, ast.For):
            known = dict(_last_items(module, one.target, one.iter))
            changed = _names_set_in(one.body)
            numbers |= {name: number for name, number in known.items() if name not in changed}
    if len(list(_loops_of_function(module, loop))) == 1:
        numbers |= dict(_raised_counters(module, place, loop))
    return numbers


def _loops_of_function(module: Module, loop: ast.AST) -> Iterator[ast.AST]:
    """A loop and those around it, up to the function that holds them."""
    yield loop
    for up in module.parents(loop):
        if isinstance(up, FUNCTIONS):
            return
        if isinstance(up, LOOPS):
            yield up


def _names_set_in(body: Sequence[ast.AST]) -> set[str]:
    """The names that statements give a value."""
    return {
        part.id
        for one in body
        for part in ast.walk(one)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def _last_items(module: Module, target: ast.expr, iterated: ast.expr) -> Iterator[tuple[str, int]]:
    """The names of a loop's target with their last numbers, as far as they are known."""
    call = _call_behind_progress(module, iterated)
    is_counted = call is not None and last_name_of_called(call) == "enumerate"
    if call is None or not is_counted or not call.args:
        last = _known_items(module, iterated).last
        if isinstance(target, ast.Name) and last is not None:
            yield target.id, last
        return
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        return
    counter, item = target.elts
    count = _known_items(module, call.args[0]).length
    first = _first_number_of_enumerate(module, call)
    if isinstance(counter, ast.Name) and count and first is not None:
        yield counter.id, first + count - 1
    yield from _last_items(module, item, call.args[0])


def _first_number_of_enumerate(module: Module, call: ast.Call) -> int | None:
    """The number at which `enumerate` begins; None where it is not known."""
    keywords = [one.value for one in call.keywords if one.arg == "start"]
    starts = [*call.args[1:2], *keywords]
    return _known_number(module, starts[0]) if starts else 0


def _call_behind_progress(module: Module, iterated: ast.expr) -> ast.Call | None:
    """The call that gives the items of a loop, without what shows its progress; None where there is none."""
    calls = set(_calls_behind_progress(module, iterated, MAX_NAMES))
    return next(iter(calls)) if len(calls) == 1 else None


def _calls_behind_progress(
    module: Module, node: ast.AST | None, names: int
) -> Iterator[ast.Call | None]:
    """Each call that may give the items, through names that are bound again to a shown form of themselves
    (`if is_main: steps = tqdm(steps)`); None for what is no call.
    """
    while isinstance(node, ast.Call) and last_name_of_called(node) in SHOWN_PROGRESS and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Name):
        yield node if isinstance(node, ast.Call) else None
        return
    origins = module.flow.origins(node) if names else ()
    if not origins:
        yield None
    for origin in origins:
        is_whole = not origin.path and not origin.element
        yield from _calls_behind_progress(module, origin.node if is_whole else None, names - 1)


def _known_items(module: Module, iterated: ast.expr) -> KnownItems:
    """The last item and the number of items of a `range`, also where its progress is shown."""
    bounds = _bounds_of_range(module, iterated)
    if not bounds:
        return KnownItems()
    # As `range` itself completes them: a stop alone begins at 0, and the step is 1.
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) == 3 else 1
    if stop is None or not step:
        return KnownItems()
    if start is None:  # where a run was resumed: each number up to the end is counted
        return KnownItems(stop - 1 if step == 1 else None)
    numbers = range(start, stop, step)
    return KnownItems(numbers[-1], len(numbers)) if numbers else KnownItems()


def _bounds_of_range(module: Module, iterated: ast.expr) -> list[int | None]:
    """The arguments of a `range`, None for one that is not known; empty where a loop runs over something else."""
    call = _call_behind_progress(module, iterated)
    if call is None or last_name_of_called(call) not in RANGES or not 1 <= len(call.args) <= 3:
        return []
    return [_known_number(module, one) for one in call.args]


def _raised_counters(module: Module, place: ast.AST, loop: ast.AST) -> Iterator[tuple[str, int]]:
    """The counters that each pass of a loop raises once, with their numbers at a place in the last pass."""
    if not isinstance(loop, ast.For | ast.While):
        return
    for statement in loop.body:
        if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add):
            continue
        counter = statement.target
        added = _known_number(module, statement.value)
        first = _number_before_loop(module, counter, loop)
        if not isinstance(counter, ast.Name) or first is None or added is None or added < 1:
            continue
        passes = _passes_of_loop(module, loop, counter.id, first, added)
        if passes:
            is_raised_before = statement.lineno < getattr(place, "lineno", 0)
            yield counter.id, first + added * (passes if is_raised_before else passes - 1)


def _number_before_loop(module: Module, counter: ast.expr, loop: ast.AST) -> int | None:
    """The number that a counter begins at, which is set once before the loop, and raised at one place."""
    if not isinstance(counter, ast.Name):
        return None
    set_at = [
        next(module.parents(one), None)
        for one in module.nodes(ast.Name)
        if one.id == counter.id and isinstance(one.ctx, ast.Store)
    ]
    begun = [one for one in set_at if isinstance(one, ast.Assign)]
    if len(set_at) != 2 or len(begun) != 1 or begun[0].lineno > getattr(loop, "lineno", 0):
        return None
    return _known_number(module, begun[0].value)


def _passes_of_loop(
    module: Module, loop: ast.For | ast.While, counter: str, first: int, added: int
) -> int | None:
    """How often a loop runs: over known items, or while the counter is below a known number."""
    if isinstance(loop, ast.For):
        return _known_items(module, _iterated_without_count(module, loop.iter)).length
    test = loop.test
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return None
    limit = _known_number(module, test.comparators[0])
    is_counter = isinstance(test.left, ast.Name) and test.left.id == counter
    if not is_counter or limit is None:
        return None
    if isinstance(test.ops[0], ast.Lt):
        return len(range(first, limit, added))
    return len(range(first, limit + 1, added)) if isinstance(test.ops[0], ast.LtE) else None


def _iterated_without_count(module: Module, iterated: ast.expr) -> ast.expr:
    """What a loop runs over, without the `enumerate` around it."""
    call = _call_behind_progress(module, iterated)
    if call is None or last_name_of_called(call) != "enumerate" or not call.args:
        return iterated
    return call.args[0]


def _known_number(module: Module, node: ast.AST) -> int | None:
    """The whole number that an expression is; None where it is not known."""
    value = module.flow.value(node)
    return value if isinstance(value, int) else None
