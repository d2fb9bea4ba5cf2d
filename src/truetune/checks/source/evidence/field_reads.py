"""Fields of rows that expressions read by a name that is written out."""

from __future__ import annotations

import ast


def field_read(node: ast.AST) -> str | None:
    """`reply` of `row["reply"]` and of `row.get("reply", "")`; None for any other expression."""
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        key = node.args[0] if node.func.attr == "get" and node.args else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
