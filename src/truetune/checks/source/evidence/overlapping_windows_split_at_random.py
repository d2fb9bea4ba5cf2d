"""Finds texts that a script cuts into overlapping windows and then divides at random, so that both
sides share text.

How it works: from what is divided (`random_split`, `train_test_split`) back through names,
functions, classes and functions that `map` is given, to what cuts: slices in steps that are smaller
than they are long, a tokenizer with `return_overflowing_tokens` and a stride, a text splitter with
an overlap.

The trade-off: lengths have to be numbers of the files; a division that does not shuffle shares one
window at most, and is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.parsed_source_file import Module

RANDOM_SPLITTERS = (
    "sklearn.model_selection.train_test_split",
    "torch.utils.data.random_split",
    "torch.utils.data.dataset.random_split",
)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LOOPS = (ast.For, ast.ListComp, ast.GeneratorExp)


class DividedWindows(NamedTuple):
    """A division of overlapping windows."""

    division: ast.AST
    cut: ast.AST
    """What cuts the windows"""
    what: str


class WindowCut(NamedTuple):
    """What cuts a text into windows, and by how much they overlap."""

    node: ast.AST
    what: str


def random_divisions_of_windows(module: Module) -> Iterator[DividedWindows]:
    """The random divisions of a file whose rows are windows that overlap."""
    for division, rows in _random_divisions(module):
        cut = next(_window_cuts_of_rows(module, rows), None)
        if cut is not None:
            yield DividedWindows(division, cut.node, cut.what)


def _random_divisions(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The random divisions of a file, with what they divide."""
    for call in module.calls(*RANDOM_SPLITTERS):
        if call.args and module.flow.value(call.keywords.get("shuffle")) is not False:
            yield call.node, call.args[0]
    for call in module.methods("train_test_split"):
        shuffles = module.flow.value(call.keywords.get("shuffle")) is not False
        if call.receiver is not None and shuffles and not call.names:
            yield call.node, call.receiver


def _window_cuts_of_rows(module: Module, rows: ast.expr) -> Iterator[WindowCut]:
    """What cuts the rows into overlapping windows, on their way."""
    seen: set[ast.AST] = set()
    for part in backward_slice(module, rows):
        blocks = [part, *_definitions_used(module, part)]
        for block in blocks:
            if block in seen:
                continue
            seen.add(block)
            inner = ast.walk(block) if isinstance(block, DEFINITIONS) else (block,)
            for node in inner:
                cut = _window_cut_of_node(module, node)
                if cut is not None:
                    yield cut


def _definitions_used(module: Module, part: ast.AST) -> Iterator[ast.AST]:
    """The functions and classes of the files that a call runs, or hands to `map`."""
    if not isinstance(part, ast.Call):
        return
    for used in (part.func, *part.args):
        if isinstance(used, ast.Name | ast.Attribute):
            for origin in module.flow.origins(used):
                if isinstance(origin.node, DEFINITIONS) and not origin.path:
                    yield origin.node


def _window_cut_of_node(module: Module, node: ast.AST) -> WindowCut | None:
    """The overlapping cut that a node is; None for any other."""
    if isinstance(node, LOOPS):
        return _window_cut_of_slices(module, node)
    if not isinstance(node, ast.Call):
        return None
    call = module.flow.call(node)
    stride = module.flow.value(call.keywords.get("stride"))
    overflows = module.flow.value(call.keywords.get("return_overflowing_tokens")) is True
    if overflows and type(stride) is int and stride > 0:
        return WindowCut(
            node, f"each window begins with the last {stride:,} tokens of the one before"
        )
    overlap = module.flow.value(call.keywords.get("chunk_overlap"))
    if type(overlap) is int and overlap > 0:
        return WindowCut(node, f"each part begins with the last {overlap:,} of the one before")
    return None


def _window_cut_of_slices(module: Module, loop: ast.AST) -> WindowCut | None:
    """The overlapping cut by slices in a comprehension or loop: `[ids[i : i + 1024] for i in
    range(0, n, 256)]`; None otherwise.
    """
    generator = loop.generators[0] if isinstance(loop, ast.ListComp | ast.GeneratorExp) else loop
    if not isinstance(generator, ast.comprehension | ast.For):
        return None
    start = generator.target.id if isinstance(generator.target, ast.Name) else ""
    step = _step_of_range(module, generator.iter)
    if not start or step is None:
        return None
    for part in ast.walk(loop):
        length = _length_of_slice(module, part, start)
        if length is not None and length > step:
            return WindowCut(part, f"windows of {length:,} begin every {step:,}")
    return None


def _step_of_range(module: Module, iterated: ast.expr) -> int | None:
    """The step of `range(a, b, step)`, with or without a progress bar."""
    for part in ast.walk(iterated):
        if isinstance(part, ast.Call) and module.flow.name(part.func) == "range":
            step = module.flow.value(part.args[2]) if len(part.args) == 3 else None
            return step if type(step) is int and step > 0 else None
    return None


def _length_of_slice(module: Module, part: ast.AST, start: str) -> int | None:
    """The length of a slice from a start of this name: that of `x[i : i + length]`; None otherwise."""
    if not isinstance(part, ast.Slice) or part.lower is None or part.upper is None:
        return None
    upper = part.upper
    is_sum = isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add)
    if not is_sum or not isinstance(upper, ast.BinOp) or ast.unparse(part.lower) != start:
        return None
    if ast.unparse(upper.left) != start:
        return None
    length = module.flow.value(upper.right)
    return length if type(length) is int else None
