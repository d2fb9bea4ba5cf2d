"""Reads CSV and TSV records within a limit on the bytes of one record, which may span many lines.

One missing quote makes the rest of a file a single cell. So the characters of a record are counted as the csv module
takes its lines, and the record is refused before all of it is in memory.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from truetune.parsing.input_limits import MAX_TABLE_COLUMNS, ROW, InputLimitError

# Callers catch it by this name, for nothing else may import csv.
Error = csv.Error


class CsvReader:
    """The records of a text; `line_num` is the line of the last that was read, as of `csv.reader`."""

    def __init__(
        self,
        lines: Iterable[str],
        *,
        delimiter: str = ",",
        strict: bool = False,
        max_characters: int = ROW.max_bytes,
    ) -> None:
        # The bound is one of the csv module, the same for all readers of the process.
        csv.field_size_limit(ROW.max_bytes)
        self._max_characters = max_characters
        self._in_record = 0
        self._reader = csv.reader(
            self._count_characters_of_record(lines), delimiter=delimiter, strict=strict
        )

    @property
    def line_num(self) -> int:
        """The line of the last that was read, from 1."""
        return self._reader.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        """Raises InputLimitError and csv.Error."""
        self._in_record = 0
        record = next(self._reader)
        # A file of one record for all its values: reading it as a row would make a dictionary of
        # millions of columns.
        if len(record) > MAX_TABLE_COLUMNS:
            raise InputLimitError(
                f"{len(record):,} columns, the limit is {MAX_TABLE_COLUMNS:,}; "
                "is this a table with one row for each example?"
            )
        return record

    def _count_characters_of_record(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines, passed through, with their characters counted towards the record that is being
        read. Raises InputLimitError if it grows too long.
        """
        for line in lines:
            self._in_record += len(line)
            if self._in_record > self._max_characters:
                raise InputLimitError(
                    f"longer than {self._max_characters >> 20} MiB, the limit for one row; "
                    "is a quote missing?"
                )
            yield line
