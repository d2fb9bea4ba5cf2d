"""Reads Parquet and Arrow tables within limits: on the width and depth of the schema, and on the
bytes of a row.

Arrow itself checks footers and buffers, and raises an error where they don't fit the file. What it does not bound is
work: a schema of a million nested fields, or a row of gigabytes. The trade-off: batches are validated in full, which
reads their offsets once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as arrow
from pyarrow import parquet

from truetune.parsing.input_limits import (
    MAX_BATCH_BYTES,
    MAX_TABLE_COLUMNS,
    MAX_TABLE_NESTING,
    InputLimitError,
    size_in_binary_units,
)

UNREADABLE = (arrow.ArrowException, UnicodeDecodeError, OSError, InputLimitError)
"""What reading a broken table raises"""
# Chosen, not measured: bytes read at once from a column chunk. Larger ones are held for each column
# of a wide table.
_BUFFER_BYTES = 1 << 18


def open_parquet(source: Any) -> Any:
    """A pyarrow.parquet.ParquetFile of a path or an open file. Raises InputLimitError, ArrowException or OSError.

    It is read page by page: a row group may be as large as the file, and `pre_buffer` would hold all of it.
    """
    file = parquet.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    _refuse_wide_or_deep_schema(file.schema_arrow)
    return file


def read_parquet_batches(
    file: Any, rows: int, row_groups: Sequence[int] | None = None
) -> Iterator[Any]:
    """Record batches of at most `rows` rows, and of fewer where the file says that its rows are large.

    Args:
        file: a pyarrow.parquet.ParquetFile.
        rows: of a batch, at most.
        row_groups: the numbers of those that are read; all where None.

    Raises InputLimitError, ArrowException.
    """
    groups = range(file.metadata.num_row_groups) if row_groups is None else row_groups
    for group in groups:
        about = file.metadata.row_group(group)
        bytes_of_row = about.total_byte_size / max(about.num_rows, 1)
        # A quarter: the size in the metadata is that of the encoded values, and dictionaries grow
        # when they are read.
        fitting = int(MAX_BATCH_BYTES / 4 / max(bytes_of_row, 1))
        for batch in file.iter_batches(batch_size=max(1, min(rows, fitting)), row_groups=[group]):
            _refuse_broken_batch_or_large_rows(batch)
            yield batch


def read_arrow_stream_batches(source: Any) -> Iterator[Any]:
    """The record batches of an Arrow stream, one by one. Raises InputLimitError, ArrowException or
    OSError.
    """
    # Messages come one by one: a broken one is found when it is reached.
    reader = arrow.ipc.open_stream(source)
    _refuse_wide_or_deep_schema(reader.schema)
    for batch in reader:
        _refuse_broken_batch_or_large_rows(batch)
        yield batch


def read_arrow_file_batches(source: Any, part: int | None = None) -> Iterator[Any]:
    """The record batches of an Arrow file (Feather), or only the one with number `part`. Raises
    InputLimitError, ArrowException or OSError.
    """
    reader = arrow.ipc.open_file(source)
    _refuse_wide_or_deep_schema(reader.schema)
    for number in range(reader.num_record_batches) if part is None else (part,):
        batch = reader.get_batch(number)
        _refuse_broken_batch_or_large_rows(batch)
        yield batch


def read_parquet_table(source: Any) -> Any:
    """A whole Parquet file as one Arrow table. Raises InputLimitError, ArrowException, OSError."""
    return open_parquet(source).read()


def _refuse_wide_or_deep_schema(schema: Any) -> None:
    """Raise InputLimitError for a schema that has too many columns or nests them too deeply."""
    # Level by level and without recursion: the schema may be nested deeper than Python's stack.
    level = [field.type for field in schema]
    columns = depth = 0
    while level:
        depth += 1
        columns += len(level)
        if depth > MAX_TABLE_NESTING:
            raise InputLimitError(f"its columns are nested more than {MAX_TABLE_NESTING} deep")
        if columns > MAX_TABLE_COLUMNS:
            raise InputLimitError(f"more than {MAX_TABLE_COLUMNS:,} columns")
        level = [kind.field(i).type for kind in level for i in range(kind.num_fields)]


def _refuse_broken_batch_or_large_rows(batch: Any) -> None:
    """Raise InputLimitError if the rows of a batch are too large to be held, ArrowException if it
    is broken.
    """
    # Arrow trusts the offsets in a file: even `nbytes` reads where they point, so they are validated before all else.
    batch.validate(full=True)
    # The bound is on a single row: a batch is the writer's choice, and many small rows can be cut
    # into slices.
    if (
        batch.nbytes > MAX_BATCH_BYTES
        and batch.num_rows
        and batch.nbytes / batch.num_rows > MAX_BATCH_BYTES / 16
    ):
        raise InputLimitError(
            f"{batch.num_rows:,} rows of {batch.nbytes:,} bytes; at most "
            f"{size_in_binary_units(MAX_BATCH_BYTES)} are held at once"
        )
