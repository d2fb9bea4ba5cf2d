"""Reads the rows of one file as they are there, each with its line.

Each format is read as a stream: memory does not grow with the file. A line of JSONL that holds no row becomes a record
with an error, and the lines behind it are read; a JSON array, a CSV file or a table that breaks ends there, since
nothing says where its next row begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from truetune.data.find_data_files import DataFile, open_decompressed_bytes
from truetune.data.json_stream_window import JsonWindow, not_utf8_error, quote_shortened
from truetune.data.remote_path import DataPath
from truetune.errors import DataError, shorten_name
from truetune.parsing import InputLimitError
from truetune.parsing.decompress_within_limits import UNREADABLE
from truetune.parsing.parse_json_within_limits import (
    Decoded,
    JSONDecodeError,
    RowDecoder,
    replace_lone_surrogates,
)
from truetune.parsing.read_csv_within_limits import CsvReader
from truetune.parsing.read_csv_within_limits import Error as CsvError
from truetune.parsing.read_files_within_limits import lines_within_limit, message_for_too_long_line

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


def read_records(source: DataFile, raw: IO[bytes]) -> Iterator[Record]:
    """The rows of an open file, one after the other. Raises DataError, naming file and line, where it has to stop."""
    try:
        match source.kind:
            # A whole array in a file called .jsonl is common; read by lines, all of it would be one
            # broken row.
            case "jsonl" if not is_one_json_array(source.path, raw):
                yield from read_json_lines(open_decompressed_bytes(raw, source.path), source.path)
            case "jsonl" | "json":
                yield from _read_json_file(source.path, raw)
            case "csv":
                yield from _read_csv(open_decompressed_bytes(raw, source.path), source.path)
            case _:
                # Here and not above: pyarrow is slow to import, and most data are JSONL.
                from truetune.data.read_parquet_and_arrow_rows import read_table_rows

                for line, row in enumerate(read_table_rows(source, raw), 1):
                    yield Record(line, row)
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{source.path}: {reason}; is the file whole?") from None


def read_part_of_file(
    part: IO[bytes], source: DataFile, columns: Sequence[str]
) -> Iterator[Record]:
    """The rows of a part of a JSON or CSV file that begins and ends between rows; lines are counted
    from 1.
    """
    yield from (
        _read_csv(part, source.path, columns)
        if source.kind == "csv"
        else _read_values_until(JsonWindow(part, source.path))
    )


def is_one_json_array(path: DataPath, raw: IO[bytes]) -> bool:
    """Is the file one JSON array? Such files are often called .jsonl."""
    return open_decompressed_bytes(raw, path).read(256).removeprefix(BOM).lstrip().startswith(b"[")


def read_json_lines(
    file: IO[bytes], path: DataPath, first: int = 1, offset: int = 0
) -> Iterator[Record]:
    """The rows of a file of JSON lines, one row a line.

    Args:
        file: the lines.
        path: the file that they are from, for messages.
        first: the number of the first line in its file.
        offset: how many bytes of the file stand before it.

    Raises DataError where nearly all lines are blank. A line that holds no row is a record with an error.
    """
    decoder = RowDecoder()
    for number, line, size in _numbered_lines_with_size(file, path, first):
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
            yield Record(
                number, None, error=DataError(f"{path}:{number}: {message_for_too_long_line()}")
            )
        elif line.strip():
            yield _record_of_odd_line(line, number, offset, path)
        offset += size


def _numbered_lines_with_size(
    file: IO[bytes], path: DataPath, first: int
) -> Iterator[tuple[int, bytes, int]]:
    """(number, line, bytes) of each line; one that is too long is empty. Raises DataError for a
    file of blank lines.
    """
    try:
        for number, (line, size) in enumerate(lines_within_limit(file, first=first), first):
            yield number, line, size
    except InputLimitError as error:
        raise DataError(f"{path}:{error.lineno}: {error.msg}") from None


def _record_of_line(number: int, decoded: Decoded, text: str) -> Record:
    """The record of a line that is one JSON value."""
    row, repaired = replace_lone_surrogates(decoded.value, text)
    return Record(number, row, repaired, None, 0, decoded.duplicate_key)


def _record_of_odd_line(line: bytes, number: int, offset: int, path: DataPath) -> Record:
    """The record of a line that has a byte order mark or space before the row, or is broken."""
    try:
        # Everything that the quick way refused is read again, slowly, to name what is wrong.
        text = (line.removeprefix(BOM) if number == 1 else line).decode().strip(" \t\r\n")
        decoded = RowDecoder().read_line(text)
        if decoded.end < len(text):
            raise JSONDecodeError("Extra data", text, decoded.end)
        return _record_of_line(number, decoded, text)
    except UnicodeDecodeError as error:
        return Record(number, None, error=not_utf8_error(path, number, offset, error))
    except InputLimitError as error:
        return Record(
            number,
            None,
            error=DataError(f"{path}:{number}: not JSON that can be read: {error.msg}"),
        )
    except ValueError as error:
        expected = f"expected one JSON object on each line, found {quote_shortened(text)}"
        return Record(
            number, None, error=DataError(f"{path}:{number}: not JSON: {error}; {expected}")
        )


def _read_json_file(path: DataPath, raw: IO[bytes]) -> Iterator[Record]:
    """The rows of a JSON file: of an array, of an object that holds one, or one after the other.
    They are decoded one by one.
    """
    window = JsonWindow(open_decompressed_bytes(raw, path), path)
    first = window.peek_character()
    if first == "[":
        yield from _read_array(window)
        window.skip_closing_bracket("")
    elif first != "{":
        raise DataError(
            f"{path}:{window.line}: expected an array of rows, found {window.quote_next_text or 'nothing'}"
        )
    else:
        name = window.enter_next_list_of_objects()
        if name is None:
            # No list of rows inside: the object was itself a row, maybe the first of several. Begin again.
            window = JsonWindow(open_decompressed_bytes(raw, path), path)
            yield from _read_values_until(window, until="")
            return
        yield from _read_array(window)
        other = window.enter_next_list_of_objects()
        if other is not None:
            # Which of the two is meant, or both, only the user knows.
            raise DataError(
                f"{path}:{window.line}: two lists of rows, {name} and {other}; give each its own"
                " file"
            )
        window.skip_closing_bracket("}")
        window.skip_closing_bracket("")


def _read_array(window: JsonWindow) -> Iterator[Record]:
    """The values of an array, with its brackets."""
    window.skip_character()
    yield from _read_values_until(window)
    window.skip_closing_bracket("]")


def _read_values_until(window: JsonWindow, until: str = "]") -> Iterator[Record]:
    """The values up to a closing bracket, or to the end of the text."""
    while window.peek_character() not in (until, ""):
        yield _read_value(window)


def _read_value(window: JsonWindow) -> Record:
    """The next value, with where it begins and ends."""
    line, start = window.line, window.offset
    row, changed, key = window.read_value_and_its_flaws()
    return Record(line, row, changed, None, window.offset, key, start)


def _read_csv(
    lines: IO[bytes], path: DataPath, columns: Sequence[str] | None = None
) -> Iterator[Record]:
    """The rows of CSV lines. `columns`: those of the file, if its header is before these lines."""
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
    """The first name that occurs twice, in alphabetical order; None if there is none."""
    return min((name for name, count in Counter(names).items() if count > 1), default=None)


class _DecodedLines:
    """The lines of a text; `offset` bytes of it were given."""

    def __init__(self, lines: IO[bytes], path: DataPath, first: int) -> None:
        self.offset = 0
        self._path, self._lines = path, _numbered_lines_with_size(lines, path, first)

    def __iter__(self) -> Iterator[str]:
        for number, line, size in self._lines:
            if not line:
                raise DataError(f"{self._path}:{number}: {message_for_too_long_line()}")
            try:
                text = (line.removeprefix(BOM) if number == 1 else line).decode()
            except UnicodeDecodeError as error:
                raise not_utf8_error(self._path, number, self.offset, error) from None
            self.offset += size
            yield text
