"""Finds the rows of files by their number, without holding them: one pass over the files notes
where their chunks begin.

Lines, JSON and CSV are noted every few hundred kilobytes, Parquet by its row groups, Arrow's file form by its
batches. Packed texts are unpacked up to the chunk. Arrow streams and packed Parquet can only be read from their
start. The trade-off: a row is reached by reading its chunk up to it, so that an index of a hundred gigabytes has
20,000 entries instead of one for each row.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import islice, pairwise
from typing import IO, NamedTuple

from truetune.data.find_data_files import DataFile, open_decompressed_bytes, open_raw
from truetune.data.read_file_records import Record, read_json_lines, read_part_of_file, read_records
from truetune.data.split_lines_into_stretches import Stretch, cut_stretches
from truetune.errors import DataError
from truetune.parsing.decompress_within_limits import UNREADABLE
from truetune.viewing.read_parts_of_files import (
    OpenReaders,
    has_row_per_line,
    record_for_unreadable_row,
)

# Chosen, not measured: a chunk is what is read and split for one row. Half would double the
# index, twice the size would double the wait. Above 5 GB (20,000 of them) chunks grow, so that
# the index itself stays small.
MIN_CHUNK_BYTES = 1 << 18
MAX_CHUNKS = 20_000
"""Bytes of text in a part, and how many parts larger files have"""
SourcedRecords = Sequence[tuple[DataFile, Record]]
"""Records in the order of the data, each with the file that it is from."""
TABLE_KINDS = ("parquet", "arrow")
# At most half a second, so that somebody who looks at rows all the time can't stop the index
# for good.
MAX_REST_SECONDS = 0.5
"""Seconds that the pass over the files rests at most, where something is looked at"""


class Chunk(NamedTuple):
    """Some rows that stand together in a file, and how they are reached."""

    source: int
    """Number of the file"""
    first: int
    """Number of its first row, over all files"""
    stretch: Stretch | None = None
    """Where it stands in a text; not known of the first part of JSON and CSV"""
    columns: Sequence[str] | None = None
    """Of JSON or CSV, whose rows do not stand on lines: the names of columns"""
    group: int | None = None
    """The row group, or the batch"""
    line: int = 1
    """The first row's line in its file, or its ordinal"""
    error: DataError | None = None
    """Why the file can't be read from here on; it stands for one row"""


class RowIndex:
    """An index of the rows of some files by number. `index` finds them, `start` does so in a
    thread; `records` reads what is found.
    """

    def __init__(
        self, sources: Sequence[DataFile], *, stretch: int | None = None, kept: int = 512
    ) -> None:
        """`kept`: rows that are held of a table that is only read onward."""
        self.sources = tuple(sources)
        self.indexed = 0
        """Rows that are found by now"""
        self.total: int | None = None
        """All rows, once they are found"""
        # Size and time when the index began: places that are noted are those of this version of
        # a file.
        self._stamps = [_size_and_time_of_file(source) for source in self.sources]
        self._size = stretch or max(
            MIN_CHUNK_BYTES, sum(size for size, _ in self._stamps) // MAX_CHUNKS
        )
        self._parts: list[Chunk] = []
        self._firsts: list[int] = []
        self._found = threading.Condition()
        # What is looked at and the count of all rows are at places far from each other: with the
        # same open files each would start again at the beginning of a packed one, time after time.
        self._page_readers, self._count_readers = (
            OpenReaders(self.sources, kept, lambda: self._closed) for _ in range(2)
        )
        self._closed = False
        self._thread: threading.Thread | None = None
        # Set: the pass over the files may continue.
        self._free = threading.Event()
        self._free.set()

    def start(self) -> None:
        """Index the rows in a thread."""
        self._thread = threading.Thread(target=self.index, name="truetune rows", daemon=True)
        self._thread.start()

    def index(self) -> None:
        """Go through the files once; what can't be read becomes one row with an error."""
        for number, source in enumerate(self.sources):
            try:
                with open_raw(source.path) as raw:
                    for part, rows in self._find_chunks(number, source, raw):
                        self._add_chunk(part, rows)
                        if self._closed:
                            return
            except (DataError, *UNREADABLE) as error:
                self._add_chunk(Chunk(number, self.indexed, error=_as_data_error(source, error)), 1)
        with self._found:
            self.total = self.indexed
            self._found.notify_all()

    def wait(self, row: int, seconds: float) -> bool:
        """Wait until a row is found, all are, or the time is over: is the row there?"""
        with self._found:
            self._found.wait_for(
                lambda: self.indexed > row or self.total is not None or self._closed, seconds
            )
            return self.indexed > row

    @contextmanager
    def pause_indexing(self) -> Iterator[None]:
        """The pass over the files rests meanwhile: what is looked at comes first."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def records(
        self, start: int, count: int, *, for_count: bool = False
    ) -> list[tuple[DataFile, Record]]:
        """The records from row `start` on, of the rows that are found; none once it is closed.

        Args:
            start: number of the first row.
            count: so many records at most.
            for_count: for the count of all rows, which reads from first to last beside the page.
        """
        records: list[tuple[DataFile, Record]] = []
        readers = self._count_readers if for_count else self._page_readers
        with readers.lock:
            # One chunk after the other, until there are enough rows.
            while not self._closed and len(records) < count and start + len(records) < self.indexed:
                row = start + len(records)
                number = bisect_right(self._firsts, row) - 1
                part, end = self._parts[number], self._end_of_chunk(number)
                source, wanted = self.sources[part.source], min(count - len(records), end - row)
                try:
                    read = self._read_records(readers, number, row - part.first, wanted)
                except (DataError, *UNREADABLE) as error:
                    read = [Record(0, None, error=_as_data_error(source, error))]
                # A chunk that gives no row was found once and is gone: one row says so, and the
                # numbers of the others stay.
                records += [
                    (source, record) for record in read or [record_for_unreadable_row(source)]
                ]
        return records

    def text_of_chunk_at(self, row: int) -> tuple[int, int, bytes, bool] | None:
        """(first row, one past the last, bytes, is it a row a line?) of the chunk of text that
        holds a row; None where it is no text.
        """
        with self._page_readers.lock:
            if self._closed or row >= self.indexed:
                return None
            number = bisect_right(self._firsts, row) - 1
            part = self._parts[number]
            # A table has no text that could be searched as bytes.
            if part.stretch is None:
                return None
            body = self._page_readers.text(part.source).read(part.stretch.start, part.stretch.stop)
            return part.first, self._end_of_chunk(number), body, part.columns is None

    def rows_of_files(self) -> list[tuple[DataFile, range]]:
        """The files with the rows that each of them holds, as far as they are found."""
        with self._found:
            firsts: dict[int, int] = {}
            for part in self._parts:
                firsts.setdefault(part.source, part.first)
            borders = [*firsts.values(), self.indexed]
        return [
            (self.sources[source], range(*rows))
            for source, rows in zip(firsts, pairwise(borders), strict=True)
        ]

    def changed_files(self) -> list[str]:
        """The files that were changed: whose size or time is another than when the index was made."""
        return [
            str(s.path)
            for s, stamp in zip(self.sources, self._stamps, strict=True)
            if _size_and_time_of_file(s) != stamp
        ]

    def close(self) -> None:
        """Stop the readers, and close all files."""
        with self._found:
            self._closed = True
            self._found.notify_all()
        self._free.set()
        # The lock below is taken when it has ended: it may be in the middle of a read.
        if self._thread is not None:
            self._thread.join()
        for readers in (self._page_readers, self._count_readers):
            with readers.lock:
                readers.close()

    def _find_chunks(
        self, number: int, source: DataFile, raw: IO[bytes]
    ) -> Iterator[tuple[Chunk, int]]:
        """(chunk, number of its rows) of a file; a chunk may come again, with more of them."""
        if has_row_per_line(source, raw):
            for stretch, _ in cut_stretches(
                open_decompressed_bytes(raw, source.path), self._size, source.path
            ):
                yield Chunk(number, self.indexed, stretch), stretch.rows
        elif source.kind in TABLE_KINDS:
            yield from self._find_chunks_of_table(number, source, raw)
        else:
            yield from self._find_chunks_of_text(number, read_records(source, raw))

    def _find_chunks_of_table(
        self, number: int, source: DataFile, raw: IO[bytes]
    ) -> Iterator[tuple[Chunk, int]]:
        """(chunk, number of its rows) of a table: its row groups or batches."""
        from truetune.data.read_parquet_and_arrow_rows import (
            count_rows_of_parts,
            read_record_batches,
        )

        line, whole = 1, Chunk(number, self.indexed)
        for group, rows in enumerate(count_rows_of_parts(source, raw)):
            yield Chunk(number, self.indexed, group=group, line=line), rows
            line += rows
        # Neither groups nor batches are known without reading: an Arrow stream, or a packed
        # file. It is one chunk, which grows.
        if line == 1:
            yield from ((whole, batch.num_rows) for batch in read_record_batches(source, raw))

    def _find_chunks_of_text(
        self, number: int, records: Iterator[Record]
    ) -> Iterator[tuple[Chunk, int]]:
        """(chunk, number of its rows) of JSON or CSV, which are cut after rows."""
        part, start, stop, count = Chunk(number, self.indexed), 0, 0, 0

        def cut() -> tuple[Chunk, int]:
            return (
                part._replace(stretch=Stretch(start, stop, part.line, count)) if start else part
            ), count

        try:
            for record in records:
                # A chunk ends behind a row, never inside of one: JSON and CSV can't be read
                # from the middle of a row.
                if stop - start >= self._size:
                    yield cut()
                    # The names of CSV's columns stand at the head of the file only, so each
                    # chunk takes them along.
                    columns = list(record.row) if isinstance(record.row, dict) else []
                    part = Chunk(
                        number, self.indexed, columns=part.columns or columns, line=record.line
                    )
                    start, count = stop, 0
                stop, count = record.stop, count + 1
        # The rows up to the damage are there and must be noted before it is told.
        except DataError:
            yield cut()
            raise
        yield cut()

    def _add_chunk(self, part: Chunk, rows: int) -> None:
        """Add a chunk to the index; one that grows comes again, with more rows."""
        # Rows that somebody looks at come before the index.
        self._free.wait(MAX_REST_SECONDS)
        with self._found:
            # A chunk that grows comes again: then only its rows are added.
            if rows and part not in self._parts[-1:]:
                self._parts.append(part)
                self._firsts.append(part.first)
            self.indexed += rows
            self._found.notify_all()

    def _end_of_chunk(self, number: int) -> int:
        """One past the last row of a chunk."""
        return self._firsts[number + 1] if number + 1 < len(self._firsts) else self.indexed

    def _read_records(self, readers: OpenReaders, number: int, at: int, count: int) -> list[Record]:
        """Read records `at` to `at + count` of a chunk."""
        part = self._parts[number]
        source = self.sources[part.source]
        if part.error is not None:
            raise part.error
        if part.stretch is not None:
            start, stop, line, _ = part.stretch
            body = BytesIO(readers.text(part.source).read(start, stop))
            if part.columns is None:
                return list(islice(read_json_lines(body, source.path, line, start), at, at + count))
            whole = list(islice(read_part_of_file(body, source, part.columns), at + count))
            return [
                # Lines are counted from the chunk, and start where the chunk starts in its
                # file.
                record._replace(line=record.line + line - whole[0].line)
                for record in whole[at:]
            ]
        if source.kind in TABLE_KINDS:
            rows = readers.reader_of_table_part(part.source, part.group, number, at).rows(at, count)
            return [Record(line, row) for line, row in enumerate(rows, part.line + at)]
        with open_raw(source.path) as raw:
            return list(islice(read_records(source, raw), at, at + count))


def _size_and_time_of_file(source: DataFile) -> tuple[int, int]:
    """Size and time of a file; (-1, 0) where it is gone."""
    try:
        about = source.path.stat()
    except OSError:
        return -1, 0
    return about.st_size, getattr(about, "st_mtime_ns", 0)


def _as_data_error(source: DataFile, error: Exception) -> DataError:
    """An error of reading, with the file that it is about."""
    if isinstance(error, DataError):
        return error
    return DataError(
        f"{source.path}: {getattr(error, 'strerror', None) or error}; is the file whole?"
    )
