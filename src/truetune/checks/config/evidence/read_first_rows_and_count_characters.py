"""Reads the first rows of a run as its settings or its script name them, and counts the characters that a trainer
reads of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from truetune.checks.config.evidence.columns_and_age_of_training_files import (
    local_data_files,
    local_training_sources,
)
from truetune.data.find_data_files import DataFile, open_raw
from truetune.data.read_file_records import read_records
from truetune.data.script_rows.read_rows_given_to_trainer import read_trained_text_rows
from truetune.errors import DataError, TruetuneError
from truetune.parsing.decompress_within_limits import UNREADABLE
from truetune.settings.config import Config
from truetune.settings.row_formats import is_script_named_as_format

# Chosen: the first rows tell the lengths of a file that is not sorted, and are read in a tenth of a second.
MAX_ROWS = 2000
"""Rows that are read; their order is mostly that of the whole"""
CHATS = ("messages", "conversations", "conversation")
TEXTS = (
    "instruction",
    "input",
    "output",
    "system",
    "prompt",
    "completion",
    "response",
    "text",
    "question",
    "answer",
)
"""Columns of which a row's text is made, as the readers of the stacks call them"""
RUNS = re.compile(r"([\s\W_])\1+")
"""The same sign many times, which is one token or few"""


def _local_row_files(config: Config) -> list[DataFile]:
    """The local files of rows: those of the settings, of a program, or of a torchtune recipe."""
    return local_training_sources(config) or [
        one for name in config.row_files for one in local_data_files(name)
    ]


def first_rows_of_run(config: Config) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """The first rows of a run, each with its file and line: as the script shapes them, where it can be followed."""
    if is_script_named_as_format(config.path):
        try:
            shaped = read_trained_text_rows(config.path)
        except TruetuneError:
            shaped = None
        if shaped is not None:
            yield from ((one.file, one.line, one.row) for one in shaped.rows)
            return
    for source in _local_row_files(config):
        for line, row in first_rows_of_file(source):
            yield str(source.path), line, row


def text_columns_of_torchtune_recipe(config: Config) -> tuple[str, ...]:
    """The columns of text that a torchtune recipe names itself."""
    dataset = config.raw.get("dataset")
    named = dataset.get("column_map") if isinstance(dataset, Mapping) else None
    if not isinstance(named, Mapping):
        return ()
    return tuple(name for name in named.values() if isinstance(name, str))


def first_rows_of_file(source: DataFile) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The first rows of a file, each with its line."""
    try:
        with open_raw(source.path) as raw:
            for record in islice(read_records(source, raw), MAX_ROWS):
                if isinstance(record.row, Mapping):
                    yield record.line, record.row
    except (DataError, *UNREADABLE):
        return


def count_characters(row: Mapping[str, Any], columns: tuple[str, ...] = ()) -> int:
    """The characters of a row's texts, those of `columns` too; the same sign many times counts once."""
    texts: list[Any] = []
    for value in _values_read_by_trainer(row, columns):
        if isinstance(value, list):
            turns = [turn for turn in value if isinstance(turn, Mapping)]
            texts += [turn.get(key) for turn in turns for key in ("content", "value")]
        else:
            texts.append(value)
    return sum(len(RUNS.sub(r"\1", text)) for text in texts if isinstance(text, str))


def _values_read_by_trainer(row: Mapping[str, Any], columns: tuple[str, ...]) -> list[Any]:
    """The values that a trainer reads: the chat of a row that has one, else its columns of text."""
    chats = [row[name] for name in CHATS if isinstance(row.get(name), list)]
    return chats or [row.get(name) for name in {*TEXTS, *columns}]
