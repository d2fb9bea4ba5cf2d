"""Says whether the batch that a custom loss gets can hold `labels`, by the columns that the loss
reads.
"""

from __future__ import annotations

import ast

from truetune.source.parsed_source_file import Module

LABELLING_COLLATORS = ("transformers.DataCollatorFor*", "trl.DataCollatorFor*")
"""They put labels into the batch"""


def batch_may_have_labels(module: Module, method: ast.FunctionDef) -> bool:
    """Can the batch hold `labels`, without which the Trainer counts nothing and divides by the
    steps?
    """
    keys = _batch_columns_read(module, method)
    # A method that takes the batch apart may read columns of other names: that of a model reads `labels`.
    is_read_by_model = keys is None and _batch_goes_to_model_or_super_loss(module, method)
    if is_read_by_model or "labels" in (keys or ()) or any(module.calls(*LABELLING_COLLATORS)):
        return True
    return any(node.value == "labels" for node in module.nodes(ast.Constant))


def _batch_goes_to_model_or_super_loss(module: Module, method: ast.FunctionDef) -> bool:
    """Is the batch unpacked into a call, given away together with the model, or given to the loss
    of the base class?
    """
    parameters = [one.arg for one in method.args.args[1:3]]
    if len(parameters) < 2:
        return True
    model, batch = parameters
    calls = (node for node in ast.walk(method) if isinstance(node, ast.Call))
    return any(_gives_whole_batch(call, model, batch) for call in calls)


def _gives_whole_batch(call: ast.Call, model: str, batch: str) -> bool:
    """Does a call unpack the batch, or get it together with the model, of which it may be a method?"""
    unpacked = [word.value for word in call.keywords if word.arg is None]
    if any(_contains_name(part, batch) for part in unpacked):
        return True
    arguments = [*call.args, *(word.value for word in call.keywords)]
    gets_batch = any(_contains_name(part, batch) for part in arguments)
    return gets_batch and any(_contains_name(part, model) for part in (call.func, *arguments))


def _contains_name(part: ast.expr, name: str) -> bool:
    """Does a name stand in an expression?"""
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(part))


def _batch_columns_read(module: Module, method: ast.FunctionDef) -> set[str] | None:
    """The columns of the batch that the loss reads; None where it hands the batch on, or reads an
    unknown one.
    """
    positions = method.args.args
    if len(positions) < 3:
        return None
    batch = positions[2].arg
    keys = set()
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Name)
            and node.id == batch
            and not _is_moved_under_own_name(module, node)
        ):
            key = _column_of_read(module, node)
            if key is None:
                return None
            keys.add(key)
    return keys


def _is_moved_under_own_name(module: Module, batch: ast.Name) -> bool:
    """Is it moved or copied as a whole under its own name: `batch = {k: v.to(device) for k, v in
    batch.items()}`?
    """
    statement = module.statement(batch)
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == batch.id for target in statement.targets
    )


def _column_of_read(module: Module, batch: ast.Name) -> str | None:
    """The column of a batch that is read: `x` of `batch["x"]`, `batch.get("x")` or
    `batch.pop("x")`; None otherwise.
    """
    around = module.scopes.parent.get(batch)
    asked: ast.expr | None = None
    if isinstance(around, ast.Subscript):
        asked = around.slice
    elif isinstance(around, ast.Attribute) and around.attr in ("get", "pop"):
        call = module.scopes.parent.get(around)
        asked = call.args[0] if isinstance(call, ast.Call) and call.args else None
    value = module.flow.value(asked)
    return value if isinstance(value, str) else None
