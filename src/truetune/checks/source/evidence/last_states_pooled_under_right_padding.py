"""Finds scripts that take the last position for the embedding of a text, though their tokenizer pads on the right.

How it works: `hidden[:, -1]` is followed back to the `last_hidden_state` of a model, through helpers and their
parameters. It is judged only where the code sets each padding side to right, pads several texts, and never speaks of
the left side. So it also reads batches that a collator makes, which a symbolic run does not follow.

The trade-off: a script that leaves the side to the tokenizer is not judged here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.source.evidence.pad_token_settings_and_edits_that_change_them import (
    padding_sides_set,
)
from truetune.checks.source.evidence.pads_read_or_pooled_as_tokens import (
    ENCODERS,
    LastPositionRead,
)
from truetune.source.parsed_source_file import Module

PADS = (True, "longest", "max_length")


def last_states_pooled_under_right_padding(module: Module) -> Iterator[LastPositionRead]:
    """The reads of the last position of hidden states in a script that pads on the right alone."""
    if not _pads_on_the_right_alone(module):
        return
    padding = next(_calls_that_pad(module), None)
    if padding is None:
        return
    for node in module.nodes(ast.Subscript):
        is_conditional = any(isinstance(one, ast.If | ast.IfExp) for one in module.parents(node))
        if _is_last_position(node) and not is_conditional and _are_states(module, node.value):
            yield LastPositionRead(node, padding, is_right=True)


def _pads_on_the_right_alone(module: Module) -> bool:
    """Is each padding side of the code set to right, and the other side never named?"""
    parts = module.self_and_files_run_together
    sides = [part.flow.value(side) for part in parts for side in padding_sides_set(part)]
    if not sides or any(side != "right" for side in sides):
        return False
    return not any("left" in part.text or ENCODERS.search(part.text) for part in parts)


def _calls_that_pad(module: Module) -> Iterator[ast.Call]:
    """The calls of tokenizers that pad several texts."""
    for call in module.all_calls:
        padding = call.keywords.get("padding")
        texts = call.argument(0, "text")
        if padding is None or texts is None or module.flow.value(padding) not in PADS:
            continue
        if not isinstance(module.flow.value(texts), str):
            yield call.node


def _is_last_position(node: ast.Subscript) -> bool:
    """Is it `x[:, -1]`, also `x[:, -1, :]`?"""
    keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    if len(keys) < 2 or ast.unparse(keys[1]) != "-1":
        return False
    others = [keys[0], *keys[2:]]
    return all(isinstance(key, ast.Slice) and ast.unparse(key) == ":" for key in others)


def _are_states(module: Module, node: ast.expr) -> bool:
    """Does an expression stand for the hidden states of a model, wherever it comes from?"""
    origins = [origin.node for origin in module.flow.origins(node)]
    return bool(origins) and all(map(_is_read_of_states, origins))


def _is_read_of_states(node: ast.AST) -> bool:
    """Is it `output.last_hidden_state`, or one layer of `output.hidden_states`?"""
    if isinstance(node, ast.Subscript):
        node = node.value
        return isinstance(node, ast.Attribute) and node.attr == "hidden_states"
    return isinstance(node, ast.Attribute) and node.attr == "last_hidden_state"
