"""Finds reward functions that give one of two values alone, such as 0 and 1, by the expressions of their rewards.

The trade-off: a reward that is computed, or given by a function that is not in the file, may have any value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.source.evidence.rewards_without_difference import reward_functions_of_file
from truetune.source.parsed_source_file import Module, read_module

TRUTH_CASTS = frozenset(("float", "int", "bool"))


def two_valued_functions_of_settings(names: object, folder: Path) -> list[str] | None:
    """The reward functions that settings name, where all of them give two values.

    Args:
        names: What `reward_funcs` is set to: `rewards.exact_answer`, or a list.
        folder: Where the settings file is.

    Returns:
        Their names; None where one is not found, or may give more than two values.
    """
    given = names if isinstance(names, list) else [names]
    function_names: list[str] = []
    for name in given:
        module_name, _, function_name = str(name).rpartition(".")
        path = folder / f"{module_name.replace('.', '/')}.py"
        if not module_name or not path.is_file():
            return None
        module = read_module(path)
        functions = [one for one in module.nodes(ast.FunctionDef) if one.name == function_name]
        if len(functions) != 1 or not _gives_two_values(module, functions[0]):
            return None
        function_names.append(function_name)
    return function_names or None


def two_valued_functions_of_script(path: Path) -> list[str] | None:
    """The reward functions of a script, where all of them give two values; None otherwise."""
    module = read_module(path)
    functions = list(reward_functions_of_file(module))
    is_two_valued = functions and all(_gives_two_values(module, one) for one in functions)
    return [one.name for one in functions] if is_two_valued else None


def _gives_two_values(module: Module, function: ast.FunctionDef) -> bool:
    """Does a function give each completion one of two values?"""
    values: set[object] = set()
    for reward in _reward_expressions(function):
        options = _values_of_reward(module, reward)
        if options is None:
            return False
        values |= options
    return len(values) == 2


def _reward_expressions(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The expressions of single rewards: the items of a comprehension, and what a list gets appended."""
    returned = _returned_values(function)
    names = {one.id for one in returned if isinstance(one, ast.Name)}
    for value in returned:
        if isinstance(value, ast.ListComp):
            yield value.elt
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.ListComp):
            if _is_name_among_targets(node.targets, names):
                yield node.value.elt
        if isinstance(node, ast.Call) and _is_append_to_one_of(node.func, names):
            yield from node.args[:1]


def _returned_values(function: ast.FunctionDef) -> list[ast.expr | None]:
    """What the `return` statements of a function give."""
    return [one.value for one in ast.walk(function) if isinstance(one, ast.Return)]


def _is_name_among_targets(targets: list[ast.expr], names: set[str]) -> bool:
    """Is one of these names among what an assignment sets?"""
    return any(_is_one_of(target, names) for target in targets)


def _is_one_of(node: ast.expr, names: set[str]) -> bool:
    """Is it one of these names?"""
    return isinstance(node, ast.Name) and node.id in names


def _is_append_to_one_of(function: ast.expr, names: set[str]) -> bool:
    """Is it `rewards.append`, of a list with one of these names?"""
    if not isinstance(function, ast.Attribute) or function.attr != "append":
        return False
    return _is_one_of(function.value, names)


def _values_of_reward(module: Module, reward: ast.expr) -> set[object] | None:
    """The values that a reward may have; None where it may have others."""
    if isinstance(reward, ast.IfExp):
        both = [_values_of_reward(module, one) for one in (reward.body, reward.orelse)]
        return None if None in both else set().union(*(one for one in both if one is not None))
    if isinstance(reward, ast.Compare):
        return {0.0, 1.0}
    if isinstance(reward, ast.Call) and isinstance(reward.func, ast.Name):
        is_cast = reward.func.id in TRUTH_CASTS and len(reward.args) == 1
        return _values_of_reward(module, reward.args[0]) if is_cast else None
    number = module.flow.value(reward)
    return {float(number)} if isinstance(number, int | float) else None
