"""Labels that source makes by hand, with -100 in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.source.labels import column, holds_ignored_label, masks_by_id
from truetune.source.module import Module


def masked_labels(module: Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Values of a `labels` column with -100 in them, made where rows are made, and where those rows are asked for."""
    by_id = {*masks_by_id(module)}
    for node, value in _label_values(module):
        function = module.scopes.of[node].node
        user = node if isinstance(function, ast.Module) else _user(module, function)
        inside = value if isinstance(function, ast.Module) else function
        if user is not None and holds_ignored_label(module, inside) and by_id.isdisjoint(ast.walk(inside)):
            yield node, user


def unit(module: Module, node: ast.AST) -> ast.AST | None:
    """The function or method, not one inside another, that a node stands in; None in the module's own code."""
    around = [p for p in module.parents(node) if isinstance(p, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return around[-1] if around else None


def _label_values(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in module.nodes(ast.Dict, ast.Call, ast.Assign):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "labels":
                    yield node, value
        elif isinstance(node, ast.Call):
            if module.flow.name(node.func) == "dict" and (given := module.flow.call(node).keywords.get("labels")):
                yield node, given
        elif isinstance(node, ast.Assign):
            if (place := column(module, node.targets[0])) is not None and place[1] == "labels":
                yield node, node.value


def _user(module: Module, function: ast.AST) -> ast.AST | None:
    """The `map` or `from_generator` that a function is given to; a dataset's way to a row is used everywhere."""
    if getattr(function, "name", None) == "__getitem__":
        return module.tree
    calls = [c for c in module.all_calls if c.method == "map" or c.named("datasets.*.from_generator")]
    return next(
        (c.node for c in calls if (a := c.argument(0, "function")) is not None and module.flow.function(a) is function),
        None,
    )
