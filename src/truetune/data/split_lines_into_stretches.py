"""Splits a file of lines into stretches that can be read on their own, and digests its bytes.

One pass reads the file, digests it and counts its lines, so that worker processes can each read a stretch and still
name the file's own lines. Only plain JSONL is cut; other files are read from their start by one process.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from truetune.data.conversation import Conversation, Origin
from truetune.data.find_data_files import COMPRESSION_SUFFIXES, DataFile, open_raw
from truetune.data.read_file_records import is_one_json_array, read_json_lines, read_records
from truetune.data.read_rows_as_conversations import (
    conversations_of_records,
    find_record_that_decides_format,
)
from truetune.data.remote_path import DataPath
from truetune.errors import DataError
from truetune.parsing import InputLimitError
from truetune.parsing.input_limits import ROW
from truetune.parsing.read_files_within_limits import (
    message_for_too_long_line,
    refuse_mostly_blank_lines,
)
from truetune.settings.run_spec import FormatName

# Chosen, not measured: a call for each MiB costs nothing beside digesting it.
BLOCK_BYTES = 1 << 20
NEWLINE = b"\n"


class Stretch(NamedTuple):
    """Whole lines of a file."""

    start: int
    """Its first byte."""
    stop: int
    """One past its last byte."""
    line: int
    """The number of its first line, from 1."""
    rows: int


class FileScan(NamedTuple):
    """One pass over a file's bytes."""

    digest: str
    """blake2b of the bytes as they stand on disk"""
    stretches: tuple[Stretch, ...]
    """Empty where the file can only be read from its start."""


def scan_and_cut_lines(
    source: DataFile, size: int, progress: Callable[[int], None] | None = None
) -> FileScan:
    """Read a file once, digest it, and cut it into stretches of about `size` bytes if it is a file
    of lines.

    Args:
        source: the file.
        size: bytes of a stretch.
        progress: told the bytes of each block that was read.

    Raises DataError where it can't be read.
    """
    digest = hashlib.blake2b(digest_size=20)
    stretches: list[Stretch] = []
    with open_raw(source.path) as raw:
        # A compressed file has no place to begin at but its start, and an array no line that ends a
        # row.
        cuts = (
            source.kind == "jsonl"
            and source.path.suffix.lower() not in COMPRESSION_SUFFIXES
            and not is_one_json_array(source.path, raw)
        )
        raw.seek(0)
        blocks = ((None, block) for block in _read_blocks(raw, BLOCK_BYTES))
        for stretch, block in cut_stretches(raw, size, source.path) if cuts else blocks:
            digest.update(block)
            if progress is not None:
                progress(len(block))
            if stretch is not None:
                stretches.append(stretch)
    return FileScan(digest.hexdigest(), tuple(stretches))


def cut_stretches(lines: IO[bytes], size: int, path: DataPath) -> Iterator[tuple[Stretch, bytes]]:
    """A stream of lines cut into stretches of about `size` bytes, each with its bytes.

    Raises DataError for a line that is longer than a row may be, and for a file of blank lines.
    """
    start, line, rows_before = 0, 1, 0
    for part in _read_blocks(lines, size):
        # A stretch ends with a line: no row may stand in two of them.
        rest = b"" if part.endswith(b"\n") else lines.readline(ROW.max_bytes + 1)
        if len(rest) > ROW.max_bytes:
            raise DataError(f"{path}:{line + part.count(NEWLINE)}: {message_for_too_long_line()}")
        block = part + rest
        count, rows = _count_lines_and_rows(block)
        rows_before += rows
        lines_before = line - 1 + count
        try:
            refuse_mostly_blank_lines(lines_before - rows_before, rows_before)
        except InputLimitError as error:
            raise DataError(f"{path}:{error.lineno}: {error.msg}") from None
        yield Stretch(start, start + len(block), line, rows), block
        start, line = start + len(block), line + count


def scan_files_in_turn(
    sources: Sequence[DataFile], size: int, progress: Callable[[int], None]
) -> list[FileScan]:
    """Run `scan_and_cut_lines` on each file, one after the other."""
    return [scan_and_cut_lines(source, size, progress) for source in sources]


def read_stretch(
    source: DataFile,
    stretch: Stretch,
    row: int,
    *,
    format: FormatName | None = None,
    columns: Mapping[str, str] | None = None,
    on_broken: Callable[[Origin, str], None] | None = None,
) -> Iterator[Conversation]:
    """The rows of a stretch, in the format of the file's first row.

    Args:
        source: the file.
        stretch: which of its lines.
        row: how many rows stand before them, over all files.
        format: the one that is asked for; None looks for one by the columns.
        columns: truetune's name of a column -> what the file calls it.
        on_broken: told of lines that hold no row.

    Raises DataError, also for a line that holds no row where nobody is told of it.
    """
    with open_raw(source.path) as raw:
        # The format is the whole file's: a stretch must not decide it by its own first row.
        like = find_record_that_decides_format(
            read_records(source, raw), source, format, columns, skips=on_broken is not None
        )
        raw.seek(stretch.start)
        part = io.BytesIO(raw.read(stretch.stop - stretch.start))
    records = read_json_lines(part, source.path, stretch.line, stretch.start)
    yield from conversations_of_records(
        records, source, row, format=format, columns=columns, like=like, on_broken=on_broken
    )


def _read_blocks(raw: IO[bytes], size: int) -> Iterator[bytes]:
    """A stream in blocks of `size` bytes; the last may be shorter."""
    yield from iter(lambda: raw.read(size), b"")


def _count_lines_and_rows(block: bytes) -> tuple[int, int]:
    """The number of lines, and the number of rows: a line of white space holds no row."""
    count = block.count(b"\n") + (not block.endswith(b"\n"))
    # Two counts in C instead of a look at each line: nearly all files have a brace at the start of
    # every line.
    if block.count(b"\n{") + block.startswith(b"{") == count:
        return count, count
    return count, sum(bool(line.strip()) for line in block.split(b"\n"))
