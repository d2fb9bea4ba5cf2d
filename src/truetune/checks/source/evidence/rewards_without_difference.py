"""Finds reward functions of GRPO whose rewards don't tell the completions of one prompt apart.

How it works: GRPO compares the rewards of a prompt's completions with their mean. A function that reads no completion
gives all of them the same, and so does one that returns a single reward. A function whose reference has a default and
another name than every column of the rows never gets a reference.

The trade-off: whether a function reads its completions is decided by their name alone: a number of them (`len`) and a
loop whose item is not read are no reading, everything else is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.reward_functions import (
    COMPLETIONS,
    reward_functions_with_kwargs,
)
from truetune.checks.source.evidence.reward_functions_rejecting_all_references import (
    TRAINERS,
    reward_functions_with_columns,
)
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.values_of_run import Function

GIVEN_BY_TRL = frozenset(
    ("prompts", COMPLETIONS, "completion_ids", "trainer_state", "log_extra", "log_metric")
) | {"environments", "self"}
"""Parameters that TRL 1.16 fills by itself"""
COMPLETION_NAMES = frozenset((COMPLETIONS, "completion_ids"))
REWARD_FROM_ROLLOUT = ("rollout_func", "environment_factory", "environments")
"""Words of files whose rewards come from what the completion did in an environment"""
SHOWING = frozenset(("print", "info", "debug", "warning", "log", "pprint", "write"))
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class RewardWithoutDifference(NamedTuple):
    """A reward function that tells no completions apart."""

    function: ast.FunctionDef
    place: ast.AST
    """What shows it"""


class ReferenceNeverGiven(NamedTuple):
    """A parameter of a reward function that no column fills."""

    function: Function
    parameter: ast.arg
    columns: tuple[str, ...]
    """The columns that the rows have"""


def reward_functions_of_file(module: Module) -> Iterator[ast.FunctionDef]:
    """The functions of a file that score completions: by their form, or since a trainer is given them."""
    yield from reward_functions_with_kwargs(module)
    seen = set(reward_functions_with_kwargs(module))
    for call in module.calls(*TRAINERS):
        reward_funcs_argument = call.argument(1, "reward_funcs")
        items = (
            reward_funcs_argument.elts
            if isinstance(reward_funcs_argument, ast.List | ast.Tuple)
            else [reward_funcs_argument]
        )
        for item in items:
            function = (
                module.flow.function_that_expression_names(item)
                if isinstance(item, ast.expr)
                else None
            )
            if isinstance(function, ast.FunctionDef) and function not in seen:
                seen.add(function)
                if COMPLETIONS in {one.arg for one in function.args.args}:
                    yield function


def rewards_without_completions(module: Module) -> Iterator[RewardWithoutDifference]:
    """The reward functions that read no completion."""
    if module.mentions(*REWARD_FROM_ROLLOUT):
        return
    for function in reward_functions_of_file(module):
        returned = _returned_values(function)
        if returned and not _reads_completions(function):
            yield RewardWithoutDifference(function, returned[0])


def reward_functions_returning_one_reward(module: Module) -> Iterator[RewardWithoutDifference]:
    """The reward functions that return one reward for all completions."""
    for function in reward_functions_of_file(module):
        returned = _returned_values(function)
        if returned and all(map(_is_one_reward, returned)) and _reads_completions(function):
            yield RewardWithoutDifference(function, returned[0])


def defaulted_parameters_without_row_column(module: Module) -> Iterator[ReferenceNeverGiven]:
    """The parameters with a default that the rows of the trainer have no column for."""
    if not any(module.calls(*TRAINERS)):
        return
    for function, columns in reward_functions_with_columns(module):
        definition = function.definition
        if not isinstance(definition, ast.FunctionDef):
            continue
        for parameter in _parameters_with_none_or_empty_default(definition):
            if parameter.arg not in columns | GIVEN_BY_TRL and _is_read(definition, parameter):
                names = tuple(sorted(columns - {"prompt"}))
                yield ReferenceNeverGiven(function, parameter, names)


def _parameters_with_none_or_empty_default(function: ast.FunctionDef) -> Iterator[ast.arg]:
    """The parameters that are None, or empty, where nothing is given for them."""
    arguments = function.args
    positional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    pairs = [
        *zip(positional, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for parameter, default in pairs:
        # A number or a flag is a setting of the function, and no column is meant to fill it.
        is_none = isinstance(default, ast.Constant) and default.value is None
        is_empty = isinstance(default, ast.List | ast.Tuple) and not default.elts
        if is_none or is_empty:
            yield parameter


def _is_read(function: ast.FunctionDef, parameter: ast.arg) -> bool:
    """Does the function read a parameter?"""
    return any(
        isinstance(part, ast.Name) and part.id == parameter.arg for part in ast.walk(function)
    )


def _returned_values(function: ast.FunctionDef) -> list[ast.expr]:
    """What the function itself returns; none where it gives back nothing, or yields."""
    values: list[ast.expr] = []
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Return) and node.value is not None:
            values.append(node.value)
        if not isinstance(node, NESTED):
            waiting += ast.iter_child_nodes(node)
    return [] if all(map(_is_none_or_list_of_none, values)) else values


def _is_none_or_list_of_none(value: ast.expr) -> bool:
    """Is a returned value None, or a list of None: does the function leave the rows to others?"""
    if isinstance(value, ast.BinOp):
        return any(
            isinstance(one, ast.List) and _is_none_or_list_of_none(one)
            for one in (value.left, value.right)
        )
    if isinstance(value, ast.List):
        return all(map(_is_none_or_list_of_none, value.elts))
    if isinstance(value, ast.ListComp):
        return _is_none_or_list_of_none(value.elt)
    return isinstance(value, ast.Constant) and value.value is None


def _is_one_reward(value: ast.expr) -> bool:
    """Is it a list of one reward, or one reward as often as there are completions?"""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        sides = [side for side in (value.left, value.right) if isinstance(side, ast.List)]
        return len(sides) == 1 and _is_one_reward(sides[0])
    if not isinstance(value, ast.List) or len(value.elts) != 1:
        return False
    return not isinstance(value.elts[0], ast.Starred)


def _reads_completions(function: ast.FunctionDef) -> bool:
    """Does a function read what the completions hold?"""
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    kwarg = function.args.kwarg.arg if function.args.kwarg is not None else ""
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if node.id == kwarg or (
            node.id in COMPLETION_NAMES and _reads_more_than_length(node, parents, function)
        ):
            return True
    return False


def _reads_more_than_length(
    node: ast.Name, parents: dict[ast.AST, ast.AST], function: ast.FunctionDef
) -> bool:
    """Does a place read more of the completions than how many there are?"""
    around = parents[node]
    if isinstance(around, ast.Call) and last_name_of_called(around) == "len":
        return False
    position = -1
    if isinstance(around, ast.Call) and last_name_of_called(around) in ("zip", "enumerate"):
        is_counted = last_name_of_called(around) == "enumerate"
        position = 1 if is_counted else around.args.index(node) if node in around.args else -1
        around = parents[around]
    if isinstance(around, ast.For | ast.comprehension):
        return _is_item_read(around.target, position, function)
    return not is_only_shown(node, parents)


def _is_item_read(target: ast.expr, position: int, function: ast.FunctionDef) -> bool:
    """Is the item of a loop read, which is the whole target or one of its names?"""
    if position >= 0:
        if not isinstance(target, ast.Tuple) or position >= len(target.elts):
            return True
        target = target.elts[position]
    names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    return any(
        isinstance(part, ast.Name) and part.id in names and isinstance(part.ctx, ast.Load)
        for part in ast.walk(function)
    )


def is_only_shown(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Is a value only printed or logged?"""
    around = parents.get(node)
    while around is not None and not isinstance(around, ast.stmt):
        node, around = around, parents.get(around)
    shown = around.value if isinstance(around, ast.Expr) else None
    return isinstance(shown, ast.Call) and last_name_of_called(shown) in SHOWING
