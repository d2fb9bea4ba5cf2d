"""Finds windows that a loop moves over one long text, as for a perplexity, where tokens of two
windows count twice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.label_masking_and_padding import holds_ignored_label
from truetune.source.parsed_source_file import Module


class OverlappingWindow(NamedTuple):
    """A model that is given windows which overlap, each with all of its ids as labels."""

    loop: ast.For
    call: ast.Call


def overlapping_windows(module: Module) -> Iterator[OverlappingWindow]:
    """Loops over `range(0, length, stride)` whose windows are longer than the stride, without -100
    in the labels.
    """
    for loop in module.nodes(ast.For):
        step = _step_of_range(loop)
        start = loop.target.id if isinstance(loop.target, ast.Name) else None
        if step is None or start is None or holds_ignored_label(module, loop):
            continue
        widths = list(_window_widths(loop, start))
        if not widths or not all(
            _is_window_wider_than_step(module, width, step) for width in widths
        ):
            continue
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and _are_labels_the_input_ids(node):
                yield OverlappingWindow(loop, node)
                break


def _step_of_range(loop: ast.For) -> ast.expr | None:
    """The third argument of the `range` that a loop goes over, with or without a progress bar."""
    calls = (node for node in ast.walk(loop.iter) if isinstance(node, ast.Call))
    ranges = (one for one in calls if isinstance(one.func, ast.Name) and one.func.id == "range")
    return next((one.args[2] for one in ranges if len(one.args) == 3), None)


def _window_widths(loop: ast.For, start: str) -> Iterator[ast.expr]:
    """What is added to the start of a window where it is cut out: `window` in `begin + window`."""
    for node in ast.walk(loop):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            if isinstance(node.left, ast.Name) and node.left.id == start:
                yield node.right


def _is_window_wider_than_step(module: Module, width: ast.expr, step: ast.expr) -> bool:
    """Is a window longer than the step? Names apart from each other are two settings, of which the
    step is smaller.
    """
    values = module.flow.value(width), module.flow.value(step)
    if isinstance(values[0], int) and isinstance(values[1], int):
        return values[0] > values[1]
    return isinstance(width, ast.Name | ast.Attribute) and ast.unparse(width) != ast.unparse(step)


def _are_labels_the_input_ids(call: ast.Call) -> bool:
    """Is a model given as labels just what it is given as ids: `model(chunk, labels=chunk)`?"""
    labels = next((one.value for one in call.keywords if one.arg == "labels"), None)
    ids = next((one.value for one in call.keywords if one.arg == "input_ids"), None)
    ids = call.args[0] if ids is None and call.args else ids
    if labels is None or ids is None:
        return False
    spelled = ast.unparse(labels).removesuffix(".clone()")
    return spelled == ast.unparse(ids)
