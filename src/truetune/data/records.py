"""Records: the rows of one file as dictionaries, each with its line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from truetune.data.files import PACKED, Source, unpacked
from truetune.errors import DataError

Record = tuple[int, Any]
"""(line, row): the line of a text file, the ordinal of the row elsewhere; both from 1"""
CHUNK = 1 << 20
BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[\s,]*")


def records(source: Source, raw: IO[bytes]) -> Iterator[Record]:
    """The rows of an open file, one after the other. Raises DataError, naming file and line, where it is broken."""
    readers = {"jsonl": _jsonl, "json": _json, "csv": _csv, "parquet": _parquet, "arrow": _arrow}
    try:
        yield from readers[source.kind](source.path, unpacked(source.path, raw))
    except (OSError, EOFError) as error:
        raise DataError(f"{source.path}: {getattr(error, 'strerror', None) or error}; is the file whole?") from None


def _jsonl(path: Path, file: IO[bytes]) -> Iterator[Record]:
    loads = json.loads
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(BOM)
        try:
            row = loads(line)
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number, error) from None
        except ValueError as error:
            if not line.strip():
                continue
            raise DataError(
                f"{path}:{number}: not JSON: {error}; expected one JSON object on each line, found {_shown(line)}"
            ) from None
        yield number, row


def _json(path: Path, file: IO[bytes]) -> Iterator[Record]:
    """An array of rows, or an object with one array of rows; rows are decoded one by one."""
    text = _Text(io.TextIOWrapper(file, encoding="utf-8-sig", errors="strict"), path)
    if text.skip() == "{":
        text.into_list()
    elif text.skip() != "[":
        raise DataError(f"{path}:{text.line}: expected an array of rows, found {_shown(text.buffer[text.at :])}")
    text.at += 1
    while (first := text.skip()) != "]":
        if not first:
            raise DataError(f"{path}:{text.line}: the file ends inside the array of rows; is it whole?")
        yield text.line, text.value()


class _Text:
    """A window on a text that grows as values are read from it."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self.file, self.path = file, path
        self.buffer, self.at, self.line = "", 0, 1
        self._counted = 0
        self._decoder = json.JSONDecoder()

    def _grow(self) -> bool:
        try:
            more = self.file.read(max(CHUNK, len(self.buffer) - self.at))
        except UnicodeDecodeError as error:
            raise _not_utf8(self.path, self.line, error) from None
        self._count()
        self.buffer = self.buffer[self.at :] + more
        self.at = self._counted = 0
        return bool(more)

    def _count(self) -> None:
        self.line += self.buffer.count("\n", self._counted, self.at)
        self._counted = self.at

    def skip(self) -> str:
        """The next character that is no white space and no comma; empty at the end."""
        while True:
            match = _SPACE.match(self.buffer, self.at)
            assert match is not None
            self.at = match.end()
            if self.at < len(self.buffer):
                self._count()
                return self.buffer[self.at]
            if not self._grow():
                return ""

    def value(self) -> Any:
        """The JSON value that begins here."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self.buffer, self.at)
            except ValueError as error:
                if self._grow():
                    continue
                raise DataError(f"{self.path}:{self.line}: not JSON: {error}") from None
            if end == len(self.buffer) and self._grow():
                continue
            self.at = end
            return value

    def into_list(self) -> None:
        """Stand at the first `[` that is the value of a key of the outer object."""
        self.at += 1
        while self.skip() == '"':
            key = self.value()
            if self.skip() != ":":
                break
            self.at += 1
            if self.skip() == "[":
                return
            self.value()
            del key
        raise DataError(f"{self.path}:{self.line}: expected an array of rows, or an object that holds one")


def _csv(path: Path, file: IO[bytes]) -> Iterator[Record]:
    csv.field_size_limit(1 << 30)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    reader = csv.DictReader(text, delimiter="\t" if ".tsv" in path.suffixes else ",", strict=True)
    line = 2
    try:
        for row in reader:
            if None in row:
                raise DataError(f"{path}:{line}: more fields than the header has columns; are quotes missing?")
            yield line, row
            line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise _not_utf8(path, reader.line_num, error) from None
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not CSV: {error}") from None


def _parquet(path: Path, file: IO[bytes]) -> Iterator[Record]:
    import pyarrow as arrow
    from pyarrow import parquet

    try:
        yield from _batches(parquet.ParquetFile(_seekable(path, file)).iter_batches(batch_size=512))
    except arrow.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file: {error}") from None


def _arrow(path: Path, file: IO[bytes]) -> Iterator[Record]:
    import pyarrow as arrow

    whole = _seekable(path, file)
    head = whole.read(6)
    whole.seek(0)
    try:
        if head == b"ARROW1":
            table = arrow.ipc.open_file(whole)
            yield from _batches(table.get_batch(i) for i in range(table.num_record_batches))
        else:
            yield from _batches(arrow.ipc.open_stream(whole))
    except arrow.ArrowException as error:
        raise DataError(f"{path}: not an Arrow file: {error}") from None


def _seekable(path: Path, file: IO[bytes]) -> Any:
    """The file itself, or all of it in memory where it is compressed."""
    import pyarrow as arrow

    return arrow.BufferReader(file.read()) if path.suffix.lower() in PACKED else file


def _batches(batches: Any) -> Iterator[Record]:
    number = 0
    for batch in batches:
        for start in range(0, batch.num_rows, 512):
            for row in batch.slice(start, 512).to_pylist():
                number += 1
                yield number, row


def _not_utf8(path: Path, line: int, error: UnicodeDecodeError) -> DataError:
    byte = error.object[error.start]
    return DataError(f"{path}:{line}: not UTF-8 (byte 0x{byte:02x} at {error.start}); save the file as UTF-8")


def _shown(text: bytes | str) -> str:
    found = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return repr(found.strip()[:40])
