"""Texts of many rows that a script joins into one, encodes, and cuts into blocks, with nothing between that ends a row.

How it works: an encoding is followed back to `sep.join(texts)` or to a text that a loop adds rows to; its ids are cut
by a slice whose bounds a `range` with a step gives. The trade-off: where the file names an end token anywhere, the rows
may hold it, and nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.source.evidence.backward_slices import backward_slice
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

ENDS = re.compile(r"eos|</s>|<\|\w|sep_token|end_of_text|<end|\[SEP\]|bos", re.I)
"""Words of a file that may put an end between rows"""
END_TOKEN = re.compile(r"</s>|<\|\w+\|>|<eos>|<end_of_turn>")
ROW_FILES = (".jsonl", ".json", ".txt")
MAX_READ = 65_536
"""Bytes of a file of rows that are looked at"""


def packed_texts(module: Module) -> Iterator[Call]:
    """The calls that encode a text of many rows, whose ids are then cut into blocks."""
    if ENDS.search(module.text) or not _cuts_blocks(module) or _rows_hold_ends(module):
        return
    for call in module.all_calls:
        tokenizer = call.receiver if call.method == "encode" else call.node.func
        if not call.args or tokenizer is None or "tokenizer" not in module.flow.types(tokenizer):
            continue
        if _is_joined(module, call.args[0]):
            yield call


def _rows_hold_ends(module: Module) -> bool:
    """Do the rows that the file names hold an end token themselves, as far as they lie beside it?"""
    for node in module.nodes(ast.Constant):
        if not isinstance(node.value, str) or not node.value.endswith(ROW_FILES):
            continue
        try:
            with (Path(module.path).parent / node.value).open("rb") as file:
                start = file.read(MAX_READ).decode("utf-8", "replace")
        except (OSError, ValueError):
            continue
        if END_TOKEN.search(start):
            return True
    return False


def _is_joined(module: Module, text: ast.expr) -> bool:
    """Is a text made of many rows: joined, or added to in a loop?"""
    if isinstance(text, ast.Name):
        added = (
            node
            for node in module.nodes(ast.AugAssign)
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
        )
        for node in added:
            is_same = isinstance(node.target, ast.Name) and node.target.id == text.id
            in_loop = any(isinstance(around, ast.For) for around in module.parents(node))
            if (
                is_same
                and in_loop
                and _reads_row(node.value)
                and not _is_in_loop_of(module, text, node)
            ):
                return True
    for part in backward_slice(module, text):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            if part.func.attr == "join" and part.args and _reads_row_behind(module, part.args[0]):
                return True
    return False


def _is_in_loop_of(module: Module, text: ast.Name, added: ast.AugAssign) -> bool:
    """Is the text encoded in the loop that adds to it? Then it may be that of one row."""
    loops = {around for around in module.parents(added) if isinstance(around, ast.For)}
    return any(around in loops for around in module.parents(text))


def _reads_row(node: ast.AST) -> bool:
    """Does an expression read a column: `row["text"]`?"""
    return any(
        isinstance(part, ast.Subscript)
        and isinstance(part.slice, ast.Constant)
        and isinstance(part.slice.value, str)
        for part in ast.walk(node)
    )


def _reads_row_behind(module: Module, texts: ast.expr) -> bool:
    """Are joined texts those of many rows: a comprehension over rows, or the column of a data set?"""
    return any(
        isinstance(part, ast.ListComp | ast.GeneratorExp) and _reads_row(part.elt)
        for part in backward_slice(module, texts)
    ) or (isinstance(texts, ast.Subscript) and _reads_row(texts))


def _cuts_blocks(module: Module) -> bool:
    """Are ids cut by a range with a step: `ids[i : i + n] for i in range(0, len(ids), n)`?"""
    for node in module.nodes(ast.Subscript):
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
            continue
        lower, upper = node.slice.lower, node.slice.upper
        if not isinstance(lower, ast.Name) or not isinstance(upper, ast.BinOp):
            continue
        for origin in module.flow.origins(lower):
            made = origin.node
            if (
                isinstance(made, ast.Call)
                and ast.unparse(made.func) == "range"
                and len(made.args) == 3
            ):
                return True
    return False
