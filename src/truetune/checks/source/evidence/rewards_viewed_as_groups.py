"""Finds where a flat tensor is viewed as groups of completions, and how a script lays out the copies of its prompts.

Two layouts are usual: copies of a prompt next to each other (`[p for p in prompts for _ in range(k)]`), which
`view(-1, k)` takes apart into groups, and all prompts once, then all again (`prompts * k`), which asks for
`view(k, -1)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

VIEWS = ("view", "reshape", "unflatten")
COPIES = ("num_return_sequences", "n")
"""Arguments of engines that give the completions of a prompt next to each other"""


class GroupView(NamedTuple):
    """A view of a flat tensor with two sizes."""

    node: ast.Call
    viewed: ast.expr
    sizes: tuple[ast.expr, ast.expr]


def group_views(module: Module) -> Iterator[GroupView]:
    """The views of a file with two sizes: `x.view(p, k)`, `x.view((p, k))`, `torch.reshape(x, (p, k))`."""
    for call in module.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in VIEWS:
            continue
        given = list(call.args)
        viewed = call.func.value
        if module.flow.name(call.func) is not None:
            if not given:
                continue
            viewed = given.pop(0)
        if call.func.attr == "unflatten":
            given = given[1:]
        if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List):
            given = list(given[0].elts)
        if len(given) == 2:
            yield GroupView(call, viewed, (given[0], given[1]))


def is_rest(size: ast.expr) -> bool:
    """Is a size the literal -1: whatever remains?"""
    return ast.unparse(size) == "-1"


def is_same_number(module: Module, one: ast.expr, other: ast.expr) -> bool:
    """Are two expressions the same number, by what is written or by a value above 1?"""
    if ast.unparse(one) == ast.unparse(other):
        return True
    value = module.flow.value(one)
    return isinstance(value, int) and value > 1 and value == module.flow.value(other)


def factor_of_copies_in_runs(node: ast.AST) -> ast.expr | None:
    """How often a node copies each row before the next, `[p for p in prompts for _ in range(k)]`; None if never."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 2:
        first, second = node.generators
        return None if _range_of(first.iter) is not None else _range_of(second.iter)
    if not isinstance(node, ast.Call):
        return None
    for keyword in node.keywords:
        if keyword.arg in COPIES:
            return keyword.value
    if isinstance(node.func, ast.Attribute) and node.func.attr == "repeat_interleave" and node.args:
        # `torch.repeat_interleave(x, k)` gets the tensor first.
        is_function = ast.unparse(node.func.value) in ("torch", "np")
        return node.args[1] if is_function and len(node.args) > 1 else node.args[0]
    return None


def factor_of_copies_as_blocks(module: Module, node: ast.AST) -> ast.expr | None:
    """How often a node copies the whole list of rows: `prompts * k`, `[p for _ in range(k) for p in prompts]`."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 2:
        return _range_of(node.generators[0].iter)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for rows, factor in ((node.left, node.right), (node.right, node.left)):
            if _is_list_of_several(module, rows):
                return factor
    return None


def _range_of(iterated: ast.expr) -> ast.expr | None:
    """The number of a `range(k)`; None for anything else."""
    is_range = isinstance(iterated, ast.Call) and ast.unparse(iterated.func) == "range"
    return (
        iterated.args[0]
        if isinstance(iterated, ast.Call) and is_range and len(iterated.args) == 1
        else None
    )


def _is_list_of_several(module: Module, rows: ast.expr) -> bool:
    """Is an expression a list over other rows (a list with one literal element is one prompt)?"""
    return any(isinstance(origin.node, ast.ListComp) for origin in module.flow.origins(rows))
