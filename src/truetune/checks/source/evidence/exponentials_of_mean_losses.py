"""Finds exponentials of mean losses, as of a perplexity: what an exponential is taken of, and whether that is a mean
loss over tokens.
"""

from __future__ import annotations

import ast
import re

from truetune.checks.source.evidence.terms_and_counts_of_means import (
    averaged_expression,
    summed_list,
    terms_of_mean,
)
from truetune.source.parsed_source_file import Module

CROSS_ENTROPIES = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")
CASTS = ("item", "cpu", "float", "detach", "double", "mean", "tolist", "repeat", "expand")
"""Methods that keep the value of a loss; one that is repeated by its rows is weighted by rows, not by tokens"""
GATHERS = ("gather", "gather_for_metrics")
"""Methods of accelerate that give the values of all processes"""
LOGPROB_NAMES = re.compile(r"log_?probs?$", re.I)
MAX_STEPS = 8
"""Names and casts that a value is followed through"""


def exponent_of(module: Module, node: ast.Call) -> ast.expr | None:
    """The exponent of a call of `exp`, in any library; None for other calls."""
    call = module.flow.call(node)
    return call.receiver if call.method == "exp" else call.argument(0, "input")


def exponential_of_loss_in(
    module: Module, term: ast.expr, exponentials: dict[ast.Call, ast.expr | None]
) -> ast.Call | None:
    """The exponential of a loss that a term is, through names, functions of the file and casts."""
    waiting: list[tuple[ast.expr, int]] = [(term, 0)]
    while waiting:
        part, depth = waiting.pop()
        for origin in module.flow.origins(part):
            node = origin.node
            if not isinstance(node, ast.Call) or depth > MAX_STEPS:
                continue
            power = exponentials.get(node)
            if power is not None:
                if is_unweighted_loss(module, power):
                    return node
                continue
            inner = _value_inside_cast_or_gather(module, node)
            if inner is not None:
                waiting.append((inner, depth + 1))
    return None


def _value_inside_cast_or_gather(module: Module, node: ast.Call) -> ast.expr | None:
    """The value before a cast: `x` in `x.item()`, `x.cpu()`, `float(x)`, and in
    `accelerator.gather(x.repeat(rows))`; None for other calls.
    """
    call = module.flow.call(node)
    if call.method in CASTS:
        return call.receiver
    if call.method in GATHERS:
        return call.argument(0, "input_data") or call.argument(0, "tensor")
    return node.args[0] if module.flow.name(node.func) in ("float", "round") and node.args else None


def is_unweighted_loss(module: Module, value: ast.expr) -> bool:
    """Is it the loss of a model, or a cross-entropy, not weighted by anything?"""
    waiting: list[tuple[ast.expr, int]] = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        for origin in module.flow.origins(part):
            node = origin.node
            if isinstance(node, ast.Attribute) and node.attr == "loss":
                return True
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                return node.slice.value == "loss"
            if _is_negated_mean_of_logprobs(module, node):
                return True
            if isinstance(node, ast.Call) and depth < MAX_STEPS:
                if module.flow.call(node).named(*CROSS_ENTROPIES):
                    return _averages_over_tokens(module, node)
                inner = _value_inside_cast_or_gather(module, node)
                if inner is not None:
                    waiting.append((inner, depth + 1))
    return False


def _is_negated_mean_of_logprobs(module: Module, node: ast.AST) -> bool:
    """Is it the negated mean of what an engine calls log-probabilities: `-(sum(logprobs) / n)` or
    `-sum(logprobs) / n`?
    """
    values = None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        values = averaged_expression(module, node.operand)
    elif isinstance(node, ast.BinOp) and isinstance(node.left, ast.UnaryOp):
        is_mean = isinstance(node.op, ast.Div) and isinstance(node.left.op, ast.USub)
        values = summed_list(module, node.left.operand) if is_mean else None
    if values is None:
        return False
    return any(
        isinstance(term, ast.Attribute) and LOGPROB_NAMES.search(term.attr) is not None
        for term in terms_of_mean(module, values)
    )


def _averages_over_tokens(module: Module, node: ast.Call) -> bool:
    """Does this cross-entropy average over its tokens, and not sum or keep them apart?"""
    reduction_argument = module.flow.call(node).keywords.get("reduction")
    return reduction_argument is None or module.flow.value(reduction_argument) == "mean"


def is_exponential_of_mean(module: Module, power: ast.expr, mean: ast.expr) -> bool:
    """Is the exponential taken of this very mean?"""
    for origin in module.flow.origins(power):
        node = origin.node
        inner = _value_inside_cast_or_gather(module, node) if isinstance(node, ast.Call) else None
        if node is mean or inner is mean:
            return True
    return False
