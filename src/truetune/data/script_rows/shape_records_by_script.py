"""Replaces the records of a file by what a training script makes of them, if a script is named as
the rows' format.

`--data-format train.py` says: the rows are what train.py makes of them. Each record is replaced by the row that the
script makes of its line; a row that the script leaves out is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from truetune.data.find_data_files import DataFile
from truetune.data.read_file_records import Record
from truetune.data.script_rows.read_rows_given_to_trainer import ScriptRow, read_trained_text_rows
from truetune.settings.run_spec import FormatName


def shape_records(
    records: Iterable[Record], source: DataFile, script: str
) -> tuple[Iterable[Record], FormatName | None]:
    """The records of a file as the named script shapes them, and the format that they then have.

    Args:
        records: The records of the file.
        source: The file.
        script: The path of the script.

    Returns:
        What the script makes of them, and no format: the columns tell it. The records as they are, where the script
        does not train the file.

    Raises:
        DataError: the script's rows can't be followed.
    """
    row_of_line = read_trained_text_rows(script).rows_of_file(Path(str(source.path)))
    return (records if row_of_line is None else _replace_by_script_rows(records, row_of_line)), None


def _replace_by_script_rows(
    records: Iterable[Record], row_of_line: dict[int, ScriptRow]
) -> Iterator[Record]:
    """The records of the lines that the script makes rows of, with these rows instead of their
    own.
    """
    for record in records:
        made = row_of_line.get(record.line)
        if made is not None:
            yield Record(
                record.line, made.row, left_over=made.untrained_texts_by_column, read=made.read
            )
