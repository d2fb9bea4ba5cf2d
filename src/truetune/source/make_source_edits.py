"""Makes edits of source text that leave everything else as it is: replaces, inserts and deletes by
the syntax tree.

How it works: a change is a span of characters and its new text, found by the positions of the syntax tree. So
comments, quotes and line breaks that a change is not about cannot be lost. In a notebook the span is carried over into
the JSON.

The trade-off: every edit has to find commas, parentheses and indentation in the text by itself. Where that is not
certain (a generator alone in a call, a statement that shares its line, a node of another file) there is no change, and
the finding has no fix.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import NamedTuple

from truetune.source import notebook_code_cells
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

PARAMETERS_END = re.compile(r"\)\s*(?:->|:)")
"""Where the parameters of a `def` end"""


# Sorted by position when they are applied, so a change is a tuple.
class Change(NamedTuple):
    """Characters `start` to `end` of `Module.text` become `text`."""

    start: int
    end: int
    text: str


Changes = tuple[Change, ...]


def replace_expression(module: Module, node: ast.AST, text: str) -> Changes:
    """Changes that put another expression in the place of one, inside the parentheses around it.
    Empty, as from all of these functions, if the node is in another file.

    Nothing, as in all of these, where the node stands in another file.
    """
    if module.home(node) is not module:
        return ()
    return (Change(*module.span(node), text),)


def set_keyword(module: Module, call: Call, name: str, text: str) -> Changes:
    """Changes that give a call's keyword argument this value: replaced if the call gives it,
    otherwise added after the last argument. Empty if it comes from a `**` dictionary, or if a
    generator is the only argument.

    Nothing where it comes from a `**` dictionary, or where a generator stands alone in the call.
    """
    keyword = next((k for k in call.node.keywords if k.arg == name), None)
    if keyword is not None:
        return replace_expression(module, keyword.value, text)
    return () if name in call.keywords else append_argument(module, call.node, f"{name}={text}")


def append_argument(module: Module, call: ast.Call, text: str) -> Changes:
    """Changes that add an argument after the last one, on its own line if the last one has its own."""
    if module.home(call) is not module:
        return ()
    close = module.span(call)[1] - 1
    arguments = [*call.args, *(k.value for k in call.keywords)]
    if not arguments:
        return (Change(close, close, text),)
    if len(arguments) == 1 and isinstance(arguments[0], ast.GeneratorExp):
        return ()
    last = max(arguments, key=lambda a: module.span(a)[1])
    begin, end = module.span(last)
    # The node of a keyword argument is its value; the line begins with its name.
    begin = next((module.span(k)[0] for k in call.keywords if k.value is last), begin)
    return _insert_after_last_item(module, begin, end, close, text)


def append_parameter_with_default(module: Module, function: ast.FunctionDef, text: str) -> Changes:
    """Changes that add a parameter with a default after the last one; empty if `*args` or
    `**kwargs` come last.
    """
    arguments = function.args
    # Behind `*args` a parameter is keyword-only, which calls by position do not fit; behind `**kwargs` none may stand.
    takes_any = arguments.vararg or arguments.kwarg or not (arguments.args or arguments.kwonlyargs)
    if takes_any or module.home(function) is not module:
        return ()
    last = max((*arguments.args, *arguments.kwonlyargs), key=lambda a: module.span(a))
    parts: list[ast.expr | ast.arg] = [
        last,
        *arguments.defaults,
        *(d for d in arguments.kw_defaults if d is not None),
    ]
    begin, end = module.span(last)[0], max(module.span(part)[1] for part in parts)
    close = end
    while not PARAMETERS_END.match(module.text, close):
        close = _find_line_end(module.text, close) if module.text[close] == "#" else close + 1
    return _insert_after_last_item(module, begin, end, close, text)


def _insert_after_last_item(module: Module, begin: int, end: int, close: int, text: str) -> Changes:
    """`text` behind the last item of a list in parentheses, which stands from `begin` to `end`."""
    source, newline = module.text, module.lines.newline
    comma, end = _has_trailing_comma_and_last_sign_end(source, end, close)
    # What stands before the item in its line: only indentation, where it begins the line.
    head = source[module.lines.starts[module.lines.place(begin)[0] - 1] : begin].rstrip("*(")
    if head.strip() or module.lines.place(close)[0] == module.lines.place(end)[0]:
        return (Change(end, end, f" {text}" if comma else f", {text}"),)
    # From here on each item has a line of its own. A comment behind the last one must stay behind it, so the new line
    # comes after the comment, and a missing comma before it.
    line_end = _find_line_end(source, end)
    if comma:
        return (Change(line_end, line_end, f"{newline}{head}{text},"),)
    if not source[end:line_end].strip():
        return (Change(line_end, line_end, f",{newline}{head}{text}"),)
    return (Change(end, end, ","), Change(line_end, line_end, f"{newline}{head}{text}"))


def _has_trailing_comma_and_last_sign_end(
    source: str, position: int, close: int
) -> tuple[bool, int]:
    """Is there a comma behind the last argument, and where does the last sign before the closing parenthesis end?"""
    comma, end = False, position
    while position < close:
        sign = source[position]
        if sign == "#":  # a comma or parenthesis in a comment is none
            position = _find_line_end(source, position)
            continue
        position += 1
        if sign in ",)":
            comma, end = comma or sign == ",", position
    return comma, end


def _find_line_end(source: str, position: int) -> int:
    """Where the line of a position ends, before its line break."""
    match = re.compile(r"[\r\n]").search(source, position)
    return match.start() if match else len(source)


def delete_statement(module: Module, statement: ast.stmt) -> Changes:
    """Changes that delete a statement with its lines; `pass` replaces it if it is the only one, or
    shares its line.
    """
    if module.home(statement) is not module:
        return ()
    start, end = module.span(statement)
    first = module.lines.starts[module.lines.place(start)[0] - 1]
    last = _find_line_end(module.text, end)
    alone = not module.text[first:start].strip() and re.fullmatch(
        r"[ \t]*(#[^\r\n]*)?", module.text[end:last]
    )
    # Removing the line would take other statements with it, or leave a block empty.
    if not alone or _is_only_statement(module, statement):
        return (Change(start, end, "pass"),)
    match = re.compile(r"\r\n|\r|\n").match(module.text, last)
    return (Change(first, match.end() if match else last, ""),)


def _is_only_statement(module: Module, statement: ast.stmt) -> bool:
    """Is it alone in its block, so that the block would be empty without it? A file may be."""
    parent = module.scopes.parent[statement]
    bodies = (
        value
        for _, value in ast.iter_fields(parent)
        if isinstance(value, list) and statement in value
    )
    return len(next(bodies)) == 1 and not isinstance(parent, ast.Module)


def insert_statements_after(module: Module, statement: ast.stmt, *lines: str) -> Changes:
    """Changes that add statements after one, with its indentation; empty if it shares its line with
    others.
    """
    return _insert_lines_before_or_after(module, statement, lines, behind=True)


def insert_statements_before(module: Module, statement: ast.stmt, *lines: str) -> Changes:
    """Changes that add statements before one, with its indentation; empty if it shares its line
    with others.
    """
    return _insert_lines_before_or_after(module, statement, lines, behind=False)


def _span_text_as_file_has_it(module: Module, start: int, end: int) -> str:
    """The text of a span as the file has it; in a notebook, the code may be what IPython makes of
    its cells.
    """
    if not module.cells:
        return module.text[start:end]
    cell = notebook_code_cells.find_cell(module.cells, start)
    return cell.text[start - cell.start : end - cell.start]


def _insert_lines_before_or_after(
    module: Module, statement: ast.stmt, lines: tuple[str, ...], *, behind: bool
) -> Changes:
    """Lines before or behind a statement, with its indentation; nothing where it shares its line."""
    if module.home(statement) is not module:
        return ()
    start, end = module.span(statement)
    first = module.lines.starts[module.lines.place(start)[0] - 1]
    indent, newline = _span_text_as_file_has_it(module, first, start), module.lines.newline
    last = _find_line_end(module.text, end)
    if indent.strip() or not re.fullmatch(r"[ \t]*(#[^\r\n]*)?", module.text[end:last]):
        return ()
    if behind:
        return (Change(last, last, "".join(newline + indent + line for line in lines)),)
    return (Change(first, first, "".join(indent + line + newline for line in lines)),)


def convert_changes_to_file_positions(module: Module, changes: Iterable[Change]) -> Changes:
    """The changes of the code's text as changes of the file's text."""
    if not module.cells:
        return tuple(changes)
    # A file that escapes all other characters keeps to that; nbformat writes both forms.
    ascii_only = module.file_text.isascii()
    in_file = []
    for change in changes:
        cell = notebook_code_cells.find_cell(module.cells, change.start)
        start, end = (
            cell.spots[min(at - cell.start, len(cell.text))] for at in (change.start, change.end)
        )
        in_file.append(
            Change(
                start,
                end,
                notebook_code_cells.encode_as_json_source(cell, change.text, ascii_only=ascii_only),
            )
        )
    return tuple(in_file)


def apply_changes(text: str, changes: Iterable[Change]) -> str:
    """The text after all changes, none of which may overlap. Raises ValueError."""
    parts, position = [], 0
    for start, end, new in sorted(changes):
        if start < position:
            raise ValueError("changes overlap")
        parts += [text[position:start], new]
        position = end
    return "".join((*parts, text[position:]))
