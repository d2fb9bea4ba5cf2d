"""What code does with the result of apply_chat_template."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.calls import Call
from truetune.source.module import Module

SILENT = ("len", "list", "tuple", "enumerate", "zip", "reversed")
OF_TENSORS = ("shape", "size", "tolist", "cpu", "numpy", "squeeze", "unsqueeze", "ndim")
OF_DICTIONARIES = ("input_ids", "attention_mask", "items", "keys", "get", "pop", "data")


def returns_dictionary(module: Module, call: Call) -> bool:
    """Does this call of apply_chat_template give ids, and so a dictionary from transformers 5 on?"""
    tokenize = call.keywords.get("tokenize")
    if not (
        call.lacks("return_dict") and (tokenize is None or module.flow.value(tokenize) is True)
    ):
        return False
    return "tokenizer" in module.flow.types(
        call.receiver
    )  # a processor's gives text unless it is told otherwise


def uses_of_result(module: Module, made: ast.Call) -> Iterator[tuple[ast.AST, str]]:
    """Each use of the result, and how it goes: silent (nonsense), loud (an error), dictionary (right)."""
    names = (
        name
        for name in module.nodes(ast.Name)
        if isinstance(name.ctx, ast.Load)
        and all(o.node is made and not o.path and not o.element for o in module.flow.origins(name))
    )
    for node in (made, *names):
        parent = module.scopes.parent.get(node)
        how = _how(module, node, parent)
        if how and parent is not None:
            yield parent, how


def _how(module: Module, node: ast.AST, parent: ast.AST | None) -> str:
    if isinstance(parent, ast.Call) and node in parent.args:
        return "silent" if module.flow.name(parent.func) in SILENT else ""
    if isinstance(parent, ast.Subscript) and parent.value is node:
        index = module.flow.value(parent.slice)
        if isinstance(index, str):
            return "dictionary"
        return (
            "silent"
            if isinstance(parent.slice, ast.Slice)
            else "loud"
            if isinstance(parent.slice, ast.Tuple)
            else ""
        )
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add):
        return "loud"
    if isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node:
        return "silent"
    if isinstance(parent, ast.Attribute):
        return (
            "loud"
            if parent.attr in OF_TENSORS
            else "dictionary"
            if parent.attr in OF_DICTIONARIES
            else ""
        )
    if isinstance(parent, ast.keyword) and parent.arg is None:
        return "dictionary"
    return "silent" if isinstance(parent, ast.Starred) else ""
