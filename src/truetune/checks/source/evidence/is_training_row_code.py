"""Says whether a node stands in code that makes rows of training."""

from __future__ import annotations

import ast

from truetune.source.parsed_source_file import Module

COLUMNS = ("labels", "input_ids_chosen", "chosen_input_ids", "prompt_input_ids", "completion_mask")
"""Columns that rows of training have, and prompts of a generation do not"""
ROW_METHODS = ("__getitem__", "__iter__")


def makes_training_rows(module: Module, node: ast.AST) -> bool:
    """Does a node stand where rows of training are made?

    That is in a data set's way to a row, in a function that `map` or `from_generator` gets, or in
    one that makes a column which only training has. A function that generates makes none.
    """
    for around in module.parents(node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            if _generates_answers(around):
                return False
            if _is_given_to_map_or_generator(module, around) or _names_training_columns(around):
                return True
            if getattr(around, "name", None) in ROW_METHODS:
                return True
    return False


def _generates_answers(function: ast.AST) -> bool:
    """Does a function generate answers?"""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "generate" for node in ast.walk(function)
    )


def _names_training_columns(function: ast.AST) -> bool:
    """Does a function name a column that only rows of training have?"""
    return any(
        (isinstance(node, ast.Constant) and node.value in COLUMNS)
        or (isinstance(node, ast.Call) and _is_dict_call_with_training_column(node))
        for node in ast.walk(function)
    )


def _is_dict_call_with_training_column(node: ast.Call) -> bool:
    """Is it a `dict` call that makes a column which only training has: `dict(labels=...)`?"""
    is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict"
    return is_dict and any(keyword.arg in COLUMNS for keyword in node.keywords)


def _is_given_to_map_or_generator(module: Module, function: ast.AST) -> bool:
    """Does a `map` or `from_generator` of the file get the function?"""
    calls = [
        call
        for call in module.all_calls
        if call.method == "map" or call.named("datasets.*.from_generator")
    ]
    functions = (call.argument(0, "function") for call in calls)
    return any(
        node is function or (node and module.flow.function_that_expression_names(node) is function)
        for node in functions
    )
