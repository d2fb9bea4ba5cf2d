"""Finds the parts of a text that stand in it as they are: `f"<user>{t}"`, `t.strip()`, `prompt + t`.

A backward slice is wider: what a function computes from a text (a tool's result, a number that a pattern takes out)
takes part in the text that holds the result, but is another text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.parsed_source_file import Module

TEXT_METHODS = (
    "strip",
    "lstrip",
    "rstrip",
    "replace",
    "removeprefix",
    "removesuffix",
    "split",
    "rsplit",
    "partition",
    "rpartition",
    "splitlines",
    "lower",
    "copy",
)
"""Methods whose result is the text, or a piece of it"""
FILLING_METHODS = ("format", "join")
"""Methods whose result holds what they are given"""
KEEPING_CALLS = ("str", "list", "tuple", "map", "sorted", "reversed", "zip")
MAX_PARTS = 200
"""Expressions that are opened for one text. Chosen, not measured: a prompt is written in some ten"""


def texts_held_by(module: Module, text: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose text an expression holds, itself first, each once.

    A call that is neither a text's method nor a function of the file is given, and not opened.
    """
    seen: set[ast.AST] = set()
    waiting: list[ast.AST] = [text]
    while waiting and len(seen) < MAX_PARTS:
        part = waiting.pop()
        if part in seen or not isinstance(part, ast.expr):
            continue
        seen.add(part)
        yield part
        waiting += _parts_of(part)
        if isinstance(part, ast.Name | ast.Attribute | ast.Call):
            waiting += [origin.node for origin in module.flow.origins(part)]
        if isinstance(part, ast.Name):
            waiting += module.expressions_added_to_variable(part)


def _parts_of(node: ast.expr) -> list[ast.expr]:
    """The parts of an expression whose text it holds."""
    if isinstance(node, ast.Call):
        return _parts_of_call(node)
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.JoinedStr | ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.List | ast.Tuple):
        return list(node.elts)
    if isinstance(node, ast.Dict):
        return list(node.values)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return [node.elt]
    if isinstance(node, ast.FormattedValue | ast.Subscript | ast.Starred):
        return [node.value]
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else []


def _parts_of_call(call: ast.Call) -> list[ast.expr]:
    """The texts that the result of a call holds: of a text's method, or of `str(t)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in TEXT_METHODS:
        return [call.func.value]
    is_filling = isinstance(call.func, ast.Attribute) and call.func.attr in FILLING_METHODS
    is_keeping = isinstance(call.func, ast.Name) and call.func.id in KEEPING_CALLS
    if is_filling or is_keeping:
        return [*call.args, *(keyword.value for keyword in call.keywords)]
    return []
