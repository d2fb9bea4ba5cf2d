"""Finds reward functions that only measure the list of messages that a completion is, and read no text of it.

How it works: TRL gives a list with one message as the completion of a chat prompt. Its length, its truth, a text that
is searched in the list, and a count of a text in it are the same for every completion. Each place that reads the
completions is followed through loops, `map` and functions of the file; all of them must be such measures.

The trade-off: with tools a completion has several messages, whose number says something. Such files are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.prompts_that_are_message_lists import are_prompts_messages
from truetune.checks.source.evidence.reward_functions import COMPLETIONS
from truetune.checks.source.evidence.rewards_without_difference import (
    REWARD_FROM_ROLLOUT,
    RewardWithoutDifference,
    is_only_shown,
    reward_functions_of_file,
)
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

SEVERAL_MESSAGES = (*REWARD_FROM_ROLLOUT, "tools", "max_tool_calling_iterations")
"""Words of files whose completions may have more than one message"""
MEASURES = frozenset(("len", "bool"))
MAX_CALLS = 3
"""Functions that hand a completion to one another"""


class ReadElsewhere(Exception):
    """A completion is read for more than its measure."""


class Scope(NamedTuple):
    """A function, with what stands around each of its nodes."""

    module: Module
    function: ast.FunctionDef
    parents: dict[ast.AST, ast.AST]
    depth: int

    def reads(self, names: set[str]) -> Iterator[ast.Name]:
        """The places that read one of these names."""
        for node in ast.walk(self.function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
                yield node


def rewards_that_measure_message_lists(module: Module) -> Iterator[RewardWithoutDifference]:
    """The reward functions that measure completions as lists, where the prompts are messages."""
    if module.mentions(*SEVERAL_MESSAGES):
        return
    for function in reward_functions_of_file(module):
        measure = _measure_of_completions(module, function)
        if measure is not None and are_prompts_messages(module):
            yield RewardWithoutDifference(function, measure)


def _measure_of_completions(module: Module, function: ast.FunctionDef) -> ast.AST | None:
    """The first measure of a completion; None where there is none, or more than that is read."""
    scope = _scope_of(module, function, 0)
    others = {"completion_ids", function.args.kwarg.arg if function.args.kwarg else ""}
    if any(scope.reads(others)):
        return None
    try:
        return next(iter(list(_measures_of_batch(scope))), None)
    except ReadElsewhere:
        return None


def _scope_of(module: Module, function: ast.FunctionDef, depth: int) -> Scope:
    """A function with its nodes' parents."""
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    return Scope(module, function, parents, depth)


def _measures_of_batch(scope: Scope) -> Iterator[ast.AST]:
    """The measures of single completions. Raises ReadElsewhere."""
    names: set[str] = set()
    for node in scope.reads({COMPLETIONS}):
        around = scope.parents[node]
        called = last_name_of_called(around) if isinstance(around, ast.Call) else ""
        if called == "len" or is_only_shown(node, scope.parents):
            continue
        if isinstance(around, ast.Subscript) and not isinstance(around.slice, ast.Slice):
            yield from _measures_of_item(scope, around)
        elif isinstance(around, ast.Call) and called == "map" and len(around.args) == 2:
            yield from _measures_by_function(scope, around, around.args[0], 0)
        else:
            names.add(_loop_name_of_completion(scope, node))
    for read in scope.reads(names):
        yield from _measures_of_item(scope, read)


def _loop_name_of_completion(scope: Scope, node: ast.AST) -> str:
    """The name that a loop gives to one completion, also behind `zip` and `enumerate`. Raises ReadElsewhere."""
    path: list[int] = []
    around = scope.parents[node]
    while isinstance(around, ast.Call):
        called = last_name_of_called(around)
        if called not in ("zip", "enumerate") or node not in around.args:
            raise ReadElsewhere
        path.append(around.args.index(node) if called == "zip" else 1)
        node, around = around, scope.parents[around]
    if not isinstance(around, ast.For | ast.comprehension) or around.iter is not node:
        raise ReadElsewhere
    target: ast.expr = around.target
    for position in reversed(path):
        if not isinstance(target, ast.Tuple) or position >= len(target.elts):
            raise ReadElsewhere
        target = target.elts[position]
    if not isinstance(target, ast.Name):
        raise ReadElsewhere
    return target.id


def _measures_of_item(scope: Scope, item: ast.expr) -> Iterator[ast.AST]:
    """The measure that a place takes of a completion. Raises ReadElsewhere."""
    around = scope.parents[item]
    if isinstance(around, ast.Subscript) and _is_message_taken(around, item):
        yield from _measures_of_item(scope, around)
    elif _is_truth_asked(around, item) or _is_text_compared_with_list(around, item):
        yield around
    elif isinstance(around, ast.Attribute) and around.attr == "count":
        yield scope.parents[around]
    elif isinstance(around, ast.Call) and item in around.args:
        if not is_only_shown(item, scope.parents):
            yield from _measures_by_function(scope, around, around.func, around.args.index(item))
    elif not is_only_shown(item, scope.parents):
        raise ReadElsewhere


def _is_message_taken(around: ast.Subscript, item: ast.expr) -> bool:
    """Is it a message of a completion: `completion[0]`, `completion[-1]`?"""
    index = around.slice
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    is_number = isinstance(index, ast.Constant) and isinstance(index.value, int)
    return around.value is item and is_number and isinstance(item, ast.Name)


def _is_truth_asked(around: ast.AST, item: ast.expr) -> bool:
    """Is only asked whether a completion is empty, which a list of one message never is?"""
    if isinstance(around, ast.UnaryOp):
        return isinstance(around.op, ast.Not)
    return isinstance(around, ast.If | ast.IfExp) and around.test is item


def _is_text_compared_with_list(around: ast.AST, item: ast.expr) -> bool:
    """Is a text searched in the list, or compared with it? No list of messages holds one, or is one."""
    if not isinstance(around, ast.Compare) or len(around.ops) > 1:
        return False
    other = around.left if around.comparators[0] is item else around.comparators[0]
    is_text = isinstance(other, ast.JoinedStr) or (
        isinstance(other, ast.Constant) and isinstance(other.value, str)
    )
    if isinstance(around.ops[0], ast.In | ast.NotIn):
        return is_text and around.comparators[0] is item
    return is_text and isinstance(around.ops[0], ast.Eq | ast.NotEq)


def _measures_by_function(
    scope: Scope, place: ast.Call, called: ast.expr, position: int
) -> Iterator[ast.AST]:
    """The measures that a function takes of a completion that it is given. Raises ReadElsewhere."""
    if isinstance(called, ast.Name) and called.id in MEASURES:
        yield place
        return
    function = scope.module.flow.function_that_expression_names(called)
    is_followed = isinstance(called, ast.Name) and scope.depth < MAX_CALLS
    if not isinstance(function, ast.FunctionDef) or not is_followed:
        raise ReadElsewhere
    if position >= len(function.args.args):
        raise ReadElsewhere
    inner = _scope_of(scope.module, function, scope.depth + 1)
    for read in inner.reads({function.args.args[position].arg}):
        if any(True for _ in _measures_of_item(inner, read)):
            yield place
