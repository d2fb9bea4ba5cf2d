"""Reads tokenized rows in bulk, a few hundred at a time, as chunks of flat arrays.

Arrow tables become numpy arrays without an object for each token, so that a cache of 100,000 rows is read in seconds.
JSON rows take the same way through an Arrow array. A row whose columns do not fit together is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.compute as compute
from numpy.typing import NDArray

from truetune.data.conversation import Origin
from truetune.data.find_data_files import DataFile, open_raw
from truetune.data.read_file_records import Record, read_records
from truetune.data.read_parquet_and_arrow_rows import read_record_batches
from truetune.errors import DataError
from truetune.render.rendering import IGNORED
from truetune.tokenized.recognise_token_columns import (
    ATTENTION,
    DOCUMENT_COLUMNS,
    IDS,
    LABELS,
    LENGTH_COLUMNS,
    MASK_COLUMNS,
    POSITIONS,
    READ_COLUMNS,
    SOURCES,
    refuse_preference_pairs_of_ids,
)

# Chosen, not measured: fewer rows pay for numpy's calls more often, more of long packs take more
# memory.
CHUNK_ROWS = 512
"""Rows of a chunk: enough to spread the cost of numpy's calls, a few MB of packs of 4,096 tokens"""
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Progress = Callable[[int, int, int], None]
"""Called with rows done, bytes read, bytes in all"""


@dataclass(frozen=True)
class Chunk:
    """Some rows of one file, their tokens laid end to end."""

    file: str
    rows: Ints
    """(rows,) their numbers over all files, from 0"""
    lines: Ints
    """(rows,) their lines, or ordinals, in the file, from 1"""
    offsets: Ints
    """(rows + 1,) where each row's tokens begin"""
    ids: Ints
    """(tokens,)"""
    labels: Ints | None
    """(tokens,) as they are stored; None where there are none"""
    masks: tuple[str, ...]
    """The columns that say what is in the loss"""
    supervised: Mask
    """(tokens,) by the labels, else by the masks; False where there are neither"""
    attended: Mask | None
    """(tokens,) by the attention mask"""
    borders: Mask
    """(tokens,) does a document begin here, as far as the columns tell?"""
    sources: NDArray[np.uint8] | None
    """(tokens,) the sources that `truetune encode` wrote"""
    broken: tuple[tuple[Origin, str], ...] = ()
    """Rows that are left out, and why"""

    def origin(self, row: int) -> Origin:
        """Where a row of this chunk stands."""
        return Origin(self.file, int(self.lines[row]), int(self.rows[row]))

    def rows_of_tokens(self, tokens: Ints) -> Ints:
        """The row of each of these tokens."""
        return np.asarray(np.searchsorted(self.offsets, tokens, side="right") - 1)

    @property
    def lengths(self) -> Ints:
        """(rows,) how many tokens each row has."""
        return np.asarray(np.diff(self.offsets))


@dataclass(frozen=True)
class _Column:
    """A column of lists of numbers, laid end to end."""

    values: Any
    """A numpy array, of all rows"""
    lengths: Ints
    """(rows,)"""
    missing: Mask
    """(rows,) is the list, or one of its numbers, null?"""

    def values_of_kept_rows(self, kept: Mask) -> Any:
        """The values of some rows of the column."""
        return self.values[np.repeat(kept, self.lengths)]


def read_chunks(sources: Sequence[DataFile], progress: Progress | None = None) -> Iterator[Chunk]:
    """Read the rows of some files in order, chunk by chunk; memory does not grow with their number.
    Raises DataError.
    """
    sizes = [source.path.stat().st_size for source in sources]
    # Rows are numbered over all files, those that can't be read included: a number is where a
    # person looks.
    row = done = 0
    for source, size in zip(sources, sizes, strict=True):
        with open_raw(source.path) as raw:
            for part in _read_row_batches_of_file(source, raw):
                # At each part: a folder may hold files of both kinds.
                refuse_preference_pairs_of_ids(part.batch.schema.names, str(source.path))
                chunk = _build_chunk_and_set_broken_aside(
                    str(source.path), row + part.numbers, part.lines, part.batch
                )
                yield replace(chunk, broken=(*chunk.broken, *part.unread)) if part.unread else chunk
                row += part.size
                if progress is not None:
                    progress(row, min(done + raw.tell(), done + size), sum(sizes))
        done += size
    if progress is not None:
        progress(row, done, sum(sizes))


def chunk_of_records(source: DataFile, records: Sequence[Record], first: int) -> Chunk:
    """Some records of a file as a chunk.

    Args:
        source: the file.
        records: in its order.
        first: the number of the first of them, over all files.

    Raises DataError.
    """
    part = _part_of_records(source, list(records))
    chunk = _build_chunk_and_set_broken_aside(
        str(source.path), first + part.numbers, part.lines, part.batch
    )
    return replace(chunk, broken=(*chunk.broken, *part.unread))


@dataclass(frozen=True)
class _FilePart:
    """Some rows of a file as a record batch."""

    size: int
    """Rows, with those that can't be read"""
    numbers: Ints
    """(rows,) from 0"""
    lines: Ints
    batch: Any
    unread: tuple[tuple[Origin, str], ...] = ()


def _read_row_batches_of_file(source: DataFile, raw: Any) -> Iterator[_FilePart]:
    """The rows of a file, some hundred at a time. Raises DataError."""
    if source.kind in ("parquet", "arrow"):
        line = 1
        for batch in read_record_batches(source, raw, None, CHUNK_ROWS):
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                part = batch.slice(start, CHUNK_ROWS)
                size = part.num_rows
                yield _FilePart(size, np.arange(size), np.arange(line, line + size), part)
                line += size
        return
    records = read_records(source, raw)
    for part in iter(lambda: list(islice(records, CHUNK_ROWS)), []):
        yield _part_of_records(source, part)


def _part_of_records(source: DataFile, part: list[Record]) -> _FilePart:
    """JSON rows as a record batch. Raises DataError for a column that holds no lists of numbers."""
    numbers = [number for number, record in enumerate(part) if _is_readable_object(record)]
    records = [part[number] for number in numbers]
    # -1: such a line has no number among the rows that are read.
    unread = tuple(
        (Origin(str(source.path), record.line, -1), str(record.error or "the line holds no row"))
        for record in part
        if not _is_readable_object(record)
    )
    lines = np.array([record.line for record in records], np.int64)
    batch = _batch_of_records(source, records)
    return _FilePart(len(part), np.array(numbers, np.int64), lines, batch, unread)


def _is_readable_object(record: Record) -> bool:
    """Could the line be read, and is it an object?"""
    return record.error is None and isinstance(record.row, dict)


def _batch_of_records(source: DataFile, records: list[Record]) -> Any:
    """The columns of rows that are read here, as a record batch. Raises DataError."""
    names = list(
        dict.fromkeys(name for record in records for name in record.row if name in READ_COLUMNS)
    )
    if not names:
        return arrow.RecordBatch.from_pylist([])
    columns = [_arrow_array_of_column(source, name, records) for name in names]
    return arrow.RecordBatch.from_arrays(columns, names=names)


def _arrow_array_of_column(source: DataFile, name: str, rows: list[Record]) -> Any:
    """A column of JSON rows as an Arrow array. Raises DataError, with the line."""
    values = [record.row.get(name) for record in rows]
    try:
        return arrow.array(
            values, arrow.list_(arrow.float64() if name in MASK_COLUMNS else arrow.int64())
        )
    except (arrow.ArrowException, TypeError, OverflowError):
        line = next(
            (record.line for record in rows if not _is_list_of_numbers(record.row.get(name))),
            rows[0].line,
        )
        raise DataError(
            f"{source.path}:{line}: {name} is not a list of whole numbers, one for each token; write"
            " the ids as numbers"
        ) from None


def _is_list_of_numbers(value: object) -> bool:
    """Is it a list of numbers that fit 64 bits, or nothing?"""
    # Beyond it Arrow raises OverflowError: such a number is no id of any vocabulary.
    limit = 1 << 63
    return value is None or (
        isinstance(value, list)
        and all(isinstance(item, int | float) and -limit <= item < limit for item in value)
    )


def _list_column_laid_end_to_end(batch: Any, name: str, file: str) -> _Column | None:
    """A column of lists of numbers; None where there is none, or it is null throughout. Raises DataError."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    kind = column.type
    if arrow.types.is_null(kind) or (column.null_count == len(column) and len(column)):
        return None
    is_list = (
        arrow.types.is_list(kind)
        or arrow.types.is_large_list(kind)
        or arrow.types.is_fixed_size_list(kind)
    )
    if not is_list or not _is_numeric(kind.value_type):
        raise DataError(
            f"{file}: the column {name} is {kind}; expected lists of whole numbers, one for each"
            " token"
        )
    lengths = (
        compute.fill_null(compute.list_value_length(column), 0)
        .to_numpy(zero_copy_only=False)
        .astype(np.int64)
    )
    missing = column.is_null().to_numpy(zero_copy_only=False).astype(np.bool_)
    # The values of this batch alone: `column.values` would give those of the whole array behind the
    # slice.
    flat = compute.list_flatten(column)
    if flat.null_count:
        # A null inside a list: its row is broken, and the value below only keeps the columns
        # parallel.
        holes = np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))
        missing[np.unique(np.searchsorted(np.cumsum(lengths), holes, side="right"))] = True
        flat = flat.fill_null(False if arrow.types.is_boolean(flat.type) else 0)
    return _Column(flat.to_numpy(zero_copy_only=False), lengths, missing)


def _is_numeric(kind: Any) -> bool:
    """Does a column hold numbers or truth values?"""
    return bool(
        arrow.types.is_integer(kind)
        or arrow.types.is_floating(kind)
        or arrow.types.is_boolean(kind)
    )


def _build_chunk_and_set_broken_aside(file: str, rows: Ints, lines: Ints, batch: Any) -> Chunk:
    """A chunk of the rows of a batch whose columns fit together; the others are `broken`. Raises DataError."""
    ids = _list_column_laid_end_to_end(batch, IDS, file)
    if ids is None:
        # No ids at all: every row is missing them, and is reported so.
        is_missing = np.ones(len(rows), np.bool_)
        ids = _Column(np.zeros(0, np.int64), np.zeros(len(rows), np.int64), is_missing)
    parallel = _per_token_columns_by_name(batch, file)
    reasons = _reasons_rows_are_broken(len(rows), ids, parallel)
    broken = tuple(
        (Origin(file, int(lines[row]), int(rows[row])), reason)
        for row, reason in enumerate(reasons)
        if reason
    )
    is_whole = np.array([not reason for reason in reasons], np.bool_)
    # An empty row teaches nothing, and says nothing.
    kept = is_whole & (ids.lengths > 0)
    flat = {name: column.values_of_kept_rows(kept) for name, column in parallel.items()}
    flat_ids = ids.values_of_kept_rows(kept).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(ids.lengths[kept])))
    labels = flat[LABELS].astype(np.int64) if LABELS in flat else None
    masks = tuple(name for name in MASK_COLUMNS if name in flat)
    return Chunk(
        file=file,
        rows=rows[kept],
        lines=lines[kept],
        offsets=offsets,
        ids=flat_ids,
        labels=labels,
        masks=masks,
        supervised=_mask_of_supervised_tokens(
            labels, [flat[name] for name in masks], len(flat_ids)
        ),
        attended=flat[ATTENTION] != 0 if ATTENTION in flat else None,
        borders=_document_starts(flat, offsets, _document_lengths_column(batch, file), kept),
        sources=flat[SOURCES].astype(np.uint8) if SOURCES in flat else None,
        broken=broken,
    )


def _per_token_columns_by_name(batch: Any, file: str) -> dict[str, _Column]:
    """The columns with a number for each token, by name."""
    columns: dict[str, _Column] = {}
    for name in (LABELS, ATTENTION, POSITIONS, SOURCES, *MASK_COLUMNS, *DOCUMENT_COLUMNS):
        column = _list_column_laid_end_to_end(batch, name, file)
        if column is not None:
            columns[name] = column
    return columns


def _document_lengths_column(batch: Any, file: str) -> _Column | None:
    """The column with the lengths of documents; None where there is none."""
    columns = (_list_column_laid_end_to_end(batch, name, file) for name in LENGTH_COLUMNS)
    return next((column for column in columns if column is not None), None)


def _reasons_rows_are_broken(rows: int, ids: _Column, parallel: Mapping[str, _Column]) -> list[str]:
    """(rows,) why a row can't be read; empty where it can. Row by row only where some row is broken."""
    if not _is_any_row_broken(ids, parallel):
        return [""] * rows
    return [_reason_row_is_broken(row, ids, parallel) for row in range(rows)]


def _is_any_row_broken(ids: _Column, parallel: Mapping[str, _Column]) -> bool:
    """Does any row miss a column that others have, or have another number of values in it?"""
    if ids.missing.any():
        return True
    return any(
        column.missing.any() or not np.array_equal(column.lengths, ids.lengths)
        for column in parallel.values()
    )


def _reason_row_is_broken(row: int, ids: _Column, parallel: Mapping[str, _Column]) -> str:
    """Why a row can't be read; empty where it can."""
    if ids.missing[row]:
        return f"{IDS} is null"
    for name, column in parallel.items():
        if column.missing[row]:
            return f"{name} is null, and other rows have it"
        if column.lengths[row] != ids.lengths[row]:
            return f"{int(ids.lengths[row]):,} {IDS} and {int(column.lengths[row]):,} {name}"
    return ""


def _mask_of_supervised_tokens(labels: Ints | None, masks: list[Any], tokens: int) -> Mask:
    """(tokens,) which are in the loss."""
    # Labels win over masks: trainers that find both read the labels.
    if labels is not None:
        return np.asarray(labels != IGNORED)
    if not masks:
        return np.zeros(tokens, np.bool_)
    # Several masks: a trainer multiplies them, so that a token must be in all of them.
    return np.asarray(np.logical_and.reduce([mask != 0 for mask in masks]))


def _document_starts(
    flat: Mapping[str, Any], offsets: Ints, lengths: _Column | None, kept: Mask
) -> Mask:
    """(tokens,) where documents begin: by lengths, position ids, numbers of documents, or a mask
    that numbers them.
    """
    tokens = int(offsets[-1])
    borders = np.zeros(tokens, np.bool_)
    if POSITIONS in flat and tokens:
        positions = flat[POSITIONS]
        # Positions begin again with each document; where they only grow, the row is one text.
        borders[1:] |= positions[1:] < positions[:-1]
    for name in DOCUMENT_COLUMNS:
        if name in flat:
            borders[1:] |= flat[name][1:] != flat[name][:-1]
    # LLaMA-Factory numbers the documents of a pack in the attention mask: 1, 1, 2, 2.
    if ATTENTION in flat and tokens and flat[ATTENTION].max() > 1:
        borders[1:] |= flat[ATTENTION][1:] != flat[ATTENTION][:-1]
    if lengths is not None:
        _mark_document_starts_by_length(borders, offsets, lengths, kept)
    # A row always begins a document, whatever the row before ended with.
    borders[offsets[:-1]] = True
    return borders


def _mark_document_starts_by_length(
    borders: Mask, offsets: Ints, lengths: _Column, kept: Mask
) -> None:
    """Mark where documents begin, by their lengths."""
    values = lengths.values_of_kept_rows(kept).astype(np.int64)
    rows = np.repeat(np.arange(int(kept.sum())), lengths.lengths[kept])
    if not len(values):
        return
    ends = np.cumsum(values)
    # Lengths are summed over all rows of the chunk; what the rows before hold is taken off.
    before = np.concatenate(([0], ends))[np.searchsorted(rows, rows, side="left")]
    starts = offsets[rows] + ends - values - before
    # Lengths that reach beyond their row are wrong: they give no border instead of one in another
    # row.
    inside = (values > 0) & (starts >= offsets[rows]) & (starts < offsets[rows + 1])
    borders[starts[inside]] = True
