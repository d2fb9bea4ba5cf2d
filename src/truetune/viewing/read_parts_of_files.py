"""Reads parts of files: texts from any byte, tables forward from a start.

A text file can be read from any byte, unless it is packed: then it is unpacked from its start, and its last
megabytes are kept, since pages continue where they were. Some tables can only be read onward as well; their last
batches are kept. The trade-off: going far back in a packed file takes as long as reading up to there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any

from truetune.data.find_data_files import (
    COMPRESSION_SUFFIXES,
    DataFile,
    open_decompressed_bytes,
    open_raw,
)
from truetune.data.read_file_records import Record, is_one_json_array
from truetune.errors import DataError

# Chosen, not measured: 1 MiB is read at once, so that closing the view waits for one block at
# most, and 4 MiB behind the place are kept, some sixteen chunks of the index. Half of that
# makes the "previous" button unpack from the start more often; double costs memory for each
# open file.
BLOCK_BYTES = 1 << 20
KEPT_BYTES = 1 << 22
# Chosen, not measured: a page and a search may be at two places, and one more is for going
# back.
MAX_READERS = 3
"""Tables that are only read onward are open at so many places, and so many texts are open"""


def has_row_per_line(source: DataFile, raw: IO[bytes]) -> bool:
    """Does each row stand on a line of its own?"""
    return source.kind == "jsonl" and not is_one_json_array(source.path, raw)


class TextReader:
    """Reads the bytes of a text file from any place. Of a packed one the last few megabytes are
    kept; what is before them is unpacked from the start of the file.
    """

    def __init__(self, source: DataFile, over: Callable[[], bool]) -> None:
        """`over`: is nothing to be read any more?"""
        self._over = over
        self._path = source.path
        self._raw = open_raw(source.path)
        self._packed = source.path.suffix.lower() in COMPRESSION_SUFFIXES
        self._at = self._held = 0
        """Bytes that were unpacked, and how many of the last ones are kept"""
        self._restart()

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, unpacked."""
        if not self._packed:
            self._raw.seek(start)
            return self._raw.read(stop - start)
        # Before what is kept: there is no way but from the beginning.
        if start < self._at - self._held:
            self._restart()
        # Asked before each block: a thread that reads on when Python ends would meet closed
        # libraries.
        while self._at < stop and not self._over():
            block = self._stream.read(min(BLOCK_BYTES, stop - self._at))
            if not block:
                break
            self._blocks.append(block)
            self._at, self._held = self._at + len(block), self._held + len(block)
            # A single part may be larger than what is kept: it must be whole.
            while self._held - len(self._blocks[0]) > max(KEPT_BYTES, stop - start):
                self._held -= len(self._blocks.popleft())
        first = self._at - self._held
        return b"".join(self._blocks)[start - first : stop - first]

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _restart(self) -> None:
        """Begin to unpack again at the start of the file."""
        self._stream = open_decompressed_bytes(self._raw, self._path)
        self._blocks: deque[bytes] = deque()
        self._at = self._held = 0


class ForwardReader:
    """Reads the rows of a Parquet or Arrow file, or of one of its groups, in order; the last
    batches are held.
    """

    def __init__(
        self, source: DataFile, group: int | None, part: int, kept: int, over: Callable[[], bool]
    ) -> None:
        """`over`: is nothing to be read any more?"""
        from truetune.data.read_parquet_and_arrow_rows import read_record_batches

        self.part = part
        self.reached = 0
        """Rows that were passed"""
        self._source, self._kept, self._over = source, kept, over
        self._held: deque[tuple[int, Any]] = deque()
        """Batches of `kept` rows or more, each with the number of its first row"""
        self._raw = open_raw(source.path)
        self._batches = read_record_batches(source, self._raw, group, kept)

    def can_reach_row_without_restart(self, at: int) -> bool:
        """Does the reader reach the row `at`, so that it can give it without a new start?"""
        return at >= (self._held[0][0] if self._held else 0)

    def rows(self, at: int, count: int) -> list[Any]:
        """The next `count` rows from row `at` on. Raises DataError."""
        from truetune.data.read_parquet_and_arrow_rows import batch_to_rows

        rows: list[Any] = []
        while len(rows) < count:
            held = self._batch_that_holds(at + len(rows))
            if held is None:
                break
            first, batch = held
            rows += batch_to_rows(
                self._source, batch.slice(at + len(rows) - first, count - len(rows))
            )
        return rows

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _batch_that_holds(self, at: int) -> tuple[int, Any] | None:
        """(number of its first row, batch) of the batch that holds the row `at`; None where the
        file ends before.
        """
        while self.reached <= at and not self._over():
            batch = next(self._batches, None)
            if batch is None:
                break
            self._held.append((self.reached, batch))
            self.reached += batch.num_rows
            # Of each batch the rows are counted, so that at least `kept` rows before the reader
            # stay.
            while len(self._held) > 1 and self.reached - self._held[1][0] >= self._kept:
                self._held.popleft()
        return next(
            ((first, batch) for first, batch in self._held if first <= at < first + batch.num_rows),
            None,
        )


class OpenReaders:
    """The readers that are open for one use, a few of each kind; `lock` is held while they read."""

    def __init__(self, sources: Sequence[DataFile], kept: int, over: Callable[[], bool]) -> None:
        """No file is opened yet.

        Args:
            sources: the files, by their numbers.
            kept: rows that are held of a table that is only read onward.
            over: is nothing to be read any more?
        """
        self.lock = threading.Lock()
        self._sources, self._kept, self._over = sources, kept, over
        self._texts: dict[int, TextReader] = {}
        self._tables: list[ForwardReader] = []

    def text(self, number: int) -> TextReader:
        """The open text reader of a file; the oldest of too many is closed."""
        if number not in self._texts:
            # In the order in which they were opened; a page reads one or two files at a time.
            while len(self._texts) >= MAX_READERS:
                self._texts.pop(next(iter(self._texts))).close()
            self._texts[number] = TextReader(self._sources[number], self._over)
        return self._texts[number]

    def reader_of_table_part(
        self, number: int, group: int | None, part: int, at: int
    ) -> ForwardReader:
        """A reader of a part of a table that can continue to row `at` of it; the one that was used
        last is last in the list.
        """
        able = [
            reader
            for reader in self._tables
            if reader.part == part and reader.can_reach_row_without_restart(at)
        ]
        # The one that is furthest on has the least to pass over.
        reader = max(able, key=lambda r: r.reached, default=None)
        if reader is None:
            reader = ForwardReader(self._sources[number], group, part, self._kept, self._over)
        else:
            self._tables.remove(reader)
        # The one that was used longest ago is closed.
        while len(self._tables) >= MAX_READERS:
            self._tables.pop(0).close()
        self._tables.append(reader)
        return reader

    def close(self) -> None:
        """Close all files."""
        open_files: list[TextReader | ForwardReader] = [*self._texts.values(), *self._tables]
        for reader in open_files:
            reader.close()
        self._texts, self._tables = {}, []


def record_for_unreadable_row(source: DataFile) -> Record:
    """A record in the place of a row that was found and can't be read any more."""
    return Record(
        0,
        None,
        error=DataError(f"{source.path}: this row is not there any more: was the file changed?"),
    )
