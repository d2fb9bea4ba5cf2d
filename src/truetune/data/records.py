"""Records: the rows of one file as they stand there, each with its line."""

from __future__ import annotations

import csv
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from truetune.data.files import Source, unpacked
from truetune.data.json_text import mended
from truetune.data.remote import Place
from truetune.data.window import Window, not_utf8, shown
from truetune.errors import DataError

BOM = b"\xef\xbb\xbf"


class Record(NamedTuple):
    line: int
    """The line of a text file, the ordinal of the row elsewhere; both from 1."""
    row: Any
    mended: bool = False
    """Lone surrogates were replaced."""
    error: DataError | None = None
    """Why this line holds no row; the lines after it can be read."""
    stop: int = 0
    """How many bytes of a JSON or CSV text stand before what follows the row; 0 elsewhere."""


def records(source: Source, raw: IO[bytes]) -> Iterator[Record]:
    """The rows of an open file, one after the other. Raises DataError, naming file and line, where it can't go on."""
    try:
        match source.kind:
            case "jsonl" if not is_array(source.path, raw):
                yield from lines(unpacked(raw, source.path), source.path)
            case "jsonl" | "json":
                yield from _json(source.path, raw)
            case "csv":
                yield from _csv(unpacked(raw, source.path), source.path)
            case _:
                from truetune.data.columnar import rows

                for line, row in enumerate(rows(source, raw), 1):
                    yield Record(line, row)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{source.path}: {reason}; is the file whole?") from None


def records_of(part: IO[bytes], source: Source, columns: Sequence[str]) -> Iterator[Record]:
    """The rows of a part of a JSON or CSV text that begins and ends behind one; lines are counted from 1."""
    yield from _csv(part, source.path, columns) if source.kind == "csv" else _values(Window(part, source.path))


def is_array(path: Place, raw: IO[bytes]) -> bool:
    """Is it one JSON array? They are often called .jsonl."""
    return unpacked(raw, path).read(256).removeprefix(BOM).lstrip().startswith(b"[")


def lines(file: IO[bytes], path: Place, first: int = 1, offset: int = 0) -> Iterator[Record]:
    """One row a line; `first` and `offset` say at which line and byte the stream begins in its file."""
    decode = json.JSONDecoder().raw_decode
    for number, line in enumerate(file, first):
        try:
            text = line.decode()
            row, end = decode(text)
            whole = end >= len(text) - 1 or text[end:].isspace()
        except (ValueError, RecursionError):
            whole = False
        if whole:
            yield Record(number, *mended(row, text))
        elif line.strip():
            yield _odd_line(line, number, offset, path)
        offset += len(line)


def _odd_line(line: bytes, number: int, offset: int, path: Place) -> Record:
    """A line with a byte order mark, with space before the row, or broken."""
    try:
        text = (line.removeprefix(BOM) if number == 1 else line).decode()
        return Record(number, *mended(json.loads(text), text))
    except UnicodeDecodeError as error:
        return Record(number, None, error=not_utf8(path, number, offset, error))
    except (ValueError, RecursionError) as error:
        expected = f"expected one JSON object on each line, found {shown(text)}"
        return Record(number, None, error=DataError(f"{path}:{number}: not JSON: {error}; {expected}"))


def _json(path: Place, raw: IO[bytes]) -> Iterator[Record]:
    """An array of rows, an object that holds one, or rows one after the other; decoded one by one."""
    window = Window(unpacked(raw, path), path)
    first = window.peek()
    if first == "[":
        yield from _array(window)
        window.close("")
    elif first != "{":
        raise DataError(f"{path}:{window.line}: expected an array of rows, found {window.here or 'nothing'}")
    elif (name := window.into_rows()) is not None:
        yield from _array(window)
        if (other := window.into_rows()) is not None:
            raise DataError(f"{path}:{window.line}: two lists of rows, {name} and {other}; give each its own file")
        window.close("}")
        window.close("")
    else:
        window = Window(unpacked(raw, path), path)
        while window.peek():
            yield _value(window)


def _array(window: Window) -> Iterator[Record]:
    window.step()
    yield from _values(window)
    window.close("]")


def _values(window: Window) -> Iterator[Record]:
    while window.peek() not in ("]", ""):
        yield _value(window)


def _value(window: Window) -> Record:
    line = window.line
    row, changed = window.value()
    return Record(line, row, changed, None, window.offset)


def _csv(lines: IO[bytes], path: Place, columns: Sequence[str] | None = None) -> Iterator[Record]:
    """`columns`: those of the file, where its header stands before these lines."""
    csv.field_size_limit(1 << 30)
    text = _Decoded(lines, path, 1 if columns is None else 2)
    reader = csv.reader(text, delimiter="\t" if ".tsv" in path.suffixes else ",", strict=True)
    line = 1
    try:
        header = next(reader, []) if columns is None else columns
        if twice := {name for name in header if header.count(name) > 1}:
            raise DataError(f"{path}:1: two columns are called {sorted(twice)[0]!r}; rename one")
        line = reader.line_num + 1
        for fields in reader:
            if len(fields) not in (0, len(header)):
                raise DataError(
                    f"{path}:{line}: found fields: {len(fields)}, columns of the header: {len(header)}; "
                    "are quotes missing?"
                )
            if fields:
                yield Record(line, dict(zip(header, fields, strict=True)), False, None, text.offset)
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{line}: not CSV: {error}") from None


class _Decoded:
    """The lines of a text; `offset` bytes of it were given."""

    def __init__(self, lines: IO[bytes], path: Place, first: int) -> None:
        self.offset = 0
        self._path, self._lines = path, enumerate(lines, first)

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            try:
                text = (line.removeprefix(BOM) if number == 1 else line).decode()
            except UnicodeDecodeError as error:
                raise not_utf8(self._path, number, self.offset, error) from None
            self.offset += len(line)
            yield text
