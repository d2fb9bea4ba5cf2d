"""Looks up rows far into the data without reading those before them.

Of JSON lines only the blocks with wanted lines are parsed, of Parquet and Arrow only their row groups and batches.
Other files can only be read from their start, and are left out: a report goes without these rows rather than reading
gigabytes twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from io import BytesIO
from typing import IO

from truetune.data.conversation import Conversation, Origin
from truetune.data.find_data_files import (
    DataFile,
    find_data_files_of_paths,
    open_decompressed_bytes,
    open_raw,
)
from truetune.data.read_file_records import Record, is_one_json_array, read_json_lines, read_records
from truetune.data.read_rows_as_conversations import (
    conversations_of_records,
    find_record_that_decides_format,
)
from truetune.data.split_lines_into_stretches import BLOCK_BYTES, cut_stretches
from truetune.settings.run_spec import RunSpec


def read_rows_at_origins(spec: RunSpec, wanted: Collection[Origin]) -> Iterator[Conversation]:
    """The rows at these origins, but for those of files that can only be read from their start. Raises DataError."""
    for source in find_data_files_of_paths(spec.data) if wanted else ():
        row_by_line = {
            origin.line: origin.row for origin in wanted if origin.file == str(source.path)
        }
        if row_by_line:
            with open_raw(source.path) as raw:
                yield from _rows_of_file(spec, source, raw, row_by_line)


def _rows_of_file(
    spec: RunSpec, source: DataFile, raw: IO[bytes], row_by_line: Mapping[int, int]
) -> Iterator[Conversation]:
    """The rows at these lines of one file.

    Args:
        spec: names format and columns, where they are set.
        source: the file.
        raw: the file, opened.
        row_by_line: line -> number of the row, over all files.
    """
    # The first row decides the format of all, as it did when the file was read from its start.
    like = find_record_that_decides_format(
        read_records(source, raw), source, spec.format, spec.map, skips=True
    )
    # A JSON array of one row a line has commas between the lines: its lines are no rows.
    if source.kind == "jsonl" and not is_one_json_array(source.path, raw):
        records = _json_rows_of_blocks(source, raw, row_by_line)
    else:
        records = _table_rows_of_groups(source, raw, row_by_line)
    for record in records:
        yield from conversations_of_records(
            [record],
            source,
            row_by_line[record.line],
            format=spec.format,
            columns=spec.map,
            like=like,
            on_broken=lambda *_: None,
        )


def _json_rows_of_blocks(
    source: DataFile, raw: IO[bytes], wanted: Collection[int]
) -> Iterator[Record]:
    """The wanted rows of a file of JSON lines; only the blocks that hold them are parsed."""
    for stretch, block in cut_stretches(
        open_decompressed_bytes(raw, source.path), BLOCK_BYTES, source.path
    ):
        here = range(stretch.line, stretch.line + block.count(b"\n") + 1)
        if any(line in here for line in wanted):
            yield from (
                r
                for r in read_json_lines(BytesIO(block), source.path, stretch.line, stretch.start)
                if r.line in wanted
            )
        # Lines come in order: behind the last that is wanted nothing more is.
        if max(wanted) in here:
            return


def _table_rows_of_groups(
    source: DataFile, raw: IO[bytes], wanted: Collection[int]
) -> Iterator[Record]:
    """The wanted rows of a Parquet or Arrow file; only the row groups and batches that hold them
    are read.
    """
    if source.kind not in ("parquet", "arrow"):
        return
    # Imported here: pyarrow is slow to load, and most data are lines.
    from truetune.data.read_parquet_and_arrow_rows import count_rows_of_parts, read_table_rows

    first = 1
    for part, count in enumerate(list(count_rows_of_parts(source, raw))):
        if any(first <= line < first + count for line in wanted):
            numbered_rows = enumerate(read_table_rows(source, raw, part), first)
            yield from (Record(line, row) for line, row in numbered_rows if line in wanted)
        first += count
