"""Rows: every row of the data as a Conversation, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from truetune.data.columns import missing, renamer
from truetune.data.conversation import Conversation, Origin
from truetune.data.files import Source, open_raw, resolve
from truetune.data.formats import reader
from truetune.data.json_text import LONE_SURROGATE
from truetune.data.records import records
from truetune.errors import DataError
from truetune.spec.run import Format

REPORT_EVERY = 256


def read(
    paths: Sequence[str],
    *,
    format: Format | None = None,
    columns: Mapping[str, str] | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> Iterator[Conversation]:
    """The rows of files, folders and globs, in order; memory does not grow with their number.

    `format` is found by the columns of each file's first row when None; `columns` says what the file calls a column
    (answer -> output). `progress` is told rows done, bytes of the files read, and bytes in all.

    Raises DataError for a file that is missing or broken. A row of the wrong shape is a Conversation with `problems`.
    """
    sources = resolve(paths)
    sizes = [source.path.stat().st_size for source in sources]
    total, number, done, reached = sum(sizes), 0, 0, 0
    for source, size in zip(sources, sizes, strict=True):
        with open_raw(source.path) as raw:
            for row in _rows(source, raw, number, format, columns or {}):
                yield row
                number += 1
                if progress is not None and number % REPORT_EVERY == 0:
                    reached = max(reached, done + raw.tell())
                    progress(number, reached, total)
        done += size
        if progress is not None:
            progress(number, done, total)


def _rows(
    source: Source, raw: IO[bytes], number: int, format: Format | None, columns: Mapping[str, str]
) -> Iterator[Conversation]:
    """The rows of one file; `number`: how many stand in the files before."""
    file = str(source.path)
    rename = renamer(columns, format) if columns else None
    read_row = None
    for line, row, mended in records(source, raw):
        if not isinstance(row, dict):
            found = type(row).__name__
            raise DataError(f"{file}:{line}: expected a JSON object with the columns of a row, found {found}")
        if read_row is None:
            missing(row, columns, f"{file}:{line}")
        if rename is not None:
            row = rename(row)
        if read_row is None:
            read_row = reader(row, format, f"{file}:{line}")
        conversation = read_row(row, Origin(file, line, number))
        if mended:
            conversation.problems = (*conversation.problems, LONE_SURROGATE)
        yield conversation
        number += 1
    if read_row is None:
        raise DataError(f"{file}: the file holds no row")
