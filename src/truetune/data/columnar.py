"""Rows of Parquet and Arrow files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as arrow
from pyarrow import parquet

from truetune.data.files import PACKED, Source, unpacked
from truetune.errors import DataError

ROWS = 512
BUFFER = 1 << 18
Row = dict[str, Any]


def rows(source: Source, raw: IO[bytes], part: int | None = None) -> Iterator[Row]:
    """The rows of an open file, or of one of its `parts`; `ROWS` of them are held as Python's objects.

    Raises DataError where it is none of these.
    """
    for batch in batches(source, raw, part):
        for start in range(0, batch.num_rows, ROWS):
            yield from rows_of(source, batch.slice(start, ROWS))


def batches(source: Source, raw: IO[bytes], part: int | None = None, at_once: int = ROWS) -> Iterator[Any]:
    """The record batches of an open file, or of one of its `parts`; those of Parquet have `at_once` rows.

    Raises DataError; pyarrow itself trusts what it reads.
    """
    with _readable(source):
        for batch in _parquet(source, raw, part, at_once) if source.kind == "parquet" else _arrow(source, raw, part):
            batch.validate(full=True)
            yield batch


def rows_of(source: Source, batch: Any) -> Iterable[Row]:
    """Raises DataError."""
    with _readable(source):
        return _rows(batch)


def parts(source: Source, raw: IO[bytes]) -> Iterator[int]:
    """How many rows each part holds that can be read by itself: a row group of Parquet, a batch of Arrow's file form.

    Nothing where the file can only be read from its start. Raises DataError.
    """
    with _readable(source):
        if source.path.suffix.lower() in PACKED:
            return
        if source.kind == "parquet":
            about = parquet.ParquetFile(raw).metadata
            yield from (about.row_group(i).num_rows for i in range(about.num_row_groups))
        elif not _is_stream(source, raw):
            yield from (batch.num_rows for batch in _arrow(source, raw))


@contextmanager
def _readable(source: Source) -> Iterator[None]:
    try:
        yield
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        kind = "a Parquet" if source.kind == "parquet" else "an Arrow"
        raise DataError(f"{source.path}: not {kind} file that can be read: {error}") from None
    except MemoryError:
        raise DataError(f"{source.path}: speaks of more bytes than there is memory; is the file whole?") from None


def _parquet(source: Source, raw: IO[bytes], part: int | None, at_once: int) -> Iterator[Any]:
    """Page by page: a row group may be as large as the file, and `pre_buffer` would hold all of it."""
    file = parquet.ParquetFile(_seekable(source, raw), buffer_size=BUFFER, pre_buffer=False)
    yield from file.iter_batches(batch_size=at_once, row_groups=None if part is None else [part])


def _arrow(source: Source, raw: IO[bytes], part: int | None = None) -> Iterator[Any]:
    """`datasets` writes streams, Feather is the form with a footer."""
    if _is_stream(source, raw):
        yield from arrow.ipc.open_stream(unpacked(raw, source.path))
        return
    file = arrow.ipc.open_file(_seekable(source, raw))
    for i in range(file.num_record_batches) if part is None else (part,):
        yield file.get_batch(i)


def _is_stream(source: Source, raw: IO[bytes]) -> bool:
    return unpacked(raw, source.path).read(6) != b"ARROW1"


def _seekable(source: Source, raw: IO[bytes]) -> Any:
    """Packed files are held in memory: both forms are read from their end."""
    stream = unpacked(raw, source.path)
    return arrow.BufferReader(stream.read()) if source.path.suffix.lower() in PACKED else stream


def _rows(batch: Any) -> Iterable[Row]:
    gaps = [name for name, column in zip(batch.schema.names, batch.columns, strict=True) if _has_gaps(column)]
    found: list[Row] = batch.to_pylist()
    for row in found:
        for name in gaps:
            row[name] = _without_gaps(row[name])
    return found


def _has_gaps(column: Any) -> bool:
    """Do structs of this column lack some of their fields, which a table can only show as null?"""
    if arrow.types.is_struct(column.type):
        fields = column.flatten()
        return any(field.null_count or _has_gaps(field) for field in fields)
    if arrow.types.is_list(column.type) or arrow.types.is_large_list(column.type):
        return _has_gaps(column.flatten())
    return False


def _without_gaps(value: Any) -> Any:
    """Without the keys that hold null; a message keeps its content, which tells a call from an empty answer."""
    if isinstance(value, dict):
        keep = "content" if "role" in value else None
        return {key: _without_gaps(item) for key, item in value.items() if item is not None or key == keep}
    return [_without_gaps(item) for item in value] if isinstance(value, list) else value
