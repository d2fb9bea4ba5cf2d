"""How parts of files are read: lines from any place, other files onward from a start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import IO

from truetune.data.files import PACKED, Source, open_raw, unpacked
from truetune.data.records import Record, is_array, records
from truetune.errors import DataError

BLOCK, KEPT = 1 << 20, 1 << 22


def is_lines(source: Source, raw: IO[bytes]) -> bool:
    """Does each row stand on a line of its own?"""
    return source.kind == "jsonl" and not is_array(source.path, raw)


def groups(source: Source, raw: IO[bytes]) -> Iterator[int]:
    """The rows of each part that can be read by itself; nothing for files without such parts. Raises DataError."""
    if source.kind in ("parquet", "arrow"):
        from truetune.data.columnar import parts

        yield from parts(source, raw)


class Lines:
    """The bytes of a file of lines. Of a packed one the last few megabytes are kept; what stands before them is
    unpacked from the start of the file."""

    def __init__(self, source: Source) -> None:
        self._path = source.path
        self._raw = open_raw(source.path)
        self._packed = source.path.suffix.lower() in PACKED
        self._at = self._held = 0
        """Bytes that were unpacked, and how many of the last ones are kept"""
        self._restart()

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, unpacked."""
        if not self._packed:
            self._raw.seek(start)
            return self._raw.read(stop - start)
        if start < self._at - self._held:
            self._restart()
        while self._at < stop and (block := self._stream.read(min(BLOCK, stop - self._at))):
            self._blocks.append(block)
            self._at, self._held = self._at + len(block), self._held + len(block)
            while self._held - len(self._blocks[0]) > max(KEPT, stop - start):
                self._held -= len(self._blocks.popleft())
        first = self._at - self._held
        return b"".join(self._blocks)[start - first : stop - first]

    def close(self) -> None:
        self._raw.close()

    def _restart(self) -> None:
        self._stream = unpacked(self._raw, self._path)
        self._blocks: deque[bytes] = deque()
        self._at = self._held = 0


class Onward:
    """The records of a file, or of one of its groups, in order; the last ones are kept."""

    def __init__(self, source: Source, group: int | None, part: int, kept: int, over: Callable[[], bool]) -> None:
        """`over`: is nothing to be read any more?"""
        self.part = part
        self._over = over
        self.reached = 0
        """Records that were read"""
        self._kept: deque[Record] = deque(maxlen=kept)
        self._raw = open_raw(source.path)
        self._records = _of_group(source, self._raw, group, kept) if group is not None else records(source, self._raw)

    def reaches(self, at: int) -> bool:
        """Can it give the record `at` without a new start?"""
        return at >= self.reached - len(self._kept)

    def records(self, at: int, count: int) -> list[Record]:
        """Raises DataError."""
        found = [record for i, record in enumerate(self._kept, self.reached - len(self._kept)) if at <= i < at + count]
        while self.reached < at + count and not self._over() and (record := next(self._records, None)) is not None:
            self._kept.append(record)
            self.reached += 1
            if self.reached > at:
                found.append(record)
        return found

    def close(self) -> None:
        self._raw.close()


def _of_group(source: Source, raw: IO[bytes], group: int, at_once: int) -> Iterator[Record]:
    from truetune.data.columnar import ROWS, rows

    for row in rows(source, raw, group, min(ROWS, at_once)):
        yield Record(0, row)


def missing(source: Source) -> Record:
    """A row that was found and can't be read any more."""
    return Record(0, None, error=DataError(f"{source.path}: this row is not there any more: was the file changed?"))
