"""The columns of rows that scripts beside them read by name: `row["context"]`, `row.get("context")`, `{context}`.

The trade-off: a name is a text, and what it is read of is not followed. A script that reads another file's column of
that name counts too: then a rule says nothing of a column where it might have.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from truetune.errors import TruetuneError
from truetune.source.find_source_files import find_source_files
from truetune.source.parsed_source_file import Module, read_module

PLACEHOLDER = re.compile(r"(?<!\{)\{([A-Za-z_]\w{0,60})\}(?!\})")
"""A field of a text that `str.format` fills"""
READING_CALLS = ("operator.itemgetter", "itemgetter")
MAX_SCRIPTS = 50
"""Scripts that are read for names: each is parsed whole"""


def columns_read_by_scripts(sources: Iterable[str]) -> frozenset[str]:
    """The names under which scripts read items.

    Args:
        sources: Python files and notebooks, and folders of them.
    """
    names: set[str] = set()
    for number, (_, file) in enumerate(find_source_files(list(sources))):
        if number >= MAX_SCRIPTS:
            break
        try:
            names.update(names_read(read_module(file)))
        except TruetuneError:
            continue  # what can't be parsed is told where sources are judged
    return frozenset(names)


def names_read(module: Module) -> Iterator[str]:
    """The texts by which a file reads items."""
    for item in module.nodes(ast.Subscript):
        if isinstance(item.ctx, ast.Load) and isinstance(item.slice, ast.Constant):
            if isinstance(item.slice.value, str):
                yield item.slice.value
    for call in module.nodes(ast.Call):
        yield from _names_in_call(module, call)


def _names_in_call(module: Module, call: ast.Call) -> Iterator[str]:
    """The names that a call reads: `row.get("x")`, `itemgetter("x")`, `"{x}".format(**row)`."""
    function = call.func
    is_get = isinstance(function, ast.Attribute) and function.attr == "get"
    is_getter = isinstance(function, ast.Name) and function.id in READING_CALLS
    if is_get or is_getter:
        for given in call.args[: 1 if is_get else None]:
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                yield given.value
    if isinstance(function, ast.Attribute) and function.attr in ("format", "format_map"):
        spreads = any(keyword.arg is None for keyword in call.keywords) or call.args
        template = module.flow.value(function.value)
        if spreads and isinstance(template, str):
            yield from PLACEHOLDER.findall(template)
