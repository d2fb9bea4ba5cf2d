"""Reads the rows that a script scores: those that stand in it, those of the files that it names, or
that lie beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.data.find_data_files import find_data_files_of_paths, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError
from truetune.source.parsed_source_file import Module

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")
MAX_FILES, MAX_BYTES, MAX_ROWS = 8, 64 << 20, 500
"""Files that are opened, the largest of them, and the rows that are read: enough for a share, and quick"""
MAX_TEXT = 20_000
"""Characters of a text that patterns are run over"""
MIN_ROWS_INSIDE = 3
"""Dictionaries of a list that are rows; one or two are the messages of a request. Chosen, not measured"""
Row = Mapping[str, str]


class ScoredRows(NamedTuple):
    """Rows, and where they stand."""

    rows: list[Row]
    source: str


class RowsOfAnyType(NamedTuple):
    """Rows with their values of any type, and where they stand."""

    rows: list[Mapping[str, Any]]
    source: str


def rows_with_text_columns(module: Module, columns: tuple[str, ...]) -> ScoredRows | None:
    """The rows that have all of these columns; None where there are none."""
    inside = [row for row in _rows_written_in_script(module) if set(columns) <= row.keys()]
    if inside:
        return ScoredRows(inside, "this file")
    for path in islice(_candidate_row_files(module), MAX_FILES):
        rows = _first_rows_with_text_columns(path, columns)
        if rows:
            return ScoredRows(rows, path.name)
    return None


def rows_with_column_if_unambiguous(module: Module, column: str) -> RowsOfAnyType | None:
    """Rows with this column, their values as they are, of the script or of the one file that it
    names and that has them; None where several have."""
    rows_by_place = [
        RowsOfAnyType(with_column, name)
        for name, rows in rows_in_script_or_named_files(module).items()
        if (with_column := [row for row in rows if column in row])
    ]
    return rows_by_place[0] if len(rows_by_place) == 1 else None


def rows_with_column_named_or_beside(module: Module, column: str) -> RowsOfAnyType | None:
    """Rows with this column, their values as they are: of the script, of a file that it names, or
    of one beside it.

    None where there are none, or several files have the column.
    """
    named = rows_with_column_if_unambiguous(module, column)
    if named is not None or rows_in_script_or_named_files(module):
        return named
    rows_by_place = [
        RowsOfAnyType(rows, path.name)
        for path in islice(_candidate_row_files(module), MAX_FILES)
        if (rows := [row for row in _first_rows_of_file(path) if column in row])
    ]
    return rows_by_place[0] if len(rows_by_place) == 1 else None


def rows_of_each_file_with_column(module: Module, column: str) -> Iterator[RowsOfAnyType]:
    """The rows of each file that has the column, their values as they are: of the files that the
    script names, or of those beside it.
    """
    named = rows_in_script_or_named_files(module)
    files = islice(_candidate_row_files(module), MAX_FILES) if not named else ()
    found = [*named.items(), *((path.name, _first_rows_of_file(path)) for path in files)]
    for name, rows in found:
        with_column = [row for row in rows if column in row]
        if with_column:
            yield RowsOfAnyType(with_column, name)


def rows_in_script_or_named_files(module: Module) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of the script itself, else those of each file that it names; their values as they
    are.
    """
    values = [
        module.flow.value(element)
        for node in module.nodes(ast.List)
        for element in node.elts
        if isinstance(element, ast.Dict)
        and len(node.elts) >= MIN_ROWS_INSIDE
        and not _is_list_inside_row(module, node)
    ]
    inside: list[Mapping[str, Any]] = [value for value in values if isinstance(value, dict)]
    if inside:
        return {"this file": inside}
    files = {
        path.name: _first_rows_of_file(path) for path in islice(_named_files(module), MAX_FILES)
    }
    return {name: rows for name, rows in files.items() if rows}


def _is_list_inside_row(module: Module, node: ast.List) -> bool:
    """Is a list the value of a row, as its messages are?"""
    return isinstance(module.scopes.parent.get(node), ast.Dict)


def _rows_written_in_script(module: Module) -> Iterator[Row]:
    """The rows that stand in the script as dictionaries of constants."""
    for node in module.nodes(ast.List):
        for element in node.elts:
            value = module.flow.value(element) if isinstance(element, ast.Dict) else None
            if isinstance(value, dict):
                yield _shortened_texts_of_row(value)


def _candidate_row_files(module: Module) -> Iterator[Path]:
    """Files that the script names, then others of its folder."""
    folder = Path(module.path).parent
    if not folder.is_dir():
        return
    named = list(_named_files(module))
    yield from named
    beside = {path for path in folder.iterdir() if path.suffix in SUFFIXES}
    for path in sorted(beside - set(named)):
        if path.is_file() and path.stat().st_size <= MAX_BYTES:
            yield path


def _named_files(module: Module) -> Iterator[Path]:
    """Files that the script names."""
    folder = Path(module.path).parent
    named = {
        folder / node.value
        for node in module.nodes(ast.Constant)
        if isinstance(node.value, str) and node.value.endswith(SUFFIXES) and len(node.value) < 200
    }
    for path in sorted(named):
        if path.is_file() and path.stat().st_size <= MAX_BYTES:
            yield path


def _first_rows_with_text_columns(path: Path, columns: tuple[str, ...]) -> list[Row]:
    """The first rows of a file, where they have these columns; nothing where it can't be read."""
    rows = _first_rows_of_file(path)
    if not rows or not all(set(columns) <= row.keys() for row in rows):
        return []
    return [_shortened_texts_of_row(row) for row in rows]


def _first_rows_of_file(path: Path) -> list[Mapping[str, Any]]:
    """The first rows of a file; nothing where it can't be read."""
    try:
        source = find_data_files_of_paths([str(path)])[0]
        with open_raw(source.path) as raw:
            records = [record.row for record in islice(read_records(source, raw), MAX_ROWS)]
    except (DataError, IndexError, OSError):
        return []
    return [row for row in records if isinstance(row, dict)]


def _shortened_texts_of_row(row: Mapping[str, object]) -> Row:
    """The texts of a row, each by its column, cut where they are long."""
    return {name: text[:MAX_TEXT] for name, text in row.items() if isinstance(text, str)}
