"""Rows: every row of the data as a Conversation, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from truetune.data.conversation import Conversation, Origin
from truetune.data.files import open_raw, resolve
from truetune.data.formats import known, reader_of, renamed
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

    `format` is found by the columns of each row when None; `columns` says what the file calls a column (answer ->
    output). `progress` is told rows done, bytes of the files that are done, and bytes in all.

    Raises DataError for a file that is missing or broken. A row of the wrong shape is a Conversation with `problems`.
    """
    sources = resolve(paths)
    sizes = [source.path.stat().st_size for source in sources]
    names = dict(columns or {})
    number = done = 0
    for source, size in zip(sources, sizes, strict=True):
        file = str(source.path)
        first = number
        with open_raw(source.path) as raw:
            for line, record in records(source, raw):
                yield _conversation(record, Origin(file, line, number), names, format, number == first)
                number += 1
                if progress is not None and number % REPORT_EVERY == 0:
                    progress(number, done + (size if raw.closed else raw.tell()), sum(sizes))
        if number == first:
            raise DataError(f"{file}: the file holds no row")
        done += size
    if progress is not None:
        progress(number, done, sum(sizes))


def _conversation(
    record: Any, origin: Origin, columns: dict[str, str], format: Format | None, first: bool
) -> Conversation:
    if not isinstance(record, dict):
        raise DataError(f"{origin}: expected a JSON object with the columns of a row, found {type(record).__name__}")
    if columns:
        record = renamed(record, columns, str(origin))
    if first and format is None and not known(record):
        raise DataError(
            f"{origin}: no format fits the columns {', '.join(map(str, record)) or '(none)'}; say which column is "
            "what, as in --map prompt=input --map completion=target, or name a --data-format"
        )
    return reader_of(record, format)(record, origin)
