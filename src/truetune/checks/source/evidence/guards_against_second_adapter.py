"""Conditions that keep a model with adapters from being given another one."""

from __future__ import annotations

import ast
from typing import TypeGuard

from truetune.source.parsed_source_file import Module


def is_guarded_against_second_adapter(module: Module, node: ast.AST) -> bool:
    """Does a condition around this keep it from being reached with a model that has an adapter?"""
    inner = node
    for around in module.parents(node):
        if isinstance(around, (ast.If, ast.IfExp)) and inner is not around.test:
            parts = around.test.values if _is_conjunction(around.test) else [around.test]
            first = around.body if isinstance(around.body, list) else [around.body]
            if inner in first and any(_tests_for_no_adapter(module, part) for part in parts):
                return True
            if inner not in first and _tests_for_adapter(module, around.test):
                return True
        inner = around
    return False


def _is_conjunction(test: ast.expr) -> TypeGuard[ast.BoolOp]:
    """Is a test an `and` of others: `a and b`?"""
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)


def _tests_for_no_adapter(module: Module, test: ast.expr) -> bool:
    """Does a test hold only for a model without an adapter?

    `not isinstance(model, PeftModel)`, or a name for it; `getattr(model, "peft_config", None) is
    None`.
    """
    for origin in module.flow.origins(test):
        node = origin.node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return _tests_for_adapter(module, node.operand)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is):
            return module.flow.value(node.comparators[0]) is None and _tests_for_adapter(
                module, node.left
            )
    return False


def _tests_for_adapter(module: Module, test: ast.expr) -> bool:
    """Does a test hold only for a model with an adapter?

    `isinstance(model, PeftModel)`, `hasattr(model, "peft_config")`, or a name for it.
    """
    for origin in module.flow.origins(test):
        if isinstance(origin.node, ast.Call) and len(origin.node.args) > 1:
            call = module.flow.call(origin.node)
            if call.named("isinstance") and "Peft" in ast.unparse(call.args[1]):
                return True
            if call.named("hasattr", "getattr") and "peft" in str(module.flow.value(call.args[1])):
                return True
    return False
