"""Finds where scripts hold all rows of a file as Python objects, in a list that the machine's
memory must have room for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

PARSERS = ("loads", "literal_eval")
LIST_READERS = (
    "datasets.Dataset.from_list",
    "datasets.Dataset.from_dict",
    "datasets.Dataset.from_pandas",
)
"""Calls that copy rows which Python holds already"""
WHOLE_READERS = ("json.load", "pandas.read_json", "pandas.read_csv", "pandas.read_parquet")
MIN_FILE_BYTES = 256 << 20
"""Of a file whose rows are worth a word: ten times as much is 2.5 GB of memory. Chosen, not measured"""
LOADER = "torch.utils.data.*DataLoader"


class HeldRows(NamedTuple):
    """A list of all rows."""

    node: ast.AST
    workers: int
    """Processes of a DataLoader that each copy what they read of it; 0 where there are none"""
    copies: bool
    """A data set is made of the list, so that both are there"""


def find_held_rows(module: Module) -> Iterator[HeldRows]:
    """Lists that a script fills with the parsed lines of a file, and tables that it reads whole for a data set."""
    workers = max((_loader_workers(module, call) for call in module.calls(LOADER)), default=0)
    copies = any(module.calls(*LIST_READERS))
    lists = [*_lists_of_parsed_lines(module), *_lists_filled_by_loops(module)]
    for node in [*lists, *_tables_read_whole(module)] if copies else lists:
        yield HeldRows(node, workers, copies)


def _lists_of_parsed_lines(module: Module) -> Iterator[ast.AST]:
    """The lists that hold each parsed line of a file: `[json.loads(line) for line in open(path)]`."""
    for node in module.nodes(ast.ListComp):
        source = node.generators[0].iter
        if (
            _parses_line(node.elt)
            and _iterates_over_file_lines(source)
            and not _is_small_local_file(module, source)
        ):
            yield node


def _lists_filled_by_loops(module: Module) -> Iterator[ast.AST]:
    """The lists that a loop fills with the parsed lines of a file: `rows.append(...)`."""
    for call in module.methods("append"):
        loop = next((one for one in module.parents(call.node) if isinstance(one, ast.For)), None)
        if (
            loop is not None
            and _does_loop_parse_file(module, loop)
            and not _is_small_local_file(module, loop.iter)
        ):
            yield call.node


def _tables_read_whole(module: Module) -> Iterator[ast.AST]:
    """The calls that read a whole table: `json.load(file)` and `pandas.read_json(path)`."""
    for call in module.calls(*WHOLE_READERS):
        if "chunksize" not in call.keywords and not _is_small_local_file(module, call.node):
            yield call.node


def _parses_line(node: ast.AST) -> bool:
    """Does an expression parse a line?"""
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(last_name_of_called(call) in PARSERS for call in calls)


def _iterates_over_file_lines(iterated: ast.expr) -> bool:
    """Does a loop go over the lines of a file: `open(...)`, `lines`, `path.read_text().splitlines()`?"""
    text = ast.unparse(iterated)
    return "open(" in text or "splitlines" in text or "readlines" in text


def _does_loop_parse_file(module: Module, loop: ast.For) -> bool:
    """Does a loop parse each line of a file that was opened around it, or in its head?"""
    if not any(map(_parses_line, loop.body)):
        return False
    around = [one for one in module.parents(loop) if isinstance(one, ast.With)]
    items = [item for block in around for item in block.items]
    opened = {
        ast.unparse(item.optional_vars)
        for item in items
        if item.optional_vars is not None and _iterates_over_file_lines(item.context_expr)
    }
    return _iterates_over_file_lines(loop.iter) or ast.unparse(loop.iter) in opened


def _is_small_local_file(module: Module, read: ast.expr) -> bool:
    """Is the file here that an expression names or opens, and small?"""
    texts = [part.value for part in ast.walk(read) if isinstance(part, ast.Constant)]
    for text in texts:
        path = Path(module.path).parent / text if isinstance(text, str) and "." in text else None
        try:
            if path is not None and path.is_file():
                return path.stat().st_size < MIN_FILE_BYTES
        except (OSError, ValueError):
            continue
    return False


def _loader_workers(module: Module, call: Call) -> int:
    """The processes of a DataLoader; 0 where it has none, or their number is not known."""
    value = module.flow.value(call.keywords.get("num_workers"))
    return value if type(value) is int else 0
