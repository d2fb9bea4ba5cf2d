"""Says what code does with the result of `apply_chat_template`: uses it as ids, as a dictionary, or
in a way that fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SILENT = ("len", "list", "tuple", "enumerate", "zip", "reversed")
OF_TENSORS = ("shape", "size", "tolist", "cpu", "numpy", "squeeze", "unsqueeze", "ndim")
OF_DICTIONARIES = ("input_ids", "attention_mask", "items", "keys", "get", "pop", "data")


def gives_dictionary_from_transformers_5(module: Module, call: Call) -> bool:
    """Does this call of apply_chat_template give ids, and therefore a dictionary from transformers
    5 on?
    """
    tokenize = call.keywords.get("tokenize")
    if not (
        call.lacks("return_dict") and (tokenize is None or module.flow.value(tokenize) is True)
    ):
        return False
    return "tokenizer" in module.flow.types(
        call.receiver
    )  # a processor's gives text unless it is told otherwise


def uses_of_result_with_failure_class(
    module: Module, result: ast.Call
) -> Iterator[tuple[ast.AST, str]]:
    """Each use of the result with its class: `silent` (nonsense without an error), `loud` (an
    error), `dictionary` (right).
    """
    names = (
        name
        for name in module.variable_reads()
        if all(o.node is result and not o.path and not o.element for o in module.flow.origins(name))
    )
    for node in (result, *names):
        parent = module.scopes.parent.get(node)
        how = _failure_class_of_use(module, node, parent)
        if how and parent is not None:
            yield parent, how


def _failure_class_of_use(module: Module, node: ast.AST, parent: ast.AST | None) -> str:
    """How a use treats the result: `dictionary` as one, `loud` fails on one, `silent` takes its
    keys for the ids; empty where that is not plain."""
    if isinstance(parent, ast.Subscript):
        return _failure_class_of_use_by_index(module, parent) if parent.value is node else ""
    if isinstance(parent, ast.Attribute):
        return _failure_class_of_use_by_attribute(parent.attr)
    if isinstance(parent, ast.Call):
        is_silent = node in parent.args and module.flow.name(parent.func) in SILENT
        return "silent" if is_silent else ""
    return _failure_class_of_use_in_expression(node, parent)


def _failure_class_of_use_in_expression(node: ast.AST, parent: ast.AST | None) -> str:
    """The class of a use in an expression: `result + ids`, `for id in result`, `model(**result)`
    and `[*result]`.
    """
    if isinstance(parent, ast.BinOp):
        return "loud" if isinstance(parent.op, ast.Add) else ""
    if isinstance(parent, ast.For | ast.comprehension):
        # Going over a dictionary gives its keys, which pass for two or three ids.
        return "silent" if parent.iter is node else ""
    if isinstance(parent, ast.keyword):
        return "dictionary" if parent.arg is None else ""
    return "silent" if isinstance(parent, ast.Starred) else ""


def _failure_class_of_use_by_index(module: Module, subscript: ast.Subscript) -> str:
    """The class of a use by an index or key: `result["input_ids"]`, `result[:5]` and `result[0,
    1]`.
    """
    if isinstance(module.flow.value(subscript.slice), str):
        return "dictionary"
    if isinstance(subscript.slice, ast.Slice):
        return "silent"
    return "loud" if isinstance(subscript.slice, ast.Tuple) else ""


def _failure_class_of_use_by_attribute(name: str) -> str:
    """The class of a use by an attribute: `result.shape` and `result.input_ids`."""
    if name in OF_TENSORS:
        return "loud"
    return "dictionary" if name in OF_DICTIONARIES else ""
