"""A row as its file holds it (JSON text, a CSV record, cells of a table), which can be read and
edited.

JSON and CSV rows keep their text, of which an edit changes no character but those it must; a row of a table is values,
for the bytes of a table are its library's. The trade-off: an edit of a text parses it again, which only rows with a
fault pay for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from truetune.data.read_parquet_and_arrow_rows import drop_null_fields
from truetune.fixing.rewrite_csv_cells import rewrite_changed_cells
from truetune.fixing.row_edits import (
    Edit,
    EditError,
    ValuePath,
    edit_json_text,
    edit_table_value,
    find_repeated_keys_in_json,
    json_text_at_path,
)
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import (
    RowDecoder,
    parse_json,
    replace_lone_surrogates,
)


class RowReading(NamedTuple):
    """What readers make of a row: its values and its problems."""

    row: dict[str, Any]
    surrogates_replaced: bool
    duplicate_key: str | None


class RowBody(Protocol):
    """Protocol of a row as it is in a file."""

    @property
    def value(self) -> dict[str, Any]:
        """The row's value, with half surrogates as they are there, and of two equal keys the last."""
        ...

    def read(self) -> RowReading:
        """The row as the reader of its file format gives it."""
        ...

    def edited(self, edit: Edit) -> RowBody:
        """The row after an edit. Raises EditError."""
        ...

    def json_text_at(self, path: ValuePath) -> str:
        """The JSON text of a value, as it is written. Raises EditError."""
        ...

    def repeated_keys(self) -> Iterator[tuple[ValuePath, str, bool]]:
        """(object, key, do its values differ?) for each key that stands twice in an object."""
        ...

    def line(self) -> str:
        """The row as text, for a person."""
        ...


@dataclass(frozen=True)
class JsonBody:
    """A row that its file holds as JSON text."""

    text: str

    @cached_property
    def value(self) -> dict[str, Any]:
        """The row's value, parsed once."""
        # Halves of surrogates and long integers as they stand: an edit must write back what it did
        # not change.
        value: dict[str, Any] = parse_json(self.text, ROW, surrogates="keep", exact_integers=True)
        return value

    def read(self) -> RowReading:
        """The row as the reader of JSON lines gives it."""
        # As the reader of data does it, so that a proof judges the row that a check would see.
        bare = self.text.strip(" \t\r\n")
        decoded = RowDecoder().read_line(bare)
        row, replaced = replace_lone_surrogates(decoded.value, bare)
        return RowReading(row, replaced, decoded.duplicate_key)

    def edited(self, edit: Edit) -> JsonBody:
        """The row after an edit, which changes one part of the text."""
        return JsonBody(edit_json_text(self.text, edit))

    def json_text_at(self, path: ValuePath) -> str:
        """The JSON text of a value, as it is in the row's own text."""
        return json_text_at_path(self.text, path)

    def repeated_keys(self) -> Iterator[tuple[ValuePath, str, bool]]:
        """(object, key, do its values differ?) for each key that is twice in an object, in the row
        and in JSON that is kept in its strings.
        """
        yield from find_repeated_keys_in_json(self.text)
        yield from _repeated_keys_in_strings(self.value, ())

    def line(self) -> str:
        """The row's JSON text."""
        return self.text.strip()


@dataclass(frozen=True)
class TableBody:
    """A row of a table (CSV, Parquet, Arrow) as its values."""

    value: dict[str, Any]

    def read(self) -> RowReading:
        """The row as the reader gives it, without the null fields that its table filled in."""
        return RowReading(
            {name: drop_null_fields(item) for name, item in self.value.items()}, False, None
        )

    def edited(self, edit: Edit) -> TableBody:
        """The row after an edit of its columns. Raises EditError where a column would come or go."""
        row = edit_table_value(self.value, edit)
        if row.keys() != self.value.keys():
            raise EditError("a table keeps its columns")
        return TableBody(row)

    def json_text_at(self, path: ValuePath) -> str:
        """A value as JSON; inside of a string, as it is written there."""
        value: Any = self.value
        for depth, step in enumerate(path):
            if isinstance(value, str):
                return json_text_at_path(value, path[depth:])
            value = value[step]
        return json.dumps(value, ensure_ascii=False, default=str)

    def repeated_keys(self) -> Iterator[tuple[ValuePath, str, bool]]:
        """(object, key, do its values differ?) for each repeated key in JSON that is kept in its
        strings: a table itself can't hold a key twice.
        """
        yield from _repeated_keys_in_strings(self.value, ())

    def line(self) -> str:
        """The row as JSON."""
        return json.dumps(self.value, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class CsvBody(TableBody):
    """A row of a CSV file, with its record as it is written."""

    text: str
    delimiter: str

    def edited(self, edit: Edit) -> CsvBody:
        """The row after an edit of its record. Raises EditError where a cell would hold anything
        but text.
        """
        row = edit_table_value(self.value, edit)
        # The header is that of the whole file: a row can neither add nor lose a cell.
        if row.keys() != self.value.keys() or not all(
            isinstance(cell, str) for cell in row.values()
        ):
            raise EditError("a cell of a CSV file holds text alone, and its columns stay")
        text = rewrite_changed_cells(
            self.text, self.delimiter, list(self.value.values()), list(row.values())
        )
        return CsvBody(row, text, self.delimiter)


def _repeated_keys_in_strings(value: Any, path: ValuePath) -> Iterator[tuple[ValuePath, str, bool]]:
    """(object, key, do its values differ?) for each repeated key in JSON that is kept as a string."""
    if isinstance(value, str):
        if value.lstrip()[:1] in ("[", "{"):
            try:
                repeated = list(find_repeated_keys_in_json(value))
            # It only begins like JSON: a text in brackets.
            except ValueError:
                return
            yield from ((path + inner, key, differ) for inner, key, differ in repeated)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _repeated_keys_in_strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _repeated_keys_in_strings(item, (*path, index))
