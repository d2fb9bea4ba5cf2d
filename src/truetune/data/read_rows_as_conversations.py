"""Reads all rows of the data, one after the other, each as a Conversation.

The first row of a file decides its format, and the reader that was chosen for it reads all others: so a file is read
the same way however it is cut. Rows of another format inside it are a problem of those rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from truetune.data.column_name_aliases import Row, make_row_renamer, refuse_missing_mapped_columns
from truetune.data.conversation import Conversation, Origin
from truetune.data.find_data_files import DataFile, find_data_files_of_paths, open_raw
from truetune.data.parse_json_columns import LONE_SURROGATE, duplicate_key_problem
from truetune.data.read_file_records import Record, read_records
from truetune.data.row_format_readers import choose_reader
from truetune.errors import DataError
from truetune.settings.row_formats import is_script_named_as_format
from truetune.settings.run_spec import FormatName

# Chosen, not measured: often enough for a bar that moves, seldom enough to cost nothing.
REPORT_EVERY = 256
OnBroken = Callable[[Origin, str], None]
"""Told of a line that holds no row: where it is, and why, with its place"""


def read_conversations(
    paths: Sequence[str],
    *,
    format: FormatName | None = None,
    columns: Mapping[str, str] | None = None,
    progress: Callable[[int, int, int], None] | None = None,
    on_broken: OnBroken | None = None,
    on_empty: Callable[[str], None] | None = None,
) -> Iterator[Conversation]:
    """The rows of files, folders and globs as conversations, in order; memory does not grow with
    their number.

    Args:
        paths: files, folders, globs, URIs, or names of cached data sets.
        format: of all files; None finds it by the columns of each file's first row.
        columns: truetune's name of a column -> what the files call it (output -> answer).
        progress: told rows done, bytes of the files read, and bytes in all.
        on_broken: told of lines that hold no row, which have their number too.
        on_empty: told of files without a line.

    Raises DataError for a file that is missing or broken, and for what no callback is told of. A row of the wrong shape
    is a Conversation with `problems`.
    """
    sources = find_data_files_of_paths(paths)
    sizes = [source.path.stat().st_size for source in sources]
    total, number, done, reached = sum(sizes), 0, 0, 0

    def pass_over(origin: Origin, reason: str) -> None:
        """Tell of a line that holds no row, which keeps its number."""
        nonlocal number
        if on_broken is None:
            raise DataError(reason)
        on_broken(origin, reason)
        number += 1

    for source, size in zip(sources, sizes, strict=True):
        with open_raw(source.path) as raw:
            first = number
            records = read_records(source, raw)
            for row in conversations_of_records(
                records, source, number, format=format, columns=columns, on_broken=pass_over
            ):
                yield row
                # Numbers count lines that hold no row too, so that a row keeps its number when
                # another one is fixed.
                number += 1
                if progress is not None and number % REPORT_EVERY == 0:
                    # A reader may seek back, for its footer or its first bytes; progress never goes
                    # back.
                    reached = max(reached, done + raw.tell())
                    progress(number, reached, total)
        if number == first:
            if on_empty is None:
                raise DataError(f"{source.path}: the file holds no row")
            on_empty(str(source.path))
        done += size
        if progress is not None:
            progress(number, done, total)


def conversations_of_records(
    records: Iterable[Record],
    source: DataFile,
    row: int,
    *,
    format: FormatName | None = None,
    columns: Mapping[str, str] | None = None,
    like: Record | None = None,
    on_broken: OnBroken | None = None,
) -> Iterator[Conversation]:
    """The records of one file as conversations.

    Args:
        records: in the order of the file.
        source: the file.
        row: how many rows stand before them, over all files.
        format: the one that is asked for; None looks for one by the columns.
        columns: truetune's name of a column -> what the file calls it.
        like: the record that decides the format, where it is not the first.
        on_broken: told of lines that hold no row; without it they raise DataError.
    """
    file = str(source.path)
    records, format = _shape_by_script(records, source, format)
    rename = make_row_renamer(columns, format) if columns else None
    read_row = None if like is None else _make_reader(like, file, format, columns or {}, rename)
    for number, record in enumerate(records, row):
        origin = Origin(file, record.line, number)
        try:
            body = _row_of_record(record, file)
            if read_row is None:
                read_row = _make_reader(record, file, format, columns or {}, rename)
        except DataError as error:
            if on_broken is None:
                raise
            on_broken(origin, str(error))
            continue
        conversation = read_row(body, origin)
        # Kept for whoever reads the row again with other values: provenance and fixes.
        conversation.raw, conversation.read = body, read_row
        if record.left_over:
            conversation.raw = {**record.left_over, **body}
            conversation.unused = (*conversation.unused, *record.left_over)
        conversation.made_of = record.read
        if record.repaired:
            conversation.problems = (*conversation.problems, LONE_SURROGATE)
        if record.duplicate_key is not None:
            conversation.problems = (
                *conversation.problems,
                duplicate_key_problem(record.duplicate_key),
            )
        yield conversation


def find_record_that_decides_format(
    records: Iterable[Record],
    source: DataFile,
    format: FormatName | None,
    columns: Mapping[str, str] | None,
    *,
    skips: bool,
) -> Record | None:
    """The first record that decides the format of a file, for `conversations_of_records`; None if
    there is none.

    Args:
        records: from the beginning of the file.
        source: the file.
        format: the one that is asked for.
        columns: truetune's name of a column -> what the file calls it.
        skips: pass over records that hold no row; without it they raise DataError.
    """
    records, format = _shape_by_script(records, source, format)
    rename = make_row_renamer(columns, format) if columns else None
    for record in records:
        try:
            _make_reader(record, str(source.path), format, columns or {}, rename)
            return record
        except DataError:
            if not skips:
                raise
    return None


def _shape_by_script(
    records: Iterable[Record], source: DataFile, format: FormatName | None
) -> tuple[Iterable[Record], FormatName | None]:
    """The records as a training script shapes them, if a script is named as their format; see
    `shape_records`.
    """
    if format is None or not is_script_named_as_format(format):
        return records, format
    # Here and not above: few runs name a script, and following one takes the whole reader of sources.
    from truetune.data.script_rows.shape_records_by_script import shape_records

    return shape_records(records, source, format)


def _row_of_record(record: Record, file: str) -> Row:
    """The columns of a record. Raises DataError where it holds no object."""
    if record.error is not None:
        raise record.error
    if not isinstance(record.row, dict):
        type_name = type(record.row).__name__
        raise DataError(
            f"{file}:{record.line}: expected a JSON object with the columns of a row, found {type_name}"
        )
    return record.row


def _make_reader(
    record: Record,
    file: str,
    format: FormatName | None,
    columns: Mapping[str, str],
    rename: Callable[[Row], Row] | None,
) -> Callable[[Row, Origin], Conversation]:
    """The reader of a file that begins with this record. Raises DataError where no format fits."""
    body, where = _row_of_record(record, file), f"{file}:{record.line}"
    refuse_missing_mapped_columns(body, columns, where)
    if rename is None:
        return choose_reader(body, format, where)
    return partial(_read_renamed_row, rename, choose_reader(rename(body), format, where))


def _read_renamed_row(
    rename: Callable[[Row], Row],
    read_row: Callable[[Row, Origin], Conversation],
    row: Row,
    origin: Origin,
) -> Conversation:
    """Read a row after its columns got truetune's names."""
    return read_row(rename(row), origin)
