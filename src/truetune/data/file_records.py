"""Records: the rows of one file as they stand there, each with its line.

Each format is read as a stream: memory does not grow with the file. A line of JSONL that holds no row becomes a record
with an error, and the lines behind it are read; a JSON array, a CSV file or a table that breaks ends there, since
nothing says where its next row begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from truetune.data.find_data_files import Source, open_unpacked
from truetune.data.json_stream_window import JsonWindow, not_utf8, shorten_token
from truetune.data.remote_path import DataPath
from truetune.errors import DataError, shorten_name
from truetune.parsing import InputLimitError
from truetune.parsing.bounded_files import bounded_lines, too_long_in_words
from truetune.parsing.csv_reader import CsvReader
from truetune.parsing.csv_reader import Error as CsvError
from truetune.parsing.decompression import UNREADABLE
from truetune.parsing.json_reader import Decoded, JSONDecodeError, RowDecoder, replace_surrogates

BOM = b"\xef\xbb\xbf"
MIN_ROW_BYTES = 8
"""Bytes; a shorter line may be blank, and a blank one need not fail as JSON first."""


class Record(NamedTuple):
    """A row of a file, and where it stands."""

    line: int
    """The line of a text file, the ordinal of the row elsewhere; both from 1."""
    row: Any
    repaired: bool = False
    """Lone surrogates were replaced."""
    error: DataError | None = None
    """Why this line holds no row; the lines after it can be read."""
    stop: int = 0
    """How many bytes of a JSON or CSV text stand before what follows the row; 0 elsewhere."""
    duplicate_key: str | None = None
    """A key that an object of the row has twice; `row` has the last of its values."""
    start: int = 0
    """How many bytes of a JSON text that is not one of lines stand before the row; 0 elsewhere."""
    left_over: Mapping[str, Any] = MappingProxyType({})
    """Columns of the file's row that are no part of `row`: those that a training script leaves unread."""
    read: Mapping[str, str] = MappingProxyType({})
    """Those that the script reads: `row` is made of them."""


def read_records(source: Source, raw: IO[bytes]) -> Iterator[Record]:
    """The rows of an open file, one after the other. Raises DataError, naming file and line, where it has to stop."""
    try:
        match source.kind:
            # A whole array in a file called .jsonl is common; read by lines, all of it would be one
            # broken row.
            case "jsonl" if not is_array(source.path, raw):
                yield from read_json_lines(open_unpacked(raw, source.path), source.path)
            case "jsonl" | "json":
                yield from _read_json(source.path, raw)
            case "csv":
                yield from _read_csv(open_unpacked(raw, source.path), source.path)
            case _:
                # Here and not above: pyarrow is slow to import, and most data are JSONL.
                from truetune.data.parquet_and_arrow_rows import read_table_rows

                for line, row in enumerate(read_table_rows(source, raw), 1):
                    yield Record(line, row)
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{source.path}: {reason}; is the file whole?") from None


def read_part(part: IO[bytes], source: Source, columns: Sequence[str]) -> Iterator[Record]:
    """The rows of a part of a JSON or CSV text that begins and ends behind one; lines are counted from 1."""
    yield from (
        _read_csv(part, source.path, columns)
        if source.kind == "csv"
        else _read_values(JsonWindow(part, source.path))
    )


def is_array(path: DataPath, raw: IO[bytes]) -> bool:
    """Is it one JSON array? They are often called .jsonl."""
    return open_unpacked(raw, path).read(256).removeprefix(BOM).lstrip().startswith(b"[")


def read_json_lines(
    file: IO[bytes], path: DataPath, first: int = 1, offset: int = 0
) -> Iterator[Record]:
    """One row a line.

    Args:
        file: the lines.
        path: the file that they are from, for messages.
        first: the number of the first line in its file.
        offset: how many bytes of the file stand before it.

    Raises DataError where nearly all lines are blank. A line that holds no row is a record with an error.
    """
    decoder = RowDecoder()
    for number, line, size in _numbered_lines(file, path, first):
        # Lines of white space hold no row, and are counted: the numbers of lines must be the
        # editor's.
        if size < MIN_ROW_BYTES and line.isspace():
            offset += size
            continue
        try:
            text = line.decode()
            decoded = decoder.read_line(text)
            # The quick way for nearly all lines: decoded once, nothing but white space behind the
            # value.
            whole = decoded.end == len(text) or text[decoded.end :].isspace()
        except ValueError:
            whole = False
        if whole:
            yield _record_of_line(number, decoded, text)
        elif not line:
            yield Record(number, None, error=DataError(f"{path}:{number}: {too_long_in_words()}"))
        elif line.strip():
            yield _record_of_odd_line(line, number, offset, path)
        offset += size


def _numbered_lines(
    file: IO[bytes], path: DataPath, first: int
) -> Iterator[tuple[int, bytes, int]]:
    """(number, line, bytes) of each line; one that is too long is empty. Raises DataError for a file of blank lines."""
    try:
        for number, (line, size) in enumerate(bounded_lines(file, first=first), first):
            yield number, line, size
    except InputLimitError as error:
        raise DataError(f"{path}:{error.lineno}: {error.msg}") from None


def _record_of_line(number: int, decoded: Decoded, text: str) -> Record:
    """The record of a line that is one JSON value."""
    row, repaired = replace_surrogates(decoded.value, text)
    return Record(number, row, repaired, None, 0, decoded.duplicate_key)


def _record_of_odd_line(line: bytes, number: int, offset: int, path: DataPath) -> Record:
    """A line with a byte order mark, with space before the row, or broken."""
    try:
        # Everything that the quick way refused is read again, slowly, to name what is wrong.
        text = (line.removeprefix(BOM) if number == 1 else line).decode().strip(" \t\r\n")
        decoded = RowDecoder().read_line(text)
        if decoded.end < len(text):
            raise JSONDecodeError("Extra data", text, decoded.end)
        return _record_of_line(number, decoded, text)
    except UnicodeDecodeError as error:
        return Record(number, None, error=not_utf8(path, number, offset, error))
    except InputLimitError as error:
        return Record(
            number,
            None,
            error=DataError(f"{path}:{number}: not JSON that can be read: {error.msg}"),
        )
    except ValueError as error:
        expected = f"expected one JSON object on each line, found {shorten_token(text)}"
        return Record(
            number, None, error=DataError(f"{path}:{number}: not JSON: {error}; {expected}")
        )


def _read_json(path: DataPath, raw: IO[bytes]) -> Iterator[Record]:
    """An array of rows, an object that holds one, or rows one after the other; decoded one by one."""
    window = JsonWindow(open_unpacked(raw, path), path)
    first = window.peek()
    if first == "[":
        yield from _read_array(window)
        window.skip_bracket("")
    elif first != "{":
        raise DataError(
            f"{path}:{window.line}: expected an array of rows, found {window.next_text or 'nothing'}"
        )
    else:
        name = window.enter_next_row_list()
        if name is None:
            # No list of rows inside: the object was itself a row, maybe the first of several. Begin again.
            window = JsonWindow(open_unpacked(raw, path), path)
            yield from _read_values(window, until="")
            return
        yield from _read_array(window)
        other = window.enter_next_row_list()
        if other is not None:
            # Which of the two is meant, or both, only the user knows.
            raise DataError(
                f"{path}:{window.line}: two lists of rows, {name} and {other}; give each its own"
                " file"
            )
        window.skip_bracket("}")
        window.skip_bracket("")


def _read_array(window: JsonWindow) -> Iterator[Record]:
    """The values of an array, with its brackets."""
    window.skip_character()
    yield from _read_values(window)
    window.skip_bracket("]")


def _read_values(window: JsonWindow, until: str = "]") -> Iterator[Record]:
    """The values up to a closing bracket, or to the end of the text."""
    while window.peek() not in (until, ""):
        yield _read_value(window)


def _read_value(window: JsonWindow) -> Record:
    """The next value, with where it begins and ends."""
    line, start = window.line, window.offset
    row, changed, key = window.read_value()
    return Record(line, row, changed, None, window.offset, key, start)


def _read_csv(
    lines: IO[bytes], path: DataPath, columns: Sequence[str] | None = None
) -> Iterator[Record]:
    """`columns`: those of the file, where its header stands before these lines."""
    text = _DecodedLines(lines, path, 1 if columns is None else 2)
    reader = CsvReader(text, delimiter="\t" if ".tsv" in path.suffixes else ",", strict=True)
    line = 1
    try:
        header = next(reader, []) if columns is None else columns
        # A dictionary would keep the last of the two, and nobody would miss the other.
        twice = _first_duplicate(header)
        if twice is not None:
            raise DataError(
                f"{path}:1: two columns are called {shorten_name(repr(twice))}; rename one"
            )
        line = reader.line_num + 1
        for fields in reader:
            # The csv module gives a blank line as no fields. Any other number shifts values into
            # wrong columns.
            if len(fields) not in (0, len(header)):
                raise DataError(
                    f"{path}:{line}: found fields: {len(fields)}, columns of the header:"
                    f" {len(header)}; are quotes missing?"
                )
            if fields:
                yield Record(line, dict(zip(header, fields, strict=True)), False, None, text.offset)
            line = reader.line_num + 1
    except CsvError as error:
        raise DataError(f"{path}:{line}: not CSV: {error}") from None
    except InputLimitError as error:
        raise DataError(f"{path}:{line}: {error.msg}") from None


def _first_duplicate(names: Sequence[str]) -> str | None:
    """The first name that stands twice, in the order of the alphabet; None where there is none."""
    return min((name for name, count in Counter(names).items() if count > 1), default=None)


class _DecodedLines:
    """The lines of a text; `offset` bytes of it were given."""

    def __init__(self, lines: IO[bytes], path: DataPath, first: int) -> None:
        self.offset = 0
        self._path, self._lines = path, _numbered_lines(lines, path, first)

    def __iter__(self) -> Iterator[str]:
        for number, line, size in self._lines:
            if not line:
                raise DataError(f"{self._path}:{number}: {too_long_in_words()}")
            try:
                text = (line.removeprefix(BOM) if number == 1 else line).decode()
            except UnicodeDecodeError as error:
                raise not_utf8(self._path, number, self.offset, error) from None
            self.offset += size
            yield text
