"""Finds whether the prompts of a training are lists of messages, by the code that makes the rows or by their file."""

from __future__ import annotations

import ast

from truetune.checks.source.evidence.scored_rows import rows_with_column_named_or_beside
from truetune.source.parsed_source_file import Module

PROMPT = "prompt"


def prompts_that_are_message_lists(module: Module) -> ast.expr | None:
    """The messages that the script itself gives as the prompt of every row; None where it gives another, or none."""
    prompts = _prompts_made(module)
    is_known = bool(prompts) and all(_is_written_messages(module, one) for one in prompts)
    return prompts[0] if is_known else None


def are_prompts_messages(module: Module) -> bool:
    """Are the prompts certainly lists of messages: made so by the script, or read so and not replaced?"""
    if prompts_that_are_message_lists(module) is not None:
        return True
    rows = rows_with_column_named_or_beside(module, PROMPT)
    if rows is None or not all(isinstance(one[PROMPT], list) for one in rows.rows):
        return False
    return rows.source == "this file" or not _replaces_prompts(module)


def _replaces_prompts(module: Module) -> bool:
    """Does the script put something in the place of the prompts that it reads?"""
    if _prompts_made(module):
        return True
    return any(
        isinstance(node.ctx, ast.Store)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == PROMPT
        for part in module.self_and_files_run_together
        for node in part.nodes(ast.Subscript)
    )


def _prompts_made(module: Module) -> list[ast.expr]:
    """What the script writes as the prompt of a row: `{"prompt": ...}`."""
    return [
        value
        for part in module.self_and_files_run_together
        for node in part.nodes(ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == PROMPT
    ]


def _is_written_messages(module: Module, value: ast.expr) -> bool:
    """Is the value a list of messages that is written out in the code?"""
    made = [origin.node for origin in module.flow.origins(value)]
    return bool(made) and all(
        isinstance(one, ast.List)
        and bool(one.elts)
        and all(isinstance(part, ast.Dict) and _has_role_key(part) for part in one.elts)
        for one in made
    )


def _has_role_key(message: ast.Dict) -> bool:
    """Has a dictionary the key of a message?"""
    return any(isinstance(key, ast.Constant) and key.value == "role" for key in message.keys)
