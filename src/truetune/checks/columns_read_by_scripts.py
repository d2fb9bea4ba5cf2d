"""Finds the columns of rows that scripts read by name: `row["context"]`, `row.get("context")`,
`{context}`.

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
            names.update(names_read_from_items(read_module(file)))
        except TruetuneError:
            continue  # what can't be parsed is told where sources are judged
    return frozenset(names)


def names_read_from_items(module: Module) -> Iterator[str]:
    """The texts by which a file reads items: `row["x"]`, `row.get("x")`, `{x}` in a format."""
    for item in module.nodes(ast.Subscript):
        if isinstance(item.ctx, ast.Load) and isinstance(item.slice, ast.Constant):
            if isinstance(item.slice.value, str):
                yield item.slice.value
    for call in module.nodes(ast.Call):
        yield from _item_names_read_by_call(module, call)


def _item_names_read_by_call(module: Module, call: ast.Call) -> Iterator[str]:
    """The names that a call reads: `row.get("x")`, `itemgetter("x")`, `"{x}".format(**row)`."""
    function = call.func
    if isinstance(function, ast.Name) and function.id in READING_CALLS:
        yield from _string_literal_arguments(call.args)
    if not isinstance(function, ast.Attribute):
        return
    if function.attr == "get":
        yield from _string_literal_arguments(call.args[:1])
    elif function.attr in ("format", "format_map"):
        spreads = any(keyword.arg is None for keyword in call.keywords) or call.args
        template = module.flow.value(function.value)
        if spreads and isinstance(template, str):
            yield from PLACEHOLDER.findall(template)


def _string_literal_arguments(given: Iterable[ast.expr]) -> Iterator[str]:
    """The arguments of a call that are plain texts."""
    for argument in given:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value
