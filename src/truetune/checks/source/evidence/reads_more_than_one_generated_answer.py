"""Says whether code reads more than one of the answers that a call of `generate` gives."""

from __future__ import annotations

import ast

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SHAPE_READS = ("shape", "size", "cpu", "to", "detach", "tolist")


def reads_at_most_first_generated_answer(module: Module, call: Call) -> bool:
    """Is the first answer alone read, or none: of one prompt, or to see how fast they come?

    False where nothing is known of the use of the answers.
    """
    uses = _uses_of_result(module, call.node)
    return bool(uses) and (
        all(_reads_first_answer_or_shape(module, use) for use in uses)
        or all(_is_value_dropped(module, use) for use in uses)
    )


def _uses_of_result(module: Module, node: ast.Call) -> list[ast.expr]:
    """The expressions that use the result of a call; empty where it is given away whole, to a
    function or a caller.
    """
    statement = module.scopes.parent.get(node)
    if isinstance(statement, ast.Subscript):
        return [node]
    if not (
        isinstance(statement, ast.Assign)
        and all(isinstance(target, ast.Name) for target in statement.targets)
    ):
        return []
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    reads = (read for name in names for read in module.name_reads.get(name, ()))
    return [
        read for read in reads if any(origin.node is node for origin in module.flow.origins(read))
    ]


def _reads_first_answer_or_shape(module: Module, use: ast.expr) -> bool:
    """Does a use read only the first answer, or the answers' shape: `answers[0]`, `answers[0, n:]`?"""
    parent = module.scopes.parent.get(use)
    if isinstance(parent, ast.Attribute):
        return parent.attr in SHAPE_READS[:2]
    if not isinstance(parent, ast.Subscript) or parent.value is not use:
        return False
    index = (
        parent.slice.elts[0]
        if isinstance(parent.slice, ast.Tuple) and parent.slice.elts
        else parent.slice
    )
    return bool(module.flow.value(index) == 0)


def _is_value_dropped(module: Module, use: ast.expr) -> bool:
    """Does the expression that it is part of stand by itself, so that its value is lost?"""
    statement = module.statement(use)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = statement.value.func
    return isinstance(called, ast.Attribute) and called.attr in ("batch_decode", "decode")
