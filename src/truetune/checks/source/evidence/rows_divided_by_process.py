"""Says whether a script divides rows among its processes by itself: by a slice, a condition or a
file's name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.parsed_source_file import Module

PROCESS_WORD = re.compile(
    r"rank|world_?size|process_?index|process_?id|num_?(?:processes|replicas|shards)|shard"
    r"|split_dataset_by_node|procid",
    re.IGNORECASE,
)
"""In names, and in the variables of launchers (RANK, WORLD_SIZE, SLURM_PROCID): which process this is"""
MAX_VARIABLE_CHARACTERS = 20
"""Of a text that names a variable of a launcher; a longer one is a text"""
LOOPS = (ast.For, ast.While)
MAX_LOOPS = 20
"""Loops that are followed from a value. Chosen, not measured: rows, batches and answers are three"""


def are_divided_by_process(module: Module, rows: ast.expr) -> bool:
    """Does it depend on the process which rows these are: does its number take part in making them?"""
    return any(
        _names_process_number(part) or is_filled_by_process_condition(module, part)
        for part in backward_slice(module, rows)
    )


def depends_on_process_number_or_count(module: Module, expression: ast.expr) -> bool:
    """Is an expression computed from the number of this process, or of all?"""
    return any(_names_process_number(part) for part in backward_slice(module, expression))


def _names_process_number(part: ast.AST) -> bool:
    """Is it a name, an attribute, or a variable of the environment that says which process this is?"""
    if isinstance(part, ast.Name):
        return PROCESS_WORD.search(part.id) is not None
    if isinstance(part, ast.Attribute):
        return PROCESS_WORD.search(part.attr) is not None
    if not isinstance(part, ast.Constant) or not isinstance(part.value, str):
        return False
    is_variable = len(part.value) <= MAX_VARIABLE_CHARACTERS and part.value.isupper()
    return is_variable and PROCESS_WORD.search(part.value) is not None


def is_filled_by_process_condition(module: Module, part: ast.AST) -> bool:
    """Is it a list to which rows are added under a condition on the process, or behind one that
    leaves rows out?
    """
    if not isinstance(part, ast.Name):
        return False
    return any(
        depends_on_process_number_or_count(module, test)
        for added in module.expressions_added_to_variable(part)
        for test in _conditions_to_reach_place_in_loop(module, added)
    )


def _conditions_to_reach_place_in_loop(module: Module, node: ast.AST) -> list[ast.expr]:
    """The conditions that decide in a loop whether a place is reached: around it, and of a
    `continue` before it.
    """
    tests: list[ast.expr] = []
    for parent in module.parents(node):
        if isinstance(parent, ast.If):
            tests.append(parent.test)
        if isinstance(parent, LOOPS):
            tests += [
                one.test
                for one in parent.body
                if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Continue)
            ]
            break
    return tests


def contains_variable(node: ast.AST, name: str) -> bool:
    """Does a variable of this name stand in a node?"""
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def backward_slice_through_loops(module: Module, rows: ast.expr) -> Iterator[ast.AST]:
    """What a value is computed from, step by step back; for the variable of a loop, also what the
    loop goes over.
    """
    waiting: list[ast.expr] = [rows]
    seen: set[ast.AST] = set()
    while waiting and len(seen) < MAX_LOOPS:
        value = waiting.pop()
        for part in backward_slice(module, value):
            yield part
            if isinstance(part, ast.Name):
                over = [one for one in _iterables_of_loop_variable(module, part) if one not in seen]
                seen.update(over)
                waiting += over


def _iterables_of_loop_variable(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """What the loops and comprehensions go over whose variable a name is."""
    for around in module.parents(name):
        loops: list[ast.For | ast.comprehension] = []
        if isinstance(around, ast.For):
            loops = [around]
        elif isinstance(around, ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp):
            loops = list(around.generators)
        for loop in loops:
            if contains_variable(loop.target, name.id):
                yield loop.iter
