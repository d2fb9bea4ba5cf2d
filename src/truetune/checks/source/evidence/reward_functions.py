"""Finds the reward functions of GRPO by their form: functions whose parameter `completions` holds
the answers of a batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.parsed_source_file import Module

COMPLETIONS = "completions"


def reward_functions_with_kwargs(module: Module) -> Iterator[ast.FunctionDef]:
    """The functions that TRL can call with the completions of a batch and all columns of its rows:
    those with **kwargs.

    A function of an evaluation may take completions too, and the references in the order of a file.
    """
    if COMPLETIONS not in module.text:
        return
    for function in module.nodes(ast.FunctionDef):
        names = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
        if COMPLETIONS in names and function.args.kwarg is not None:
            yield function


def loops_over_completions(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets and iterables of the loops and comprehensions over the completions."""
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.comprehension) and any(
            isinstance(part, ast.Name) and part.id == COMPLETIONS for part in ast.walk(node.iter)
        ):
            yield node.target, node.iter


def call_of_plain_function(iterable: ast.expr, name: str) -> ast.Call | None:
    """The call of a plain function of that name, `enumerate(completions)`; None where it is none."""
    if not isinstance(iterable, ast.Call) or not isinstance(iterable.func, ast.Name):
        return None
    return iterable if iterable.func.id == name else None


def completion_names(target: ast.expr, iterable: ast.expr) -> Iterator[str]:
    """The names that hold one completion each, in `for c in completions`, with enumerate or with
    zip.
    """
    if isinstance(iterable, ast.Name) and isinstance(target, ast.Name):
        yield target.id
    if not isinstance(target, ast.Tuple):
        return
    counted, joined = (
        call_of_plain_function(iterable, "enumerate"),
        call_of_plain_function(iterable, "zip"),
    )
    if counted is not None and len(target.elts) == 2:
        yield from completion_names(target.elts[1], counted.args[0])
    for one, given in zip(target.elts, joined.args if joined is not None else (), strict=False):
        is_completions = isinstance(given, ast.Name) and given.id == COMPLETIONS
        if is_completions and isinstance(one, ast.Name):
            yield one.id
