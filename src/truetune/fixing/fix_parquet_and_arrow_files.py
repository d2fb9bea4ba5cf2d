"""Fixes the rows of Parquet and Arrow files, batch by batch; only the cells of rows that change are
made again.

Values, schema, metadata, row groups and compression stay; the bytes of the file are the library's, not those of the
input. A type that a column does not have can't be put into it: such an edit is not made, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as arrow
from pyarrow import parquet

from truetune.data.conversation import Origin
from truetune.data.find_data_files import DataFile, open_decompressed_bytes
from truetune.data.read_file_records import Record
from truetune.data.read_parquet_and_arrow_rows import (
    arrow_errors_as_data_errors,
    batch_to_rows,
    drop_null_fields,
    read_record_batches,
)
from truetune.data.read_rows_as_conversations import (
    conversations_of_records,
    find_record_that_decides_format,
)
from truetune.fixing.apply_proved_remedies import FixRow
from truetune.fixing.editable_row_of_file import TableBody
from truetune.fixing.fix_json_and_csv_files import FixRows, OnBroken
from truetune.fixing.row_edits import Edit, EditError
from truetune.parsing.input_limits import MAX_BATCH_BYTES
from truetune.parsing.read_parquet_and_arrow_within_limits import open_parquet
from truetune.settings.run_spec import RunSpec

# Chosen, not measured: as the reader of data has it, so that rows and batches are cut alike.
ROWS_AT_ONCE = 512
WriteBatch = Callable[[Any], None]
"""Takes a record batch that is to be written"""


@dataclass(frozen=True)
class TypedBody(TableBody):
    """The body of a row in a table whose columns have types."""

    schema: Any

    def edited(self, edit: Edit) -> TypedBody:
        """The row after an edit. Raises EditError where the column has no room for the value."""
        row = TableBody(self.value).edited(edit).value
        for name, value in row.items():
            # Only what the edit changed: an old value fits by being there.
            if value is not self.value[name] and not _fits_type(
                value, self.schema.field(name).type
            ):
                raise EditError(
                    f"the column {name} of this table has no room for it; write the data as JSONL"
                )
        return TypedBody(row, self.schema)


def fix_table(
    source: DataFile,
    raw: IO[bytes],
    spec: RunSpec,
    fix: FixRows,
    on_broken: OnBroken,
    write: WriteBatch,
) -> None:
    """Hand the batches of a file to `write`, in order, with their rows fixed.

    Args:
        source: the file.
        raw: its bytes.
        spec: how its rows are read.
        fix: fixes a group of rows in place.
        on_broken: told of rows that can't be read; says whether they go.
        write: takes each batch.

    Raises DataError.
    """
    like: Record | None = None
    first = 0
    for batch in _read_slices(source, raw):
        records = [Record(first + i, row) for i, row in enumerate(batch_to_rows(source, batch), 1)]
        if like is None:
            # The first batch that holds a row decides the format for the whole file.
            like = find_record_that_decides_format(
                records, source, spec.format, spec.map, skips=True
            )
        gone: set[int] = set()
        rows = _fix_rows_of_batch(batch, records, source, spec, like, first, on_broken, gone)
        fix(rows)
        gone |= {row.origin.row for row in rows if row.dropped}
        changed = {
            row.origin.row - first: row.body.value
            for row in rows
            if row.changes and not row.dropped
        }
        rebuilt = _rebuild_batch(batch, changed)
        write(
            rebuilt.filter(arrow.array([first + i not in gone for i in range(len(records))]))
            if gone
            else rebuilt
        )
        first += len(records)


@contextmanager
def open_table_writer(source: DataFile, raw: IO[bytes], file: IO[bytes]) -> Iterator[WriteBatch]:
    """Open a writer of batches for a file of the same kind, schema and compression.

    Args:
        source: the file that is fixed.
        raw: a handle on it of its own: its end is read.
        file: what is written into.

    Raises DataError, OSError.
    """
    if source.kind != "parquet":
        with arrow_errors_as_data_errors(source):
            schema, make = _arrow_schema_and_writer(source, raw)
        with make(file, schema) as writer:
            yield writer.write_batch
        return
    with arrow_errors_as_data_errors(source):
        about = open_parquet(open_decompressed_bytes(raw, source.path))
    groups = about.metadata.num_row_groups
    columns = (
        [about.metadata.row_group(0).column(i) for i in range(about.metadata.num_columns)]
        if groups
        else []
    )
    # Each column keeps its own compression; pyarrow writes all of them with snappy otherwise.
    codecs = {
        column.path_in_schema: _compression_for_writer(column.compression) for column in columns
    }
    sizes = [about.metadata.row_group(i).num_rows for i in range(groups)]
    with parquet.ParquetWriter(file, about.schema_arrow, compression=codecs or "snappy") as writer:
        # Row groups as large as the largest one of the input: readers plan their memory by them.
        grouped = _RowGroupWriter(writer, max(sizes, default=1))
        yield grouped.add
        grouped.flush()


class _RowGroupWriter:
    """Gathers batches to row groups as large as those of the input, or as fit in memory."""

    def __init__(self, writer: Any, rows: int) -> None:
        self._writer, self._most = writer, rows
        self._held: list[Any] = []

    def add(self, batch: Any) -> None:
        """Take the next batch, and write a row group where it is full."""
        self._held.append(batch)
        rows = sum(held.num_rows for held in self._held)
        size = sum(held.nbytes for held in self._held)
        # By size too: a group of wide rows may be larger than memory.
        if rows >= self._most or size > MAX_BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the batches that are held as one row group."""
        table = arrow.Table.from_batches(self._held) if self._held else None
        if table is not None and table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._held = []


def _read_slices(source: DataFile, raw: IO[bytes]) -> Iterator[Any]:
    """The batches of a file, in slices of some hundred rows."""
    for batch in read_record_batches(source, raw, at_once=ROWS_AT_ONCE):
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(start, ROWS_AT_ONCE)


def _fix_rows_of_batch(
    batch: Any,
    records: list[Record],
    source: DataFile,
    spec: RunSpec,
    first_record: Record | None,
    first: int,
    on_broken: OnBroken,
    dropped: set[int],
) -> list[FixRow]:
    """The rows of a batch, to be fixed; `dropped` gets the numbers of those that hold none and are
    dropped.
    """

    def broken(origin: Origin, reason: str) -> None:
        """Tell of a record that holds no row, and note where it goes."""
        if on_broken(origin, reason):
            dropped.add(origin.row)

    values = batch.to_pylist()
    read = conversations_of_records(
        records,
        source,
        first,
        format=spec.format,
        columns=spec.map,
        like=first_record,
        on_broken=broken,
    )
    return [
        FixRow(row.origin, TypedBody(values[row.origin.row - first], batch.schema), row)
        for row in read
    ]


def _rebuild_batch(batch: Any, changed: dict[int, dict[str, Any]]) -> Any:
    """A batch with some rows changed; the cells of all others are the same memory."""
    columns = []
    before = {place: batch.slice(place, 1).to_pylist()[0] for place in changed}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        # Only columns with a changed cell are made again.
        new = {
            place: row[field.name]
            for place, row in changed.items()
            if row[field.name] != before[place][field.name]
        }
        columns.append(_replace_cells(column, new) if new else column)
    return arrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def _replace_cells(column: Any, new: dict[int, Any]) -> Any:
    """A column with some of its cells replaced."""
    parts, reached = [], 0
    for place in sorted(new):
        parts += [
            column.slice(reached, place - reached),
            # A cell of the column's own type: Arrow would else guess one from the value.
            arrow.array([new[place]], type=column.type),
        ]
        reached = place + 1
    return arrow.concat_arrays([*parts, column.slice(reached)])


def _fits_type(value: Any, kind: Any) -> bool:
    """Can a column of this type hold the value, and return it as it was?"""
    # A new value would need a new entry in a dictionary that other batches share.
    if arrow.types.is_dictionary(kind):
        return False
    try:
        stored = arrow.array([value], type=kind).to_pylist()[0]
    except (arrow.ArrowException, TypeError, ValueError, OverflowError):
        return False
    # Read back: Arrow drops fields that a struct does not have, and says nothing.
    return bool(drop_null_fields(stored) == drop_null_fields(value))


def _compression_for_writer(name: str) -> str:
    """The name of a compression as the writer takes it."""
    # pyarrow reads one name and writes the other.
    return "NONE" if name == "UNCOMPRESSED" else name


def _arrow_schema_and_writer(source: DataFile, raw: IO[bytes]) -> tuple[Any, Any]:
    """The schema of an Arrow file, and the writer of its form (file or stream)."""
    stream = open_decompressed_bytes(raw, source.path)
    is_file = stream.read(6) == b"ARROW1"
    stream.seek(0)
    opened = arrow.ipc.open_file(stream) if is_file else arrow.ipc.open_stream(stream)
    return opened.schema, arrow.ipc.new_file if is_file else arrow.ipc.new_stream
