"""Finds reward functions that hold every completion against the first element of a column.

TRL hands each column over as a list with one element for each completion. A function that reads
`answer[0]` and compares each completion with it compares the completions of all other prompts
with the answer of the first.

How it works: the names that hold the first element, or something made of it, are collected, and so
are those that hold the completions. A comparison or a call in a loop over the completions that has
the one on one side and the loop's own value on another is a place. What is printed is none.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.reward_functions import COMPLETIONS
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

CONFIGS = ("trl.*GRPOConfig",)
TEXT_MAKERS = frozenset(("format", "join", "print"))
"""Calls that only put values into a text"""
FORM_QUESTIONS = ("isinstance", "type", "hasattr")
DEFAULT_COUNT = 8
"""Completions of a device, and of a prompt, that GRPOConfig has by itself"""


class FirstOfColumn(NamedTuple):
    """A place where each completion meets the first element of a column."""

    column: str
    read: ast.AST
    """`answer[0]`"""
    used: ast.AST
    """The comparison, or the call, in the loop"""


def first_element_used_for_each_completion(
    module: Module, function: ast.FunctionDef
) -> FirstOfColumn | None:
    """The first place of a function where each completion meets the first element of a column.

    Args:
        module: The file.
        function: A reward function that TRL can call.

    Returns:
        The place; None where there is none, or where the file says that a call holds one prompt.
    """
    if _reward_calls_get_one_prompt_only(module):
        return None
    stores = _count_stores(function)
    for column in _parameters_holding_row_columns(function):
        forms = _nodes_in_type_checks_only(function)
        reads = [
            node for node in ast.walk(function) if _is_first_of(node, column) and node not in forms
        ]
        if not reads or stores[column] or _asks_length_of(function, column):
            continue
        firsts = _names_derived_from_nodes(
            function, reads, {one for one, count in stores.items() if count == 1}
        )
        used = next(_uses_of_first_element_with_loop_value(function, reads, firsts), None)
        if used is not None:
            return FirstOfColumn(column, reads[0], used)
    return None


def _parameters_holding_row_columns(function: ast.FunctionDef) -> Iterator[str]:
    """The parameters that hold a column of the rows."""
    arguments = function.args
    without_default = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    for one in (*without_default, *arguments.kwonlyargs):
        if one.arg not in ("self", "cls", COMPLETIONS):
            yield one.arg


def _is_first_of(node: ast.AST, column: str) -> bool:
    """Is it `column[0]`?"""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == column
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == 0
    )


def _nodes_in_type_checks_only(function: ast.FunctionDef) -> set[ast.AST]:
    """What a function asks for its form alone, which all elements of a column share: `isinstance(prompts[0], list)`."""
    return {
        node.args[0]
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in FORM_QUESTIONS
    }


def _asks_length_of(function: ast.FunctionDef, column: str) -> bool:
    """Does a condition ask for the length of the column, as one of a single element has?"""
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp, ast.Assert)):
            if f"len({column})" in ast.unparse(node.test):
                return True
    return False


def _names_derived_from_nodes(
    function: ast.FunctionDef, sources: list[ast.AST], allowed: set[str]
) -> set[str]:
    """The names that hold one of these nodes, or something that is made of it."""
    found: set[str] = set()
    for _ in range(3):  # `gold = answer[0]`, `number = extract(gold)`, `limit = number + 1`
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _contains_any_node_or_name(
                node.value, sources, found
            ):
                found |= {one.id for one in node.targets if isinstance(one, ast.Name)} & allowed
    return found


def _contains_any_node_or_name(node: ast.AST, sources: list[ast.AST], names: set[str]) -> bool:
    """Does an expression hold one of these nodes, or one of these names?"""
    return any(
        part in sources or (isinstance(part, ast.Name) and part.id in names)
        for part in ast.walk(node)
    )


def _uses_of_first_element_with_loop_value(
    function: ast.FunctionDef, reads: list[ast.AST], firsts: set[str]
) -> Iterator[ast.AST]:
    """Comparisons and calls, in loops over completions, of the first element and the loop's value."""
    for loop, targets in _loops_over_completions_and_own_names(
        function, _names_of_completions(function)
    ):
        own = _names_made_in_loop(loop, targets) - firsts
        printed = {id(one.value) for one in ast.walk(loop) if isinstance(one, ast.Expr)}
        for node in ast.walk(loop):
            if id(node) in printed:
                continue
            sides = _compared_operands_or_call_arguments(node)
            first = [side for side in sides if _contains_any_node_or_name(side, reads, firsts)]
            others = [side for side in sides if side not in first]
            if first and _does_any_side_contain_names(others, own):
                yield node


def _does_any_side_contain_names(sides: list[ast.expr], names: set[str]) -> bool:
    """Does one of the sides hold one of these names?"""
    return any(_contains_any_node_or_name(side, [], names) for side in sides)


def _names_of_completions(function: ast.FunctionDef) -> set[str]:
    """The names that hold the completions, or something that is made of them."""
    reads: list[ast.AST] = [
        node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == COMPLETIONS
    ]
    return {COMPLETIONS} | _names_derived_from_nodes(function, reads, set(_count_stores(function)))


def _names_made_in_loop(loop: ast.AST, targets: set[str]) -> set[str]:
    """The names of a loop's own value, and of what the loop makes of it."""
    own = set(targets)
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and _contains_any_node_or_name(node.value, [], own):
            own |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return own


def _count_stores(function: ast.FunctionDef) -> Counter[str]:
    """How often a function stores to each name."""
    return Counter(
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def _loops_over_completions_and_own_names(
    function: ast.FunctionDef, batch: set[str]
) -> Iterator[tuple[ast.AST, set[str]]]:
    """The loops and comprehensions over what is made of the completions, with their own names."""
    comprehensions = (ast.ListComp, ast.GeneratorExp, ast.SetComp)
    for node in ast.walk(function):
        if isinstance(node, ast.For):
            rounds: list[tuple[ast.expr, ast.expr]] = [(node.target, node.iter)]
        elif isinstance(node, comprehensions):
            rounds = [(one.target, one.iter) for one in node.generators]
        else:
            continue
        for target, iterable in rounds:
            if _contains_any_node_or_name(iterable, [], batch):
                yield node, {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}


def _compared_operands_or_call_arguments(node: ast.AST) -> list[ast.expr]:
    """What a comparison or a difference takes, or what a call is given; nothing where values make a text."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name in TEXT_MAKERS:
        return []
    receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return [*receiver, *node.args, *(one.value for one in node.keywords)]


def _reward_calls_get_one_prompt_only(module: Module) -> bool:
    """Do the settings in the file say that one call holds the completions of one prompt?"""
    configs = [call for part in module.self_and_files_run_together for call in part.calls(*CONFIGS)]
    return bool(configs) and all(
        _device_batch_has_one_prompt_only(module, call) for call in configs
    )


def _device_batch_has_one_prompt_only(module: Module, config: Call) -> bool:
    """Does one device make no more completions for a call than each prompt gets?"""
    if config.open or "generation_batch_size" in config.keywords:
        return False
    per_device = _integer_setting_or_default(
        module, config, "per_device_train_batch_size", DEFAULT_COUNT
    )
    per_prompt = _integer_setting_or_default(module, config, "num_generations", DEFAULT_COUNT)
    steps = _integer_setting_or_default(module, config, "gradient_accumulation_steps", 1)
    if "steps_per_generation" in config.keywords:
        steps = _integer_setting_or_default(module, config, "steps_per_generation", 1)
    if per_device is None or per_prompt is None or steps is None:
        return False
    return per_device * steps <= per_prompt


def _integer_setting_or_default(
    module: Module, config: Call, name: str, default: int
) -> int | None:
    """The whole number of a setting, its default where it is not given; None where it is not known."""
    if name not in config.keywords:
        return default
    value = module.flow.value(config.keywords[name])
    return value if isinstance(value, int) else None
