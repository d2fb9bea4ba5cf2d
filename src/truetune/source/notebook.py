"""The code cells of a notebook as one text, and the way back into the JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from truetune.errors import DataError
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import NOTEBOOK
from truetune.source.source_text import LineIndex

JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.S)
JSON_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.S
)
PYTHON_MAGICS = frozenset(
    {"time", "timeit", "capture", "prun", "python", "python3", "py3", "debug", "wandb"}
)
MAGIC_LINE = re.compile(
    r"^(?P<indent>[ \t\f]*)(?:(?:%%?[A-Za-z]|[!?])[^\n]*|[\w.\[\]]+\?\??[ \t]*)$"
)
AUTOMAGIC_CELL = re.compile(
    r"\s*(?:pip|conda|mamba|micromamba|uv|cd|ls|ll|pwd|cat|cp|mv|rm|mkdir|rmdir|env|man|run|load_ext|reload_ext|matplotlib"
    r"|who|whos|history|reset|alias|config|pylab)(?:[ \t][^\n]*)?\s*"
)
"""A cell of one line that begins with the name of a magic: IPython runs it as if a `%` stood before it"""
FIRST_INDENT = re.compile(r"\s*^([ \t]+)(?=\S)", re.M)
MAGIC_ASSIGNMENT = re.compile(
    r"^(?P<head>[ \t\f]*[\w.,\[\] \t'\"]+=[ \t]*)[%!][A-Za-z.\"'{$][^\n]*$"
)


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


@dataclass(slots=True)
class _JsonObject:
    """An object of the JSON that is being read."""

    in_cells: bool
    key: str | None = None
    cell_type: str | None = None
    source: list[tuple[int, int]] = field(default_factory=list)
    gap: str | None = None


def read_code_cells(text: str, path: str) -> tuple[Cell, ...]:
    """The code cells. Raises DataError."""
    try:
        whole = parse_json(text, NOTEBOOK)
    except ValueError as error:
        raise DataError(f"{path}: not a notebook, its JSON can't be read ({error})") from None
    if not isinstance(whole, dict) or not ("cells" in whole or "worksheets" in whole):
        raise DataError(f"{path}: not a notebook (no `cells`)")
    language = _kernel_language(whole)
    if language != "python":
        return ()
    cells: list[Cell] = []
    start, line = 0, 1
    for found in _scan_code_cells(text):
        parts, spots = [], []
        for begin, end in found.source:
            for match in JSON_CHARACTER.finditer(text, begin + 1, end - 1):
                parts.append(
                    _decode_json_string(f'"{match[0]}"') if match[0][0] == "\\" else match[0]
                )
                spots.append(match.start())
        spots.append(found.source[-1][1] - 1)
        gap = "" if found.gap is None else f'",{found.gap}"'
        cell = Cell(len(cells) + 1, start, line, "".join(parts), tuple(spots), gap)
        cells.append(cell)
        start += len(cell.text) + 1
        line += len(LineIndex(cell.text))
    return tuple(cells)


def _kernel_language(notebook: dict[str, Any]) -> Any:
    """The language of its kernel; Python where it does not say."""
    metadata = notebook.get("metadata")
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    return kernel.get("language", "python") if isinstance(kernel, dict) else "python"


def _decode_json_string(token: str) -> Any:
    """The string that a JSON token spells."""
    return parse_json(token, NOTEBOOK)


def _scan_code_cells(text: str) -> Iterator[_JsonObject]:
    """Objects in a list `cells` whose cell_type is code, with the strings of their source."""
    stack: list[_JsonObject | str | None] = []
    key_of_list: str | None = None
    expects_key = False
    previous_end = 0
    for match in JSON_TOKEN.finditer(text):
        token = match[0]
        top = stack[-1] if stack else None
        if token == "{":
            stack.append(_JsonObject(in_cells=top == "cells"))
            expects_key = True
        elif token == "[":
            key_of_list = top.key if isinstance(top, _JsonObject) else None
            stack.append(key_of_list or "")
            previous_end = match.end()
        elif token in "]}":
            closed = stack.pop() if stack else None
            if (
                isinstance(closed, _JsonObject)
                and closed.in_cells
                and closed.cell_type == "code"
                and closed.source
            ):
                yield closed
            expects_key = False
        elif token == ",":
            expects_key = isinstance(top, _JsonObject)
        elif token[0] == '"':
            if isinstance(top, _JsonObject):
                if expects_key:
                    top.key, expects_key = _decode_json_string(token), False
                elif top.key == "cell_type":
                    top.cell_type = _decode_json_string(token)
                elif top.key in ("source", "input"):
                    top.source.append(match.span())
            elif (
                top in ("source", "input") and len(stack) > 1 and isinstance(stack[-2], _JsonObject)
            ):
                owner = stack[-2]
                if owner.gap is None:
                    owner.gap = text[previous_end : match.start()]
                owner.source.append(match.span())


def possible_python(text: str) -> Iterator[str]:
    """What a cell may be as Python, each as long as the cell."""
    first = text.lstrip()
    if (
        first.startswith("%%")
        and first[2:].split(None, 1)[:1]
        and first[2:].split(None, 1)[0] not in PYTHON_MAGICS
    ):
        yield blank_out(text)
        return
    yield text
    yield _replace_magics(text)
    dedented = _remove_indent(text)
    if dedented != text:
        yield dedented
        yield _replace_magics(dedented)
    if AUTOMAGIC_CELL.fullmatch(text):
        yield blank_out(text)


def blank_out(text: str) -> str:
    """Nothing but the line ends."""
    return re.sub(r"[^\r\n]", " ", text)


def _remove_indent(text: str) -> str:
    """Without the indent of the first line on any line that has it, as IPython runs a cell.

    A form feed in its last place is as long, and tells Python's parser to count the columns anew.
    """
    first = FIRST_INDENT.match(text)
    if first is None:
        return text
    indent = first[1]
    return re.sub(f"^{indent}", indent[:-1] + "\f", text, flags=re.M)


def _replace_magics(text: str) -> str:
    """Magics become `0`, so that what stands around them stays whole."""
    lines, continued = [], False
    for line in text.split("\n"):
        if continued:
            lines.append(" " * len(line))
        elif match := MAGIC_LINE.match(line):
            lines.append((match["indent"] + "0").ljust(len(line)))
        elif match := MAGIC_ASSIGNMENT.match(line):
            lines.append((match["head"] + "0").ljust(len(line)))
        else:
            lines.append(line)
            continue
        continued = line.endswith("\\")
    return "\n".join(lines)


def find_offset_in_file(cells: tuple[Cell, ...], offset: int) -> int:
    """Where a character of the joined text stands in the file."""
    cell = find_cell(cells, offset)
    return cell.spots[min(offset - cell.start, len(cell.text))]


def find_cell(cells: tuple[Cell, ...], offset: int) -> Cell:
    """The cell that holds a character of the joined text."""
    return next((cell for cell in reversed(cells) if cell.start <= offset), cells[0])


def describe_place(cells: tuple[Cell, ...], lines: LineIndex, offset: int) -> str:
    """`cell 3, line 2`"""
    cell = find_cell(cells, offset)
    return f"cell {cell.number}, line {lines.place(offset)[0] - cell.first_line + 1}"


def encode_for_cell(cell: Cell, text: str, *, ascii_only: bool) -> str:
    """Code as it stands inside the strings of a cell's source."""
    written = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    if not cell.break_text:
        return written
    return (
        written.replace("\\\\", "\0").replace("\\n", "\\n" + cell.break_text).replace("\0", "\\\\")
    )
