"""Names the field of a row that an expression reads."""

from __future__ import annotations

import ast


def field_name_read(node: ast.AST) -> str | None:
    """The field that an expression reads by a written name: `reply` of `row["reply"]` and of
    `row.get("reply", "")`; None for any other expression.
    """
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        key = node.args[0] if node.func.attr == "get" and node.args else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
