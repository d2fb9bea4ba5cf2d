"""Finds labels that code makes by hand with -100 in them, and the calls that ask for those rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.source.evidence.label_masking_and_padding import (
    holds_ignored_label,
    maskings_of_pad_id,
    owner_and_column_read,
)
from truetune.source.parsed_source_file import Module

MOST_CALLERS = 4
"""Functions between the one that makes rows and the script that trains on them"""


def hand_masked_labels(module: Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The values of a `labels` column with -100 in them, where rows are made, each with the call
    that asks for those rows.
    """
    by_id = {*maskings_of_pad_id(module)}
    for node, value in label_writers_and_values(module):
        function = module.scopes.of[node].node
        user = (
            node
            if isinstance(function, ast.Module)
            else _dataset_call_given_function(module, function)
        )
        inside = value if isinstance(function, ast.Module) else function
        if (
            user is not None
            and holds_ignored_label(module, inside)
            and by_id.isdisjoint(ast.walk(inside))
        ):
            yield node, user


def hand_masked_labels_in_linked_files(module: Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The values of a `labels` column with -100 in the files that run with this one, each with the
    place in this file that asks for those rows.
    """
    for part in module.self_and_files_run_together[1:]:
        by_id = {*maskings_of_pad_id(part)}
        for node, _ in label_writers_and_values(part):
            function = part.scopes.of[node].node
            if isinstance(function, ast.Module) or not holds_ignored_label(part, function):
                continue
            used = (
                _call_getting_rows_of_function(module, part, function)
                if by_id.isdisjoint(ast.walk(function))
                else None
            )
            if used is not None:
                yield node, used


def _call_getting_rows_of_function(
    module: Module, part: Module, function: ast.AST
) -> ast.AST | None:
    """The call in a file that gets rows from a function of another one: by `map`, or through what
    does that there.
    """
    if (mapped := _dataset_call_of_file_given_function(module, function)) is not None:
        return mapped
    if getattr(function, "name", None) == "__getitem__":
        maker = part.scopes.parent.get(function)
    else:
        mapped = _dataset_call_of_file_given_function(part, function)
        maker = outermost_function_around(part, mapped) if mapped is not None else None
    waiting = [maker]
    for maker in waiting:
        for call in module.flow.calls_of_function_or_class(maker) if maker is not None else ():
            if module.home(call) is module:
                return call
            if len(waiting) < MOST_CALLERS:
                waiting.append(outermost_function_around(module, call))
    return None


def outermost_function_around(module: Module, node: ast.AST) -> ast.AST | None:
    """The function or method, not one inside another, that a node stands in; None in the module's
    own code.
    """
    around = [
        p for p in module.parents(node) if isinstance(p, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return around[-1] if around else None


def label_writers_and_values(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Values of a `labels` column, with what writes them: a dictionary, `dict(labels=...)`,
    `x["labels"] = ...`.
    """
    for node in module.nodes(ast.Dict, ast.Call, ast.Assign):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "labels":
                    yield node, value
        elif isinstance(node, ast.Call):
            if module.flow.name(node.func) == "dict" and (
                labels := module.flow.call(node).keywords.get("labels")
            ):
                yield node, labels
        elif isinstance(node, ast.Assign):
            if (place := owner_and_column_read(module, node.targets[0])) is not None and place[
                1
            ] == "labels":
                yield node, node.value


def _dataset_call_given_function(module: Module, function: ast.AST) -> ast.AST | None:
    """The `map` or `from_generator` that a function is given to; a dataset's way to a row is used
    everywhere.
    """
    if getattr(function, "name", None) == "__getitem__":
        return module.tree
    return _dataset_call_of_file_given_function(module, function)


def _dataset_call_of_file_given_function(module: Module, function: ast.AST) -> ast.AST | None:
    """The `map` or `from_generator` of a file that gets a function; None where none does."""
    calls = [
        c for c in module.all_calls if c.method == "map" or c.named("datasets.*.from_generator")
    ]
    return next(
        (
            c.node
            for c in calls
            if (a := c.argument(0, "function")) is not None
            and module.flow.function_that_expression_names(a) is function
        ),
        None,
    )
