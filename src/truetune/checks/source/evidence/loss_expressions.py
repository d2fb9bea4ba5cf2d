"""Exponentials and losses: what a power is taken of, and whether a value is a mean loss over tokens."""

from __future__ import annotations

import ast

from truetune.source.module import Module

CROSS_ENTROPIES = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")
MAX_STEPS = 8
"""Names and casts that a value is followed through"""


def exponent_of(module: Module, node: ast.Call) -> ast.expr | None:
    """What the exponential is taken of."""
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
                if is_plain_loss(module, power):
                    return node
                continue
            inner = _without_cast(module, node)
            if inner is not None:
                waiting.append((inner, depth + 1))
    return None


def _without_cast(module: Module, node: ast.Call) -> ast.expr | None:
    """`x` in `x.item()`, `x.cpu()` and `float(x)`."""
    call = module.flow.call(node)
    if call.method in ("item", "cpu", "float", "detach", "double", "mean", "tolist"):
        return call.receiver
    return node.args[0] if module.flow.name(node.func) in ("float", "round") and node.args else None


def is_plain_loss(module: Module, value: ast.expr) -> bool:
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
            if isinstance(node, ast.Call) and depth < MAX_STEPS:
                if module.flow.call(node).named(*CROSS_ENTROPIES):
                    return _is_mean_loss(module, node)
                inner = _without_cast(module, node)
                if inner is not None:
                    waiting.append((inner, depth + 1))
    return False


def _is_mean_loss(module: Module, node: ast.Call) -> bool:
    """Does this cross-entropy average over its tokens, and not sum or keep them apart?"""
    given = module.flow.call(node).keywords.get("reduction")
    return given is None or module.flow.value(given) == "mean"


def is_exponential_of_mean(module: Module, power: ast.expr, mean: ast.expr) -> bool:
    """Is the exponential taken of this very mean?"""
    return any(origin.node is mean for origin in module.flow.origins(power))
