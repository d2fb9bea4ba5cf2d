"""Which columns of its batch a loss of one's own reads, and whether `labels` can be among the batch's."""

from __future__ import annotations

import ast

from truetune.source.parsed_source_file import Module

LABELLING_COLLATORS = ("transformers.DataCollatorFor*", "trl.DataCollatorFor*")
"""They put labels into the batch"""


def batch_may_have_labels(module: Module, method: ast.FunctionDef) -> bool:
    """Can the batch hold `labels`, without which the Trainer counts nothing and divides by the steps?"""
    keys = _batch_columns_read(module, method)
    # A method that takes the batch apart may read columns of other names: that of a model reads `labels`.
    is_read_by_model = keys is None and _is_handed_to_model(module, method)
    if is_read_by_model or "labels" in (keys or ()) or any(module.calls(*LABELLING_COLLATORS)):
        return True
    return any(node.value == "labels" for node in module.nodes(ast.Constant))


def _is_handed_to_model(module: Module, method: ast.FunctionDef) -> bool:
    """Is the batch unpacked into a call, or handed on together with the model, or to the loss of the class above?"""
    parameters = [one.arg for one in method.args.args[1:3]]
    if len(parameters) < 2:
        return True
    model, batch = parameters
    for call in (node for node in ast.walk(method) if isinstance(node, ast.Call)):
        unpacked = [word.value for word in call.keywords if word.arg is None]
        if any(_names(part, batch) for part in unpacked):
            return True
        given = [*call.args, *(word.value for word in call.keywords)]
        with_model = [call.func, *given]
        if any(_names(part, batch) for part in given) and any(
            _names(part, model) for part in with_model
        ):
            return True
    return False


def _names(part: ast.expr, name: str) -> bool:
    """Does a name stand in an expression?"""
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(part))


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
