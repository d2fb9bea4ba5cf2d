"""Finds the script among the paths whose own code makes other rows of a data file than its columns
alone would.

How it works: each script that gives rows to a trainer is followed. The one that reads the files in question is
compared, for its first rows, with what the columns of the file say.

The trade-off: a script that trains the rows as they stand is passed over, so that findings point at the file, and rows
can be fixed there. Where two scripts read the files, it is not known which one is meant.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.data.conversation import Conversation
from truetune.data.find_data_files import DataFile, find_data_files_of_paths
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.data.script_rows.read_rows_given_to_trainer import ScriptRows, read_trained_text_rows
from truetune.errors import DataError, TruetuneError, format_name_list

COMPARED_ROWS = 5
"""Rows that are read both ways. All rows of a file go the same way through a script"""
MAX_SCRIPTS = 40
"""Scripts that are followed. Chosen, not measured: a folder of more is a collection of examples"""
MARKS = (b"train_dataset", b"DataLoader")
"""What a script that gives rows to a trainer or a loop has in its text, one of these"""
MAX_SECONDS_OF_ALL = 30.0
"""Of processor time. After that no further script is followed: a check of a large folder must not take minutes"""


class ShapingScript(NamedTuple):
    """The script that trains the files."""

    rows: ScriptRows
    differs: bool
    """It makes other rows of them than their columns say"""

    def facts(self) -> tuple[tuple[str, str], ...]:
        """What a report says of the script: (label, text) each."""
        how = "its code was followed, not run; options are as a command here gives them, or by default"
        unread, lost = (
            self.rows.columns_neither_read_nor_trained(),
            self.rows.columns_read_but_not_trained(),
        )
        return (
            ("makes", f"{len(self.rows.rows):,} rows for its trainer"),
            *((("never reads", format_name_list(unread)),) if unread else ()),
            *((("reads and does not train", format_name_list(lost)),) if lost else ()),
            ("note", how),
            *(("note", note) for note in self.rows.notes),
        )


def find_shaping_script(scripts: Iterable[str], data: Sequence[str]) -> ShapingScript | None:
    """The one script that gives the rows of these files to a trainer; None without one, or with several.

    Args:
        scripts: The paths of Python files and notebooks.
        data: Files of rows.
    """
    files = [Path(str(source.path)) for source in _data_files_or_empty_if_unknown(data)]
    scripts_with_rows = [
        rows
        for rows in _rows_of_scripts(training_scripts(scripts))
        if any(rows.rows_of_file(file) is not None for file in files)
    ]
    return (
        ShapingScript(
            scripts_with_rows[0], _does_script_shape_rows_unlike_columns(scripts_with_rows[0])
        )
        if len(scripts_with_rows) == 1
        else None
    )


def _data_files_or_empty_if_unknown(data: Sequence[str]) -> list[DataFile]:
    """The data files that paths mean; empty if that is not known, for the check itself says why."""
    try:
        return find_data_files_of_paths(data)
    except DataError:
        return []


def training_scripts(scripts: Iterable[str]) -> list[str]:
    """The scripts that give rows to a trainer, as far as their text shows."""
    training: list[str] = []
    for script in islice(scripts, MAX_SCRIPTS):
        try:
            text = Path(script).read_bytes()
            if any(mark in text for mark in MARKS):
                training.append(script)
        except OSError:
            continue  # who lints it says what is wrong with it
    return training


def take_while_time_is_left(scripts: Iterable[str]) -> Iterator[str]:
    """The scripts, one after the other, as long as there is time for them."""
    deadline = time.process_time() + MAX_SECONDS_OF_ALL
    for script in scripts:
        if time.process_time() > deadline:
            return
        yield script


def _rows_of_scripts(scripts: Iterable[str]) -> Iterator[ScriptRows]:
    """The rows of the scripts that can be followed."""
    for script in take_while_time_is_left(scripts):
        try:
            yield read_trained_text_rows(script)
        except TruetuneError:
            continue  # what can't be followed is judged as it stands in the file


def _does_script_shape_rows_unlike_columns(rows: ScriptRows) -> bool:
    """Does a script make something else of the first rows than their columns say?"""
    try:
        plain = _first_rows_made_or_read(rows, None)
    except DataError:
        return True  # the columns alone say nothing
    return [_trained_content(row) for row in plain] != [
        _trained_content(row) for row in _first_rows_made_or_read(rows, rows.script)
    ]


def _first_rows_made_or_read(rows: ScriptRows, format: str | None) -> list[Conversation]:
    """The first rows that the script makes, or with a format, the same lines as they are in the
    file. Raises DataError.
    """
    file = rows.rows[0].file
    lines = {row.line for row in rows.rows[:COMPARED_ROWS] if row.file == file}
    last = max(lines)
    conversations: list[Conversation] = []
    for row in read_conversations([file], format=format):
        if row.origin.line in lines:
            conversations.append(row)
        if row.origin.line >= last:
            break
    return conversations


def _trained_content(row: Conversation) -> tuple[object, ...]:
    """The parts of a row that are trained, to compare rows by."""
    turns = (row.messages, row.prompt_messages, row.rejected, row.label)
    return (*turns, row.prompt, row.completion, row.text)
