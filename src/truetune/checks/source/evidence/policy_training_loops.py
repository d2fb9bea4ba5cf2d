"""Tells files that train a policy by rewards with a loss of their own, and follows whole batches of rewards."""

from __future__ import annotations

import ast
import re

from truetune.checks.source.evidence.wrong_signs_of_policy_losses import ADVANTAGE, backward_losses
from truetune.source.parsed_source_file import Module

LOG_PROBABILITIES = re.compile(r"log_?p(?:rob)?s?|log_softmax", re.I)
MAKERS = ("tensor", "as_tensor", "array", "asarray", "FloatTensor", "stack", "cat", "concat")
"""Functions that make one tensor of a list"""
SAME_SHAPE = (
    "to",
    "float",
    "cuda",
    "cpu",
    "detach",
    "clone",
    "contiguous",
    "double",
    "type",
    "half",
)
"""Methods whose result has the tensor's shape"""
LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


def has_own_policy_loss(module: Module) -> bool:
    """Does a file have a backward pass, rewards or advantages, and log-probabilities?"""
    has_words = ADVANTAGE.search(module.text) and LOG_PROBABILITIES.search(module.text)
    return bool(has_words) and next(backward_losses(module), None) is not None


def loops_around(module: Module, node: ast.AST) -> list[ast.AST]:
    """The loops and comprehensions that repeat a node, up to its function; what they go over is outside."""
    around: list[ast.AST] = []
    inner: ast.AST = node
    for parent in module.parents(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
        is_iterated = isinstance(parent, ast.For) and inner is parent.iter
        if isinstance(parent, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            is_iterated = inner is parent.generators[0]
        if isinstance(parent, LOOPS) and not is_iterated:
            around.append(parent)
        inner = parent
    return around


def without_casts(node: ast.expr) -> ast.expr:
    """A tensor without what moves or casts it around: `x.float().to(d)` -> `x`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in SAME_SHAPE:
            break
        node = node.func.value
    return node


def tensor_of_list(node: ast.AST) -> ast.Call | None:
    """The call that makes a tensor of a list: `torch.tensor([...])`; None for anything else."""
    if not isinstance(node, ast.expr):
        return None
    expression = without_casts(node)
    is_maker = (
        isinstance(expression, ast.Call)
        and ast.unparse(expression.func).rpartition(".")[2] in MAKERS
    )
    return expression if is_maker and isinstance(expression, ast.Call) and expression.args else None
