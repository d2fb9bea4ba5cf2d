"""Splits a text file of rows into pieces that hold all its bytes, each row in a piece of its own.

The reader of data (`data.file_records`) says what the rows are; here the bytes are kept beside each. What no row holds
(blank lines, a header, brackets and commas) goes with the row behind it, or is the rest behind the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from truetune.data.find_data_files import DataFile, open_decompressed_bytes, open_raw
from truetune.data.read_file_records import (
    BOM,
    Record,
    is_one_json_array,
    read_json_lines,
    read_records,
)
from truetune.errors import DataError
from truetune.fixing.editable_row_of_file import CsvBody, JsonBody
from truetune.fixing.rewrite_csv_cells import csv_delimiter_of
from truetune.parsing.decompress_within_limits import UNREADABLE
from truetune.parsing.input_limits import ROW
from truetune.parsing.read_files_within_limits import message_for_too_long_line

# Chosen, not measured: what stands behind the last row is mostly a bracket or a line break.
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file that hold one row, or what is after the last."""

    before: bytes
    """What stands between the row before and this one"""
    body: bytes
    record: Record | None
    """None behind the last row"""


class _LineKeeper:
    """A stream that remembers the lines which were read from it."""

    def __init__(self, file: IO[bytes], source: DataFile) -> None:
        self._file, self._source = file, source
        self._kept: list[bytes] = []
        self._number = 0

    def readline(self, size: int) -> bytes:
        """Read and remember the next line. Raises DataError for one that is too long to be held."""
        line = self._file.readline(size)
        self._number += 1
        if len(line) > ROW.max_bytes:
            raise DataError(f"{self._source.path}:{self._number}: {message_for_too_long_line()}")
        self._kept.append(line)
        return line

    def take_lines_read_since_last_call(self) -> list[bytes]:
        """The lines that were read since the last call."""
        kept, self._kept = self._kept, []
        return kept


def read_pieces(source: DataFile, raw: IO[bytes]) -> Iterator[Piece]:
    """The pieces of an open JSON, JSONL or CSV file, in order. Raises DataError."""
    try:
        if source.kind == "jsonl" and not is_one_json_array(source.path, raw):
            yield from _pieces_of_lines(source, raw)
        else:
            yield from _pieces_by_offset(source, raw)
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{source.path}: {reason}; is the file whole?") from None


def has_row_per_line(source: DataFile) -> bool:
    """Does a file hold a row on each line, and not an array?"""
    if source.kind != "jsonl":
        return False
    with open_raw(source.path) as raw:
        return not is_one_json_array(source.path, raw)


def _pieces_of_lines(source: DataFile, raw: IO[bytes]) -> Iterator[Piece]:
    """The pieces of a file with a row on each line."""
    kept = _LineKeeper(open_decompressed_bytes(raw, source.path), source)
    stream: Any = kept
    for record in read_json_lines(stream, source.path):
        # Lines that hold no row come before the one that the record is of.
        *blank, line = kept.take_lines_read_since_last_call()
        yield Piece(b"".join(blank), line, record)
    yield Piece(b"".join(kept.take_lines_read_since_last_call()), b"", None)


def _pieces_by_offset(source: DataFile, raw: IO[bytes]) -> Iterator[Piece]:
    """The pieces of a file, cut where the reader says that each row ends; a second stream of the
    same file gives the bytes.
    """
    with open_raw(source.path) as again:
        stream = open_decompressed_bytes(again, source.path)
        reached = 0
        for record in read_records(source, raw):
            chunk = stream.read(record.stop - reached)
            # For JSON the reader says where a row begins; for CSV only where it ends.
            cut = record.start - reached
            if source.kind == "csv":
                cut = (
                    _start_of_first_record(chunk, record)
                    if not reached
                    else len(chunk) - len(chunk.lstrip(b"\r\n"))
                )
            yield Piece(chunk[:cut], chunk[cut:], record)
            reached = record.stop
        for block in iter(lambda: stream.read(BLOCK_BYTES), b""):
            yield Piece(block, b"", None)


def _start_of_first_record(chunk: bytes, record: Record) -> int:
    """The position of the first record in the bytes that were read with the header."""
    begin = 0
    for _ in range(record.line - 1):
        begin = chunk.index(b"\n", begin) + 1
    return begin


def row_of_piece(piece: Piece, source: DataFile) -> JsonBody | CsvBody | None:
    """The row that a piece holds; None where it holds none."""
    record = piece.record
    if record is None or record.error is not None or not isinstance(record.row, dict):
        return None
    text = piece.body.removeprefix(BOM if record.line == 1 else b"").decode()
    if source.kind == "csv":
        return CsvBody(record.row, text, csv_delimiter_of(source))
    return JsonBody(text)


def bytes_of_edited_row(piece: Piece, body: JsonBody | CsvBody) -> bytes:
    """The bytes of a row that was edited."""
    # A byte order mark at the beginning of the file stands in the first row's line, and stays.
    mark = BOM if piece.body.startswith(BOM) else b""
    return mark + body.text.encode("utf-8")
