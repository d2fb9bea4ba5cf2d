"""Reads the rows of Parquet and Arrow files.

Batches are read and turned into dictionaries a few hundred rows at a time, so that memory does not grow with the file.
The trade-off: a file that is compressed as a whole must be unpacked into memory, for both formats are read from their
end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as arrow

from truetune.data.find_data_files import COMPRESSION_SUFFIXES, DataFile, open_decompressed_bytes
from truetune.errors import DataError
from truetune.parsing import InputLimitError
from truetune.parsing.input_limits import MAX_PACKED_TABLE_BYTES, size_in_binary_units
from truetune.parsing.read_parquet_and_arrow_within_limits import (
    open_parquet,
    read_arrow_file_batches,
    read_arrow_stream_batches,
    read_parquet_batches,
)

# Chosen, not measured: a row of a chat is some KB as Python's objects, so that a slice stays below
# some MB; a smaller one pays Arrow's conversion more often.
ROWS_AT_ONCE = 512
Row = dict[str, Any]


def read_table_rows(source: DataFile, raw: IO[bytes], part: int | None = None) -> Iterator[Row]:
    """The rows of an open file; `ROWS_AT_ONCE` of them are held as Python's objects.

    Args:
        source: the file.
        raw: its bytes, as they are stored.
        part: only this row group or batch, from 0; all where None.

    Raises DataError where it is none of these.
    """
    for batch in read_record_batches(source, raw, part):
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield from batch_to_rows(source, batch.slice(start, ROWS_AT_ONCE))


def read_record_batches(
    source: DataFile, raw: IO[bytes], part: int | None = None, at_once: int = ROWS_AT_ONCE
) -> Iterator[Any]:
    """The record batches of an open file.

    Args:
        source: the file.
        raw: its bytes, as they are stored.
        part: only this row group or batch, from 0; all where None.
        at_once: rows of a batch of Parquet; those of Arrow are as they were written.

    Raises DataError.
    """
    with arrow_errors_as_data_errors(source):
        yield from (
            _read_parquet_batches(source, raw, part, at_once)
            if source.kind == "parquet"
            else _read_arrow_batches(source, raw, part)
        )


def batch_to_rows(source: DataFile, batch: Any) -> Iterable[Row]:
    """The rows of a record batch as dictionaries. Raises DataError."""
    with arrow_errors_as_data_errors(source):
        return _rows_without_filled_in_nulls(batch)


def count_rows_of_parts(source: DataFile, raw: IO[bytes]) -> Iterator[int]:
    """The number of rows of each part that can be read by itself: a row group of Parquet, a batch
    of an Arrow file. Empty if the file can only be read from its start. Raises DataError.
    """
    with arrow_errors_as_data_errors(source):
        # A packed file can't be entered in its middle: there are no parts to hand out to processes.
        if source.path.suffix.lower() in COMPRESSION_SUFFIXES:
            return
        if source.kind == "parquet":
            about = open_parquet(raw).metadata
            yield from (about.row_group(i).num_rows for i in range(about.num_row_groups))
        elif not _is_arrow_stream(source, raw):
            yield from (batch.num_rows for batch in _read_arrow_batches(source, raw))


@contextmanager
def arrow_errors_as_data_errors(source: DataFile) -> Iterator[None]:
    """Raise what Arrow raises on a broken table as a DataError that names the file."""
    try:
        yield
    except (arrow.ArrowException, UnicodeDecodeError, InputLimitError) as error:
        kind = "a Parquet" if source.kind == "parquet" else "an Arrow"
        raise DataError(f"{source.path}: not {kind} file that can be read: {error}") from None
    except OSError as error:
        # Arrow raises a bare OSError, without a number, for a broken footer; one with a number is a
        # disk's or a store's.
        if error.errno is not None:
            raise
        raise DataError(f"{source.path}: {error}; is the file whole?") from None
    # A broken footer can name petabytes; Arrow asks for them and fails here.
    except MemoryError:
        raise DataError(
            f"{source.path}: speaks of more bytes than there is memory; is the file whole?"
        ) from None


def _read_parquet_batches(
    source: DataFile, raw: IO[bytes], part: int | None, at_once: int
) -> Iterator[Any]:
    """The batches of a Parquet file, or of one row group of it."""
    return read_parquet_batches(
        open_parquet(_open_seekable(source, raw)), at_once, None if part is None else [part]
    )


def _read_arrow_batches(source: DataFile, raw: IO[bytes], part: int | None = None) -> Iterator[Any]:
    """The batches of an Arrow file in either form: the stream that `datasets` writes, or Feather
    with its footer.
    """
    if _is_arrow_stream(source, raw):
        return read_arrow_stream_batches(open_decompressed_bytes(raw, source.path))
    return read_arrow_file_batches(_open_seekable(source, raw), part)


def _is_arrow_stream(source: DataFile, raw: IO[bytes]) -> bool:
    """Is it Arrow's stream form, which has no magic bytes of its own?"""
    # The suffix does not tell: `datasets` calls its streams .arrow, pandas its Feather files so.
    return open_decompressed_bytes(raw, source.path).read(6) != b"ARROW1"


def _open_seekable(source: DataFile, raw: IO[bytes]) -> Any:
    """The file's bytes as a seekable stream, since both formats are read from their end; compressed
    files are unpacked into memory.
    """
    stream = open_decompressed_bytes(raw, source.path)
    if source.path.suffix.lower() not in COMPRESSION_SUFFIXES:
        return stream
    content = stream.read(MAX_PACKED_TABLE_BYTES + 1)
    if len(content) > MAX_PACKED_TABLE_BYTES:
        raise InputLimitError(
            f"it unpacks to more than {size_in_binary_units(MAX_PACKED_TABLE_BYTES)}; unpack it first"
        )
    return arrow.BufferReader(content)


def _rows_without_filled_in_nulls(batch: Any) -> Iterable[Row]:
    """The rows of a batch, without the null fields that a table had to fill in."""
    gaps = [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if _structs_lack_fields(column)
    ]
    # Columns without gaps are not walked again: that would cost as much as reading them.
    rows: list[Row] = batch.to_pylist()
    for row in rows:
        for name in gaps:
            row[name] = drop_null_fields(row[name])
    return rows


def _structs_lack_fields(column: Any) -> bool:
    """Do structs of this column lack some of their fields, which a table can only show as null?"""
    # Without `nulls` in the children, a struct has all its fields in all rows, and nothing was
    # filled in.
    if arrow.types.is_struct(column.type):
        fields = column.flatten()
        return any(field.null_count or _structs_lack_fields(field) for field in fields)
    if arrow.types.is_list(column.type) or arrow.types.is_large_list(column.type):
        return _structs_lack_fields(column.flatten())
    return False


def drop_null_fields(value: Any) -> Any:
    """The value without the keys that hold null; a message keeps its content, which tells a call
    from an empty answer.
    """
    if isinstance(value, dict):
        keep = "content" if "role" in value else None
        return {
            key: drop_null_fields(item)
            for key, item in value.items()
            if item is not None or key == keep
        }
    return [drop_null_fields(item) for item in value] if isinstance(value, list) else value
