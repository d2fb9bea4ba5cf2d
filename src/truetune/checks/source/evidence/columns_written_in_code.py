"""Finds the columns of a data set, in their order, by the code that makes it: where its rows are not known.

How it works: the data set is followed back to the last place that decides all of its columns: `select_columns`, `map`
with a function that writes a row out and removes all former columns, or `from_dict` and `from_list` of written rows.

The trade-off: a `map` that keeps columns, and rows that are not written out with all of their keys, tell nothing.
"""

from __future__ import annotations

import ast

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

KEEPS_COLUMNS = ("shuffle", "select", "filter", "take", "skip", "sort", "flatten_indices", "shard")
"""Methods of a data set whose result has the same columns in the same order"""
MAX_STEPS = 12
"""Calls that a data set is followed through. Chosen by hand: scripts chain three or four"""


def columns_written_in_code(module: Module, rows: ast.expr | None) -> tuple[str, ...]:
    """The names of the columns of a data set in their order; empty where the code does not tell them."""
    for _ in range(MAX_STEPS):
        made = None if rows is None else module.flow.producing_call(_without_split(module, rows))
        if made is None:
            return ()
        if made.named("datasets.*Dataset.from_dict"):
            return _keys_of_row(made.argument(0, "mapping"))
        if made.named("datasets.*Dataset.from_list"):
            return _keys_of_listed_rows(module, made.argument(0, "mapping"))
        if made.method == "select_columns":
            return _texts_of_list(module, made.argument(0, "column_names"))
        if made.method == "map":
            return _columns_of_map(module, made)
        if made.method not in KEEPS_COLUMNS:
            return ()
        rows = made.receiver
    return ()


def _without_split(module: Module, rows: ast.expr) -> ast.expr:
    """The data set that a part is of: `rows.train_test_split(0.1)["train"]` has the columns of `rows`."""
    origins = module.flow.origins(rows)
    node = origins[0].node if len(origins) == 1 else rows
    if not isinstance(node, ast.Subscript):
        return rows
    split = module.flow.producing_call(node.value)
    is_split = split is not None and split.method == "train_test_split"
    return split.receiver if split is not None and is_split and split.receiver else rows


def _columns_of_map(module: Module, made: Call) -> tuple[str, ...]:
    """The columns of a `map` that removes all former ones; empty where it may keep some."""
    removed = made.keywords.get("remove_columns")
    function = made.argument(0, "function")
    if function is None or removed is None or not _are_all_columns(module, removed):
        return ()
    if isinstance(function, ast.Lambda):
        return _keys_of_row(function.body)
    written = module.flow.function_that_expression_names(function)
    if written is None:
        return ()
    returned = module.flow.returned_expressions_by_function.get(written, [])
    columns = {_keys_of_row(node) for node in returned}
    return columns.pop() if len(columns) == 1 else ()


def _are_all_columns(module: Module, removed: ast.expr) -> bool:
    """Are these all columns of a data set: `rows.column_names`?"""
    nodes = [removed, *(origin.node for origin in module.flow.origins(removed))]
    return any(isinstance(node, ast.Attribute) and node.attr == "column_names" for node in nodes)


def _keys_of_listed_rows(module: Module, rows: ast.expr | None) -> tuple[str, ...]:
    """The keys of the rows of a list that is made of one written row: `[{"query": q} for q in queries]`."""
    origins = () if rows is None else module.flow.origins(rows)
    node = origins[0].node if len(origins) == 1 else rows
    return _keys_of_row(node.elt) if isinstance(node, ast.ListComp) else ()


def _keys_of_row(node: ast.expr | None) -> tuple[str, ...]:
    """The keys of a dictionary that is written out; empty for anything else."""
    if not isinstance(node, ast.Dict):
        return ()
    keys = tuple(
        key.value
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )
    return keys if len(keys) == len(node.keys) else ()


def _texts_of_list(module: Module, names: ast.expr | None) -> tuple[str, ...]:
    """The texts of a list that is known; empty otherwise."""
    texts = module.flow.value(names)
    if not isinstance(texts, list | tuple):
        return ()
    return tuple(texts) if all(isinstance(text, str) for text in texts) else ()
