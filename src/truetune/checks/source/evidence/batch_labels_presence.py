"""Which columns of its batch a loss of one's own reads, and whether `labels` can be among the batch's."""

from __future__ import annotations

import ast

from truetune.source.module import Module

LABELLING_COLLATORS = ("transformers.DataCollatorFor*", "trl.DataCollatorFor*")
"""They put labels into the batch"""


def batch_may_have_labels(module: Module, method: ast.FunctionDef) -> bool:
    """Can the batch hold `labels`, without which the Trainer counts nothing and divides by the steps?"""
    keys = _batch_columns_read(module, method)
    if keys is None or "labels" in keys or any(module.calls(*LABELLING_COLLATORS)):
        return True
    return any(node.value == "labels" for node in module.nodes(ast.Constant))


def _batch_columns_read(module: Module, method: ast.FunctionDef) -> set[str] | None:
    """The columns of the batch that the loss reads; None where it hands the batch on, or reads an unknown one."""
    positions = method.args.args
    if len(positions) < 3:
        return None
    batch = positions[2].arg
    keys = set()
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Name)
            and node.id == batch
            and not _is_moved_or_copied(module, node)
        ):
            key = _column_of_read(module, node)
            if key is None:
                return None
            keys.add(key)
    return keys


def _is_moved_or_copied(module: Module, batch: ast.Name) -> bool:
    """Is it moved or copied as a whole under its own name: `batch = {k: v.to(device) for k, v in batch.items()}`?"""
    statement = module.statement(batch)
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == batch.id for target in statement.targets
    )


def _column_of_read(module: Module, batch: ast.Name) -> str | None:
    """The column of `batch["x"]`, `batch.get("x")` or `batch.pop("x")`."""
    around = module.scopes.parent.get(batch)
    asked: ast.expr | None = None
    if isinstance(around, ast.Subscript):
        asked = around.slice
    elif isinstance(around, ast.Attribute) and around.attr in ("get", "pop"):
        call = module.scopes.parent.get(around)
        asked = call.args[0] if isinstance(call, ast.Call) and call.args else None
    value = module.flow.value(asked)
    return value if isinstance(value, str) else None
