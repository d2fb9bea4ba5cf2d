"""Fixes the rows of JSONL, JSON and CSV files in groups; what does not change is copied byte by
byte.

The file is cut into pieces that hold all its bytes. A piece whose row did not change is written as it was read, with
its spaces and line ends, so that fixing a file in which nothing is wrong gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from truetune.data.conversation import Conversation, Origin
from truetune.data.find_data_files import DataFile
from truetune.data.read_file_records import Record
from truetune.data.read_rows_as_conversations import conversations_of_records
from truetune.fixing.apply_proved_remedies import FixRow
from truetune.fixing.editable_row_of_file import CsvBody, JsonBody
from truetune.fixing.split_file_by_rows import (
    Piece,
    bytes_of_edited_row,
    has_row_per_line,
    read_pieces,
    row_of_piece,
)
from truetune.settings.run_spec import RunSpec

# At half, proving a group costs more renderings for each fix; at double, more renderings are held.
GROUP_ROWS = 256
"""Rows that are fixed together, as many as a check encodes together"""
FixRows = Callable[[list[FixRow]], None]
OnBroken = Callable[[Origin, str], bool]
"""Told of what holds no row, and why; does it go?"""
PutBytes = Callable[[bytes, bytes], None]
"""Takes what the file holds next, and what shall stand in its place"""


@dataclass
class _Entry:
    """A piece of the file with the row that it holds."""

    piece: Piece
    row: FixRow | None
    goes: bool = False
    """It holds no row, and is left out."""


def fix_text_file(
    source: DataFile,
    raw: IO[bytes],
    spec: RunSpec,
    fix: FixRows,
    on_broken: OnBroken,
    put: PutBytes,
) -> None:
    """Pass all bytes of a file to `put`, in order, with its rows fixed.

    Args:
        source: the file.
        raw: its bytes.
        spec: how its rows are read.
        fix: fixes a group of rows in place.
        on_broken: told of lines that hold no row; says whether they go.
        put: takes what the file holds next, and what shall stand in its place.

    Raises DataError.
    """
    # Only in an array commas stand between rows; lines and CSV records end by themselves.
    group = _RowGroup(
        fix, _PieceWriter(put, brackets=source.kind != "csv" and not has_row_per_line(source))
    )
    held: list[_Entry] = []

    def records() -> Iterator[Record]:
        """The records of the pieces; each piece is held until it is known whether a row came of it."""
        for piece in read_pieces(source, raw):
            # What was held when the next piece is asked for became no conversation: it holds no row.
            while held:
                group.add(held.pop())
            held.append(_Entry(piece, None))
            if piece.record is not None:
                yield piece.record

    def broken(origin: Origin, reason: str) -> None:
        """The piece that is held has no row."""
        held[-1].goes = on_broken(origin, reason)

    for conversation in conversations_of_records(
        records(), source, 0, format=spec.format, columns=spec.map, on_broken=broken
    ):
        # The reader gives a conversation for the piece that it took last: the two go in step.
        entry = held.pop()
        entry.row = _fix_row_of(entry.piece, source, conversation)
        group.add(entry)
    # What stands behind the last row.
    for entry in held:
        group.add(entry)
    group.flush()


def _fix_row_of(piece: Piece, source: DataFile, conversation: Conversation) -> FixRow | None:
    """The row of a piece; None where its text holds none."""
    body = row_of_piece(piece, source)
    return None if body is None else FixRow(conversation.origin, body, conversation)


class _RowGroup:
    """A group of entries that are fixed together, then written."""

    def __init__(self, fix: FixRows, writer: _PieceWriter) -> None:
        self._fix, self._writer = fix, writer
        self._entries: list[_Entry] = []

    def add(self, entry: _Entry) -> None:
        """Add the next entry of the file; a full group is fixed and written."""
        self._entries.append(entry)
        if len(self._entries) >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Fix and write the entries that are held."""
        self._fix([entry.row for entry in self._entries if entry.row is not None])
        for entry in self._entries:
            self._writer.write(entry)
        self._entries.clear()


class _PieceWriter:
    """Writes pieces one after the other; of an array, the comma before the first row that stays is
    left out.
    """

    def __init__(self, put: PutBytes, *, brackets: bool) -> None:
        self._put, self._brackets = put, brackets
        self._rows = 0
        self._opened = False

    def write(self, entry: _Entry) -> None:
        """Write the next piece, with its row as it is now."""
        piece, row = entry.piece, entry.row
        if piece.record is None:
            self._put(piece.before, piece.before)
            return
        goes = entry.goes or (row is not None and row.dropped)
        self._put(piece.before, self._bytes_before_row(piece, goes=goes))
        if goes:
            self._put(piece.body, b"")
            return
        self._rows += 1
        fixed = piece.body
        if row is not None and row.changes and isinstance(row.body, JsonBody | CsvBody):
            fixed = bytes_of_edited_row(piece, row.body)
        self._put(piece.body, fixed)

    def _bytes_before_row(self, piece: Piece, *, goes: bool) -> bytes:
        """The bytes before a row that are written. What opens the array stays; of the separators
        between rows, as many as the rows that stay need.
        """
        if not self._brackets or not self._opened:
            self._opened = True
            return piece.before
        # A comma stands before each row but the first that stays.
        return b"" if goes or not self._rows else piece.before
