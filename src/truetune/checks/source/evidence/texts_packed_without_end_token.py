"""Finds texts of many rows that a script joins into one, encodes and cuts into blocks, without an
end token after each row.

How it works: an encoding is followed back to `sep.join(texts)` or to a text that a loop adds rows
to; its ids are cut by a slice whose bounds a `range` with a step gives. The trade-off: where the
file names an end token anywhere, the rows may hold it, and nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

ENDS = re.compile(r"eos|</s>|<\|\w|sep_token|end_of_text|<end|\[SEP\]|bos", re.I)
"""Words of a file that may put an end between rows"""
END_TOKEN = re.compile(r"</s>|<\|\w+\|>|<eos>|<end_of_turn>")
ROW_FILES = (".jsonl", ".json", ".txt")
MAX_READ = 65_536
"""Bytes of a file of rows that are read. Chosen, not measured: many rows, and quick"""


def encodings_of_joined_texts_cut_into_blocks(module: Module) -> Iterator[Call]:
    """The calls that encode a text of many rows, whose ids are then cut into blocks."""
    if (
        ENDS.search(module.text)
        or not _cuts_ids_into_blocks(module)
        or _named_row_files_hold_end_token(module)
    ):
        return
    for call in module.all_calls:
        tokenizer = call.receiver if call.method == "encode" else call.node.func
        if not call.args or tokenizer is None or "tokenizer" not in module.flow.types(tokenizer):
            continue
        if _is_made_of_many_rows(module, call.args[0]):
            yield call


def _named_row_files_hold_end_token(module: Module) -> bool:
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


def _is_made_of_many_rows(module: Module, text: ast.expr) -> bool:
    """Is a text made of many rows: joined, or added to in a loop?"""
    if isinstance(text, ast.Name) and _loop_adds_rows(module, text):
        return True
    for part in backward_slice(module, text):
        if isinstance(part, ast.Call) and last_name_of_called(part) == "join" and part.args:
            if _holds_texts_of_rows(module, part.args[0]):
                return True
    return False


def _loop_adds_rows(module: Module, text: ast.Name) -> bool:
    """Does a loop add the text of a row to a name, which is encoded after the loop?"""
    for added in module.expressions_added_to_variable(text):
        loops = {around for around in module.parents(added) if isinstance(around, ast.For)}
        # `append` fills a list, and so does `+= [row["text"]]`: those rows are encoded apart.
        is_text = isinstance(module.scopes.parent.get(added), ast.AugAssign) and not isinstance(
            added, ast.List | ast.Tuple | ast.ListComp
        )
        # Encoded in the loop that adds to it, it may be the text of one row.
        is_encoded_after = bool(loops) and loops.isdisjoint(module.parents(text))
        if is_text and is_encoded_after and _reads_column(added):
            return True
    return False


def _reads_column(node: ast.AST) -> bool:
    """Does an expression read a column: `row["text"]`?"""
    return any(
        isinstance(part, ast.Subscript)
        and isinstance(part.slice, ast.Constant)
        and isinstance(part.slice.value, str)
        for part in ast.walk(node)
    )


def _holds_texts_of_rows(module: Module, texts: ast.expr) -> bool:
    """Are joined texts those of many rows: a comprehension over rows, or the column of a data set?"""
    return any(
        isinstance(part, ast.ListComp | ast.GeneratorExp) and _reads_column(part.elt)
        for part in backward_slice(module, texts)
    ) or (isinstance(texts, ast.Subscript) and _reads_column(texts))


def _cuts_ids_into_blocks(module: Module) -> bool:
    """Are ids cut by a range with a step: `ids[i : i + n] for i in range(0, len(ids), n)`?"""
    for node in module.nodes(ast.Subscript):
        bounds = node.slice
        if not isinstance(bounds, ast.Slice) or not isinstance(bounds.upper, ast.BinOp):
            continue
        if isinstance(bounds.lower, ast.Name) and _is_stepped_range_variable(module, bounds.lower):
            return True
    return False


def _is_stepped_range_variable(module: Module, name: ast.Name) -> bool:
    """Does a name run through a `range` with a step?"""
    ranges = [origin.node for origin in module.flow.origins(name)]
    return any(
        isinstance(one, ast.Call) and last_name_of_called(one) == "range" and len(one.args) == 3
        for one in ranges
    )
