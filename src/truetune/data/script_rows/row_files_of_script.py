"""Reads the files of rows that a script names, as values of its symbolic run.

How it works: a name in the script is looked up beside the script and in the current folder; rows are read by the
readers of `truetune.data`, with their limits.

The trade-off: a script is untrusted, so a file elsewhere, or a hidden one, is never opened, whatever name the script
gives. Of a large file only the first rows are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from truetune.data.find_data_files import find_data_files_of_paths, open_raw
from truetune.data.read_file_records import read_records
from truetune.data.script_rows.compute_dataset_methods_on_known_rows import (
    Place,
    Row,
    Table,
    make_table,
)
from truetune.errors import TruetuneError
from truetune.parsing import InputLimitError
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json
from truetune.parsing.read_files_within_limits import lines_within_limit
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.lists_and_dicts import plain_to_value
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Mapping,
    Opaque,
    Sequence,
    Value,
)

MAX_ROWS = 2_000
"""Rows of a file that are followed through the script. A row takes about a millisecond, so a file two seconds"""
MAX_FILES = 100
"""Files that a pattern stands for. Chosen, not measured: MAX_ROWS bounds the rows of each"""
MAX_LINE_BYTES = 1 << 20
"""Of one line of text that a script reads: a row of 250,000 tokens"""


@dataclass(eq=False, slots=True)
class OpenFile(Opaque):
    """What `open(name)` gives."""

    path: Path


@dataclass(slots=True)
class RowFiles:
    """The files that one script may read."""

    folders: tuple[Path, ...]
    """Where they are looked for; also the folders that they must lie in"""
    read: dict[Path, list[Place]] = field(default_factory=dict)
    """The files that were read, each with the places of its rows"""
    raw: dict[Place, Row] = field(default_factory=dict)
    """The rows as they stand in their file, by place"""
    columns_read: set[Any] = field(default_factory=set)
    """Names of columns that the script's own code reads of some row"""
    _parsed: set[Path] = field(default_factory=set)
    """Files that the script read as text, whose rows were looked up"""
    cut: set[Path] = field(default_factory=set)
    """Those that hold more than MAX_ROWS rows"""

    def find(self, name: Any) -> Path | None:
        """The file of that name; None if there is none that the script may read."""
        if not isinstance(name, str) or not name or "\0" in name:
            return None
        for folder in self.folders:
            path = (folder / name).resolve()
            if self._is_in_allowed_folder(path) and path.is_file():
                return path
        return None

    def _is_in_allowed_folder(self, path: Path) -> bool:
        """Does a file lie in one of the script's folders, and in no hidden folder of theirs?"""
        for folder in self.folders:
            if path.is_relative_to(folder):
                parts = path.relative_to(folder).parts
                return not any(part.startswith(".") for part in parts)
        return False

    def names_matching_glob(self, pattern: str) -> list[str]:
        """The names of the files that a glob fits, `data/*.jsonl`, in order."""
        for folder in self.folders:
            try:
                paths = (path.resolve() for path in islice(folder.glob(pattern), MAX_FILES))
                names = [str(path) for path in paths if self._is_in_allowed_folder(path)]
            except (ValueError, NotImplementedError, OSError):
                return []  # an absolute or broken pattern
            if names:
                return sorted(names)
        return []

    def places_of_rows_in_file(self, rows: Value) -> list[Place] | None:
        """The places in a file from which a list may be made row by row; None if no file, or
        several, has as many rows.

        Args:
            rows: The list, or a dictionary of lists.
        """
        first = next(iter(rows.entries.values()), rows) if isinstance(rows, Mapping) else rows
        count = len(first.items) if isinstance(first, Sequence) else 0
        fitting = [places for places in self.read.values() if len(places) == count]
        return fitting[0] if len(fitting) == 1 else None

    def table_of_rows_in_file(self, path: Path) -> Table | None:
        """The table of the rows in a file; None if it holds none that can be read."""
        rows: list[Row] = []
        try:
            source = find_data_files_of_paths([str(path)])[0]
            with open_raw(source.path) as raw:
                for record in islice(read_records(source, raw), MAX_ROWS + 1):
                    value = plain_to_value(record.row)
                    if not isinstance(value, Mapping):
                        return None
                    rows.append(Row(value.entries, place=Place(path, record.line)))
        except (TruetuneError, OSError):
            return None
        if len(rows) > MAX_ROWS:
            self.cut.add(path)
            rows.pop()
        by_place = {row.place: row for row in rows if row.place is not None}
        self.raw.update(by_place)
        self.read[path] = list(by_place)
        return make_table(rows)

    def note_column_read(self, row: Mapping, name: Any = None) -> None:
        """Note that the script reads a column of a row; all columns without a name."""
        self.columns_read.update(row.entries if name is None else [name])

    def texts_neither_read_nor_trained(self, place: Place, trained: list[Value]) -> dict[str, Any]:
        """The texts of a file's row that the script neither reads nor gives to the trainer, by
        column.

        Args:
            place: Where the row stands.
            trained: The values of the columns that the trainer reads.
        """
        row = self._row_of_file(place)
        if row is None:
            return {}
        kept = {id(value) for value in trained}
        # A row that the script parses itself holds the same texts in other objects.
        kept_texts = {
            one.value for one in trained if isinstance(one, Constant) and _is_known_text(one)
        }
        return {
            name: value.value
            for name, value in row.entries.items()
            if name not in self.columns_read
            and isinstance(value, Constant)
            and _is_known_text(value)
            and id(value) not in kept
            and value.value not in kept_texts
        }

    def first_rows_with_texts(self, most: int) -> list[tuple[Place, dict[str, str]]]:
        """The first rows of the files that were read, each with its texts by column."""
        places = [place for read in self.read.values() for place in read][:most]
        return [(place, self._texts_of_file_row(place)) for place in places]

    def _texts_of_file_row(self, place: Place) -> dict[str, str]:
        """The texts of a row as it is in its file, by column."""
        row = self._row_of_file(place)
        return {
            name: value.value
            for name, value in (row.entries if row is not None else {}).items()
            if isinstance(value, Constant) and _is_known_text(value)
        }

    def texts_of_columns_read(self, place: Place) -> dict[str, str]:
        """The texts of a file's row in the columns that the script reads, by column."""
        texts = self._texts_of_file_row(place)
        return {name: text for name, text in texts.items() if name in self.columns_read}

    def values_of_columns_read(self, place: Place) -> dict[str, str]:
        """The texts and numbers of a file's row in the columns that the script reads, as text, by
        column.
        """
        row = self._row_of_file(place)
        return {
            name: str(value.value)
            for name, value in (row.entries if row is not None else {}).items()
            if name in self.columns_read
            and isinstance(value, Constant)
            and isinstance(value.value, str | int | float)
        }

    def raw_row(self, place: Place) -> dict[str, Any]:
        """The row of a file as it stands there, with the columns whose values are known."""
        row = self._row_of_file(place)
        columns = {} if row is None else {str(k): constant_of(v) for k, v in row.entries.items()}
        return {name: one for name, one in columns.items() if one is not NO_CONSTANT}

    def _row_of_file(self, place: Place) -> Row | None:
        """A row as it is in its file, which the script may have read as text; None if there is
        none.
        """
        if place not in self.raw and place.file not in self._parsed:
            self._parsed.add(place.file)
            beside = RowFiles(self.folders)
            beside.table_of_rows_in_file(place.file)
            self.raw.update(beside.raw)
        return self.raw.get(place)

    def read_json_object_file(self, path: Path) -> Mapping | None:
        """A file that is one JSON object, such as settings; None for any other."""
        try:
            value = plain_to_value(read_json(path, SETTINGS))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, Mapping) else None

    def text_lines(self, path: Path) -> Sequence:
        """The lines of a text file with their ends; an open list if it holds more than MAX_ROWS."""
        lines: list[str] = []
        try:
            with path.open("rb") as raw:
                for content, _ in islice(lines_within_limit(raw, MAX_LINE_BYTES), MAX_ROWS + 1):
                    lines.append(content.decode(errors="replace"))
        except (OSError, InputLimitError):
            return Sequence("list", [], is_open=True)
        if len(lines) > MAX_ROWS:
            self.cut.add(path)
            lines.pop()
        self.read[path] = [Place(path, n) for n, line in enumerate(lines, 1) if line.strip()]
        return Sequence("list", [Constant(line) for line in lines])


def _is_known_text(value: Value) -> bool:
    """Is it a text that is known?"""
    return isinstance(value, Constant) and isinstance(value.value, str)
