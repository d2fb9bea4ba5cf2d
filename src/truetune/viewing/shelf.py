"""Shelf: the rows of files by their number, none of them held; one pass over the files notes where their parts begin.

A file of lines is noted every few hundred kilobytes, Parquet by its row groups, Arrow's file form by its batches.
Packed lines are unpacked up to the part. JSON, CSV, Arrow streams and packed Parquet can only be read from their start.
"""

from __future__ import annotations

import lzma
import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from typing import IO, NamedTuple

from truetune.data.files import Source, open_raw, unpacked
from truetune.data.records import Record, lines, records
from truetune.data.stretches import Stretch, stretches
from truetune.errors import DataError
from truetune.viewing.reading import Lines, Onward, groups, is_lines, missing

STRETCH, PARTS = 1 << 18, 20_000
"""Bytes of lines in a part, and how many parts larger files have"""
TELL_EVERY = 1000
REST = 0.5
"""Seconds that the pass over the files rests at most, where something is looked at"""
READERS = 3
"""Files that are only read onward are open at so many places"""
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)


class Part(NamedTuple):
    """Some rows that stand together in a file, and how they are reached."""

    source: int
    """Number of the file"""
    first: int
    """Number of its first row, over all files"""
    stretch: Stretch | None = None
    """Of a file of lines"""
    group: int | None = None
    """The row group, or the batch"""
    line: int = 1
    """The first row's ordinal in its file, where rows stand in groups"""
    error: DataError | None = None
    """Why the file can't be read from here on; it stands for one row"""


class Shelf:
    """Rows of some files by number. `index` finds them, `start` does so in a thread; `records` reads what is found."""

    def __init__(self, sources: Sequence[Source], *, stretch: int | None = None, kept: int = 512) -> None:
        """`kept`: records that are held of a file that is only read onward."""
        self.sources = tuple(sources)
        self.indexed = 0
        """Rows that are found by now"""
        self.total: int | None = None
        """All rows, once they are found"""
        self.seconds = 0.0
        """What finding them took"""
        self._stamps = [_stamp(source) for source in self.sources]
        self._size = stretch or max(STRETCH, sum(size for size, _ in self._stamps) // PARTS)
        self._kept = kept
        self._parts: list[Part] = []
        self._firsts: list[int] = []
        self._found = threading.Condition()
        self._reading = threading.Lock()
        self._lines: dict[int, Lines] = {}
        self._onward: list[Onward] = []
        self._closed = False
        self._thread: threading.Thread | None = None
        self._free = threading.Event()
        self._free.set()

    def start(self) -> None:
        """Find the rows in a thread."""
        self._thread = threading.Thread(target=self.index, name="truetune rows", daemon=True)
        self._thread.start()

    def index(self) -> None:
        """Go through the files once; what can't be read becomes one row with an error."""
        started = time.perf_counter()
        for number, source in enumerate(self.sources):
            try:
                with open_raw(source.path) as raw:
                    self._index(number, source, raw)
            except (DataError, *UNREADABLE) as error:
                self._note(Part(number, self.indexed, error=_told(source, error)), 1)
        with self._found:
            self.total, self.seconds = self.indexed, time.perf_counter() - started
            self._found.notify_all()

    def wait(self, row: int, seconds: float) -> bool:
        """Until a row is found, all are, or the time is over: is it there?"""
        with self._found:
            self._found.wait_for(lambda: self.indexed > row or self.total is not None, seconds)
            return self.indexed > row

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """The pass over the files rests meanwhile: what is looked at comes first."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def records(self, start: int, count: int) -> list[tuple[Source, Record]]:
        """From row `start` on, of the rows that are found; none once the shelf is closed."""
        found: list[tuple[Source, Record]] = []
        with self._reading:
            while not self._closed and len(found) < count and start + len(found) < self.indexed:
                row = start + len(found)
                number = bisect_right(self._firsts, row) - 1
                part, end = self._parts[number], self._end(number)
                source, asked = self.sources[part.source], min(count - len(found), end - row)
                try:
                    read = self._read(number, part, row - part.first, asked)
                except (DataError, *UNREADABLE) as error:
                    read = [Record(0, None, error=_told(source, error))]
                found += [(source, record) for record in read or [missing(source)]]
        return found

    def lines_at(self, row: int) -> tuple[int, int, bytes] | None:
        """(first row, one past the last, bytes) of the part that holds a row, if it is one of lines."""
        with self._reading:
            number = bisect_right(self._firsts, row) - 1
            if self._closed or row >= self.indexed or (stretch := self._parts[number].stretch) is None:
                return None
            body = self._lines_of(self._parts[number].source).read(stretch.start, stretch.stop)
            return self._firsts[number], self._end(number), body

    def changed(self) -> list[str]:
        """The files that are not as they were."""
        return [str(s.path) for s, stamp in zip(self.sources, self._stamps, strict=True) if _stamp(s) != stamp]

    def close(self) -> None:
        """End what reads, and let go of all files. A thread that Python's end meets inside pyarrow ends the process."""
        self._closed = True
        self._free.set()
        if self._thread is not None:
            self._thread.join()
        with self._reading:
            open_files: list[Lines | Onward] = [*self._lines.values(), *self._onward]
            for reader in open_files:
                reader.close()
            self._lines, self._onward = {}, []

    def _index(self, number: int, source: Source, raw: IO[bytes]) -> None:
        if is_lines(source, raw):
            for stretch, _ in stretches(unpacked(raw, source.path), self._size):
                self._note(Part(number, self.indexed, stretch), stretch.rows)
                if self._closed:
                    return
            return
        line = 1
        for group, rows in enumerate(groups(source, raw)):
            self._note(Part(number, self.indexed, group=group, line=line), rows)
            line += rows
        if line == 1:
            self._count(number, records(source, raw))

    def _count(self, number: int, found: Iterator[Record]) -> None:
        """A file that is one part, of which more and more rows are found."""
        part, told, count = Part(number, self.indexed), 0, 0
        try:
            for count, _ in enumerate(found, 1):
                if count - told == TELL_EVERY:
                    self._note(part, count - told)
                    told = count
                    if self._closed:
                        return
        finally:
            self._note(part, count - told)

    def _note(self, part: Part, rows: int) -> None:
        self._free.wait(REST)
        with self._found:
            if rows and (not self._parts or self._parts[-1] is not part):
                self._parts.append(part)
                self._firsts.append(part.first)
            self.indexed += rows
            self._found.notify_all()

    def _end(self, number: int) -> int:
        """One past the last row of a part."""
        return self._firsts[number + 1] if number + 1 < len(self._firsts) else self.indexed

    def _read(self, number: int, part: Part, at: int, count: int) -> list[Record]:
        source = self.sources[part.source]
        if part.error is not None:
            raise part.error
        if part.stretch is not None:
            start, stop, line, _ = part.stretch
            body = BytesIO(self._lines_of(part.source).read(start, stop))
            return list(islice(lines(body, source.path, line, start), at, at + count))
        found = self._onward_at(number, part, at).records(at, count)
        return found if part.group is None else [r._replace(line=part.line + i) for i, r in enumerate(found, at)]

    def _lines_of(self, number: int) -> Lines:
        if number not in self._lines:
            while len(self._lines) >= READERS:
                self._lines.pop(next(iter(self._lines))).close()
            self._lines[number] = Lines(self.sources[number])
        return self._lines[number]

    def _onward_at(self, number: int, part: Part, at: int) -> Onward:
        """A reader that can go on to a record; the one that was used last stands last."""
        able = [reader for reader in self._onward if reader.part == number and reader.reaches(at)]
        reader = max(able, key=lambda r: r.reached, default=None)
        if reader is None:
            reader = Onward(self.sources[part.source], part.group, number, self._kept, lambda: self._closed)
        else:
            self._onward.remove(reader)
        while len(self._onward) >= READERS:
            self._onward.pop(0).close()
        self._onward.append(reader)
        return reader


def _stamp(source: Source) -> tuple[int, int]:
    """Size and time of a file; (-1, 0) where it is gone."""
    try:
        about = source.path.stat()
    except OSError:
        return -1, 0
    return about.st_size, getattr(about, "st_mtime_ns", 0)


def _told(source: Source, error: Exception) -> DataError:
    if isinstance(error, DataError):
        return error
    return DataError(f"{source.path}: {getattr(error, 'strerror', None) or error}; is the file whole?")
