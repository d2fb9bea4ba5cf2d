"""Reads the code cells of a notebook as one text, and maps places in it back to the notebook's
JSON.

How it works: the JSON is parsed once to know that it is a notebook, and scanned once by tokens to know where each
character of a cell's source stands in the file. Cells are joined to one module, because names of one cell are used in
the next. What only IPython understands (magics, `!` commands, indented cells) is replaced by Python of the same
length, so a place in the code is a place in the cell.

The trade-off: a scanner of our own beside the JSON parser, since no parser tells where a string stood. In return a fix
changes only the characters it is about, and the rest of the file (outputs, order of keys, indentation) stays as it is.
Cells are read in the order of the file, not in the order in which they were run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from truetune.errors import DataError
from truetune.parsing.input_limits import NOTEBOOK
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.source.decode_source_and_convert_positions import LineIndex

# A string, a sign of the structure, or a run of anything else (a number, true, false, null).
JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.S)
# A surrogate pair is one character of the text, though it is written as two escapes; so it comes first.
JSON_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.S
)
PYTHON_MAGICS = frozenset(
    {"time", "timeit", "capture", "prun", "python", "python3", "py3", "debug", "wandb"}
)
"""Cell magics (`%%time`) whose cell is Python; a cell of any other (`%%bash`, `%%html`) is none"""
# `%matplotlib inline`, `!pip install x`, `?name`, `name?`
MAGIC_LINE = re.compile(
    r"^(?P<indent>[ \t\f]*)(?:(?:%%?[A-Za-z]|[!?])[^\n]*|[\w.\[\]]+\?\??[ \t]*)$"
)
AUTOMAGIC_CELL = re.compile(
    r"\s*(?:pip|conda|mamba|micromamba|uv|cd|ls|ll|pwd|cat|cp|mv|rm|mkdir|rmdir|env|man|run|load_ext|reload_ext|matplotlib"
    r"|who|whos|history|reset|alias|config|pylab)(?:[ \t][^\n]*)?\s*"
)
"""A cell of one line that begins with the name of a magic: IPython runs it as if a `%` stood before it"""
# The indentation of the first line that is not empty.
FIRST_INDENT = re.compile(r"\s*^([ \t]+)(?=\S)", re.M)
# `files = !ls`, `found = %sql ...`: the name stays bound.
MAGIC_ASSIGNMENT = re.compile(
    r"^(?P<head>[ \t\f]*[\w.,\[\] \t'\"]+=[ \t]*)[%!][A-Za-z.\"'{$][^\n]*$"
)


SOURCE_KEYS = ("source", "input")
"""Where a cell's code stands: in format 4, and in format 3 and before"""
RUN_COUNT_KEYS = ("execution_count", "prompt_number")
"""Where its place in the order of runs stands: in format 4, and in format 3 and before"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One code cell."""

    number: int
    """1-based, over the code cells"""
    start: int
    """Where its text begins in the module's text"""
    first_line: int
    text: str = field(repr=False)
    spots: tuple[int, ...] = field(repr=False)
    """(characters + 1,) where each character stands in the file, and where the last string ends"""
    break_text: str
    """What goes between two lines in the file: `",\\n    "` where the source is a list, else nothing"""
    run_count: int | None = None
    """As which one the kernel ran it last; None where it was not run, or its outputs were cleared"""

    def has_line(self, line: int) -> bool:
        """Is a line of the joined text in this cell?"""
        return self.first_line <= line < self.first_line + len(LineIndex(self.text))


@dataclass(slots=True)
class _JsonObject:
    """An object of the JSON that is being read."""

    in_cells: bool
    """It stands in a list `cells`"""
    key: str | None = None
    """The last key that was read"""
    cell_type: str | None = None
    run_count: int | None = None
    source: list[tuple[int, int]] = field(default_factory=list)
    """Where the strings of its source begin and end in the file, with their quotes"""
    gap: str | None = None
    """What stands in the file before the first string of a list, to be put between added lines as well"""

    @property
    def is_code_cell_with_text(self) -> bool:
        """Is it a code cell that is not empty?"""
        return self.in_cells and self.cell_type == "code" and bool(self.source)


def read_code_cells(text: str, path: str) -> tuple[Cell, ...]:
    """The code cells of a notebook. Raises DataError."""
    try:
        whole = parse_json(text, NOTEBOOK)
    except ValueError as error:
        raise DataError(f"{path}: not a notebook, its JSON can't be read ({error})") from None
    if not isinstance(whole, dict) or not ("cells" in whole or "worksheets" in whole):
        raise DataError(f"{path}: not a notebook (no `cells`)")
    language = _kernel_language_or_python(whole)
    if language != "python":
        return ()
    cells: list[Cell] = []
    start, line = 0, 1
    for json_cell in _scan_json_for_code_cells(text):
        cell = _cell_of_json_object(text, json_cell, len(cells) + 1, start, line)
        cells.append(cell)
        start += len(cell.text) + 1
        line += len(LineIndex(cell.text))
    return tuple(cells)


def _cell_of_json_object(
    text: str, json_cell: _JsonObject, number: int, start: int, line: int
) -> Cell:
    """One code cell: its text without the escapes of JSON, and where in the file each character stands."""
    parts, spots = [], []
    for begin, end in json_cell.source:
        for match in JSON_CHARACTER.finditer(text, begin + 1, end - 1):
            is_escape = match[0][0] == "\\"
            parts.append(_decode_json_string(f'"{match[0]}"') if is_escape else match[0])
            spots.append(match.start())
    spots.append(json_cell.source[-1][1] - 1)
    break_text = "" if json_cell.gap is None else f'",{json_cell.gap}"'
    return Cell(number, start, line, "".join(parts), tuple(spots), break_text, json_cell.run_count)


def _kernel_language_or_python(notebook: dict[str, Any]) -> Any:
    """The language of its kernel; Python where it does not say."""
    metadata = notebook.get("metadata")
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    return kernel.get("language", "python") if isinstance(kernel, dict) else "python"


def _decode_json_string(token: str) -> Any:
    """The string that a JSON token spells."""
    return parse_json(token, NOTEBOOK)


def _scan_json_for_code_cells(text: str) -> Iterator[_JsonObject]:
    """Objects in a list `cells` whose cell_type is code, with the strings of their source.

    The text is known to be JSON, so the tokens need no check.
    """
    # What is open, from the outside in: an object, or of a list the key that it stands under.
    stack: list[_JsonObject | str] = []
    expects_key = False
    list_begin = 0
    for match in JSON_TOKEN.finditer(text):
        token = match[0]
        top = stack[-1] if stack else None
        if token == "{":
            stack.append(_JsonObject(in_cells=top == "cells"))
            expects_key = True
        elif token == "[":
            stack.append(_key_that_holds_list(top))
            list_begin = match.end()
        elif token in "]}":
            closed = stack.pop() if stack else None
            if isinstance(closed, _JsonObject) and closed.is_code_cell_with_text:
                yield closed
            expects_key = False
        elif token == ",":
            expects_key = isinstance(top, _JsonObject)
        elif token[0] == '"':
            _keep_string_if_key_type_source(stack, match, list_begin, is_key=expects_key)
            expects_key = False
        elif isinstance(top, _JsonObject):
            _keep_execution_count(top, token)


def _key_that_holds_list(around: _JsonObject | str | None) -> str:
    """The key that a list stands under; empty for a list in a list."""
    return around.key or "" if isinstance(around, _JsonObject) else ""


def _keep_execution_count(json_object: _JsonObject, token: str) -> None:
    """Keep a number if it is the execution count of a cell."""
    if json_object.key in RUN_COUNT_KEYS and token.isdecimal():
        # No kernel counts so far; Python refuses to read a number of thousands of digits.
        json_object.run_count = int(token[:9])


def _keep_string_if_key_type_source(
    stack: list[_JsonObject | str], match: re.Match[str], list_begin: int, *, is_key: bool
) -> None:
    """Keep a string where it is a key, or the type or source of a cell."""
    top = stack[-1] if stack else None
    if not isinstance(top, _JsonObject):
        if top in SOURCE_KEYS:
            _keep_string_of_source_list(stack, match, list_begin)
    elif is_key:
        top.key = _decode_json_string(match[0])
    elif top.key == "cell_type":
        top.cell_type = _decode_json_string(match[0])
    elif top.key in SOURCE_KEYS:
        top.source.append(match.span())


def _keep_string_of_source_list(
    stack: list[_JsonObject | str], match: re.Match[str], list_begin: int
) -> None:
    """Keep one string of a source that is a list of lines, and what stands before the first."""
    cell = stack[-2] if len(stack) > 1 else None
    if not isinstance(cell, _JsonObject):
        return
    if cell.gap is None:
        cell.gap = match.string[list_begin : match.start()]
    cell.source.append(match.span())


def candidate_readings_of_cell_as_python(text: str) -> Iterator[str]:
    """The readings of a cell as Python (without indent, without magics), each as long as the cell."""
    if _has_magic_of_other_language(text):
        yield blank_out_text(text)
        return
    yield text
    yield _replace_magics_by_zero(text)
    dedented = _remove_indent_keeping_length(text)
    if dedented != text:
        yield dedented
        yield _replace_magics_by_zero(dedented)
    # Last, for `cat` or `run` alone may also be a name in Python.
    if AUTOMAGIC_CELL.fullmatch(text):
        yield blank_out_text(text)


def _has_magic_of_other_language(text: str) -> bool:
    """Does the cell begin with a cell magic that makes it no Python, such as `%%bash`?"""
    first = text.lstrip()
    words = first[2:].split(None, 1) if first.startswith("%%") else []
    return bool(words) and words[0] not in PYTHON_MAGICS


def blank_out_text(text: str) -> str:
    """The text with every character replaced by a blank, except the line ends."""
    return re.sub(r"[^\r\n]", " ", text)


def _remove_indent_keeping_length(text: str) -> str:
    """The cell without the indent of its first line, as IPython runs it. A form feed takes the
    place of the indent, so that the length stays, and tells Python's parser to count the columns
    again.

    A form feed in its last place is as long, and tells Python's parser to count the columns again.
    """
    first = FIRST_INDENT.match(text)
    if first is None:
        return text
    indent = first[1]
    return re.sub(f"^{indent}", indent[:-1] + "\f", text, flags=re.M)


def _replace_magics_by_zero(text: str) -> str:
    """Magics become `0`, so that what stands around them stays whole."""
    lines, continues = [], False
    for line in text.split("\n"):
        if continues:
            lines.append(" " * len(line))
            continues = line.endswith("\\")
            continue
        magic = MAGIC_LINE.match(line)
        assignment = None if magic else MAGIC_ASSIGNMENT.match(line)
        if magic:
            lines.append((magic["indent"] + "0").ljust(len(line)))
        elif assignment:
            lines.append((assignment["head"] + "0").ljust(len(line)))
        else:
            lines.append(line)
        # A command that ends in a backslash continues in the next line, as in the shell.
        continues = bool(magic or assignment) and line.endswith("\\")
    return "\n".join(lines)


def offset_in_notebook_file(cells: tuple[Cell, ...], offset: int) -> int:
    """The offset in the notebook's file of a character of the joined text."""
    cell = find_cell(cells, offset)
    return cell.spots[min(offset - cell.start, len(cell.text))]


def find_cell(cells: tuple[Cell, ...], offset: int) -> Cell:
    """The cell that holds a character of the joined text."""
    return next((cell for cell in reversed(cells) if cell.start <= offset), cells[0])


def describe_cell_and_line(cells: tuple[Cell, ...], lines: LineIndex, offset: int) -> str:
    """The place of a character as text: `cell 3, line 2`."""
    cell = find_cell(cells, offset)
    return f"cell {cell.number}, line {lines.place(offset)[0] - cell.first_line + 1}"


def encode_as_json_source(cell: Cell, text: str, *, ascii_only: bool) -> str:
    """Code as it is written in the JSON strings of a cell's source."""
    written = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    if not cell.break_text:
        return written
    # Escaped backslashes are set aside: one before an n is code that spells a line end, and is none.
    protected = written.replace("\\\\", "\0")
    return protected.replace("\\n", "\\n" + cell.break_text).replace("\0", "\\\\")
