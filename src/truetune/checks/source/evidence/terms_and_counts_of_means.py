"""Finds the means that a file takes: of what terms, and over which count.

The terms of a mean stand elsewhere than the division: in a loop that appends or adds, or in a
comprehension. Both are found by the name that they share.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable

MEAN_CALLS = (
    "numpy.mean",
    "numpy.average",
    "statistics.mean",
    "statistics.fmean",
    "torch.mean",
)
TENSOR_MAKERS = ("torch.tensor", "torch.stack", "torch.cat", "torch.Tensor", "numpy.array")
CASTS = ("float", "double", "cpu", "to")
"""Methods that give the values of a tensor in another type or place"""
LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Mean(NamedTuple):
    """One mean."""

    node: ast.expr
    values: ast.expr
    """The list, or the sum that is divided"""
    counted: ast.expr | None
    """What the sum is divided by; None where a function takes the mean of a list"""


def mean_expressions(module: Module) -> Iterator[Mean]:
    """All means that a file takes.

    `sum(x) / len(x)`, `total / n`, `np.mean(x)`, `torch.stack(x).mean()`, `torch.tensor(x).mean()`.
    """
    for call in module.calls(*MEAN_CALLS):
        if call.args:
            yield Mean(call.node, _list_inside_tensor(module, call.args[0]), None)
    for call in module.methods("mean"):
        if call.receiver is not None and not call.args and "dim" not in call.keywords:
            inner = _list_inside_tensor(module, call.receiver)
            if inner is not call.receiver:
                yield Mean(call.node, inner, None)
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Div):
            summed = summed_list(module, node.left)
            yield Mean(node, summed if summed is not None else node.left, node.right)


def averaged_expression(module: Module, value: ast.expr) -> ast.expr | None:
    """What an expression takes the mean of: `x` of `sum(x) / len(x)` and `np.mean(x)`; None where
    it takes none.
    """
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        return summed_list(module, value.left)
    if isinstance(value, ast.Call) and value.args and module.flow.call(value).named(*MEAN_CALLS):
        return _list_inside_tensor(module, value.args[0])
    return None


def _list_inside_tensor(module: Module, values: ast.expr) -> ast.expr:
    """The list inside of a tensor: that of `torch.tensor(values)`, and of
    `torch.cat(values).float()`; else the expression itself.
    """
    call = module.flow.producing_call(values)
    if call is not None and call.method in CASTS and call.receiver is not None:
        call = module.flow.producing_call(call.receiver)
    if call is not None and call.named(*TENSOR_MAKERS) and call.args:
        return call.args[0]
    return values


def summed_list(module: Module, total: ast.expr) -> ast.expr | None:
    """The list that a sum adds up: `values` of `sum(values)`; None for other expressions."""
    if not isinstance(total, ast.Call) or not total.args:
        return None
    return total.args[0] if module.flow.name(total.func) in ("sum", "math.fsum") else None


def terms_of_mean(module: Module, values: ast.expr) -> Iterator[ast.expr]:
    """What is added to a list or a sum in a loop, or what a comprehension makes: the things that
    are averaged.
    """
    if isinstance(values, ast.ListComp | ast.GeneratorExp):
        yield values.elt
        return
    if isinstance(values, ast.Call) and module.flow.call(values).method in ("item", "cpu", "float"):
        receiver = module.flow.call(values).receiver
        if receiver is not None:
            yield from terms_of_mean(module, receiver)
        return
    if spelling_of_variable(values) is None:
        return
    for origin in module.flow.origins(values):
        if isinstance(origin.node, ast.ListComp | ast.GeneratorExp):
            yield origin.node.elt
    for added in module.expressions_added_to_variable(values):
        if any(isinstance(around, LOOPS) for around in module.parents(added)):
            yield from added.elts if isinstance(added, ast.List) else (added,)
