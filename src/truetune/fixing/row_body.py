"""Body: a row as its file holds it, and what can be done to it: read, spelled, edited."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from truetune.data.columnar import drop_null_fields
from truetune.fixing.csv_cells import rewrite_record
from truetune.fixing.row_edits import (
    Edit,
    EditError,
    ValuePath,
    edit_text,
    edit_value,
    find_repeated_keys,
    json_text_at,
)
from truetune.parsing.json_reader import RowDecoder, parse_json, replace_surrogates
from truetune.parsing.limits import ROW


class Reading(NamedTuple):
    """What readers make of a row."""

    row: dict[str, Any]
    surrogates_replaced: bool
    duplicate_key: str | None


class Body(Protocol):
    """A row as it stands in a file."""

    @property
    def value(self) -> dict[str, Any]:
        """The row, with half surrogates as they stand there, and of two equal keys the last"""
        ...

    def read(self) -> Reading:
        """The row as the reader of data gives it."""
        ...

    def edited(self, edit: Edit) -> Body:
        """The row after an edit. Raises EditError."""
        ...

    def spelled(self, path: ValuePath) -> str:
        """The JSON text of a value, as it is written. Raises EditError."""
        ...

    def repeated(self) -> Iterator[tuple[ValuePath, str, bool]]:
        """(object, key, do its values differ?) for each key that stands twice in an object."""
        ...

    def line(self) -> str:
        """The row as text, for a person."""
        ...


@dataclass(frozen=True)
class JsonBody:
    """A row that stands in its file as JSON text."""

    text: str

    @cached_property
    def value(self) -> dict[str, Any]:
        value: dict[str, Any] = parse_json(self.text, ROW, surrogates="keep", exact_integers=True)
        return value

    def read(self) -> Reading:
        bare = self.text.strip(" \t\r\n")
        decoded = RowDecoder().read_line(bare)
        row, replaced = replace_surrogates(decoded.value, bare)
        return Reading(row, replaced, decoded.duplicate_key)

    def edited(self, edit: Edit) -> JsonBody:
        return JsonBody(edit_text(self.text, edit))

    def spelled(self, path: ValuePath) -> str:
        return json_text_at(self.text, path)

    def repeated(self) -> Iterator[tuple[ValuePath, str, bool]]:
        yield from find_repeated_keys(self.text)
        yield from _repeated_in_strings(self.value, ())

    def line(self) -> str:
        return self.text.strip()


@dataclass(frozen=True)
class TableBody:
    """A row of a table: CSV, Parquet, Arrow."""

    value: dict[str, Any]

    def read(self) -> Reading:
        return Reading(
            {name: drop_null_fields(item) for name, item in self.value.items()}, False, None
        )

    def edited(self, edit: Edit) -> TableBody:
        row = edit_value(self.value, edit)
        if row.keys() != self.value.keys():
            raise EditError("a table keeps its columns")
        return TableBody(row)

    def spelled(self, path: ValuePath) -> str:
        value: Any = self.value
        for depth, step in enumerate(path):
            if isinstance(value, str):
                return json_text_at(value, path[depth:])
            value = value[step]
        return json.dumps(value, ensure_ascii=False, default=str)

    def repeated(self) -> Iterator[tuple[ValuePath, str, bool]]:
        yield from _repeated_in_strings(self.value, ())

    def line(self) -> str:
        return json.dumps(self.value, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class CsvBody(TableBody):
    """A row of a CSV file, with its record as it is written."""

    text: str
    delimiter: str

    def edited(self, edit: Edit) -> CsvBody:
        row = edit_value(self.value, edit)
        if row.keys() != self.value.keys() or not all(
            isinstance(cell, str) for cell in row.values()
        ):
            raise EditError("a cell of a CSV file holds text alone, and its columns stay")
        text = rewrite_record(
            self.text, self.delimiter, list(self.value.values()), list(row.values())
        )
        return CsvBody(row, text, self.delimiter)


def _repeated_in_strings(value: Any, path: ValuePath) -> Iterator[tuple[ValuePath, str, bool]]:
    """In JSON that stands as a string."""
    if isinstance(value, str):
        if value.lstrip()[:1] in ("[", "{"):
            try:
                repeated = list(find_repeated_keys(value))
            except ValueError:
                return
            yield from ((path + inner, key, differ) for inner, key, differ in repeated)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _repeated_in_strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _repeated_in_strings(item, (*path, index))
