"""Reads files that hold, beside the ids of each row, the most likely tokens of a teacher and their log-probabilities.

How it works: a column of lists of lists of whole numbers with a name such as `teacher_topk_ids` holds the tokens,
one of lists of lists of numbers with a name such as `target_logprobs` how likely they are.

The trade-off: whether the entry at a place is the prediction of that token or of the next one is a matter of the
program that reads the file, so a constant shift says nothing here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from truetune.data.conversation import Origin
from truetune.data.find_data_files import find_data_files_of_paths, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import TruetuneError
from truetune.parsing import InputLimitError

TOKENS_OF_TEACHER = re.compile(
    r"(?=.*(?:teacher|target|top_?k|top_log))(?=.*(?:ids?|tokens?|indices)$)"
)
VALUES_OF_TEACHER = re.compile(
    r"(?=.*(?:teacher|target|top_?k|top_log))(?=.*(?:log_?prob|logp|prob))"
)
MAX_ROWS = 20_000
"""Rows that are read: a row of 1,000 tokens with 16 of the teacher has some hundred kilobytes"""


@dataclass(frozen=True, slots=True)
class TeacherRow:
    """One row with the predictions of a teacher."""

    origin: Origin
    ids: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    """The teacher's most likely tokens at each place; empty at a place without a prediction"""
    values: tuple[tuple[float, ...], ...]
    """How likely they are, in the same order"""


@dataclass(frozen=True, slots=True)
class TeacherFile:
    """The rows of a file with predictions of a teacher."""

    path: str
    rows: tuple[TeacherRow, ...]
    values_name: str
    """The column of the values, which says what they are"""


def columns_of_teacher(row: Any) -> tuple[str, str] | None:
    """The columns of a teacher's tokens and of their values; None if a row has none."""
    if not isinstance(row, Mapping) or not isinstance(row.get("input_ids"), list):
        return None
    nested = [name for name, value in row.items() if _is_list_of_lists(value)]
    tokens = [name for name in nested if TOKENS_OF_TEACHER.match(str(name).lower())]
    values = [
        name for name in nested if VALUES_OF_TEACHER.match(str(name).lower()) and name not in tokens
    ]
    return (tokens[0], values[0]) if len(tokens) == len(values) == 1 else None


def read_teacher_file(path: str) -> TeacherFile | None:
    """The rows of a file or folder with a teacher's predictions; None if it holds none, or can't be read."""
    rows: list[TeacherRow] = []
    columns: tuple[str, str] | None = None
    try:
        for source in find_data_files_of_paths([path]):
            with open_raw(source.path) as raw:
                for record in islice(read_records(source, raw), MAX_ROWS):
                    columns = columns or columns_of_teacher(record.row)
                    if columns is None:
                        return None
                    origin = Origin(str(source.path), record.line, len(rows))
                    rows += _row_with_predictions(origin, record.row, columns)
    except (TruetuneError, InputLimitError, OSError):
        return None
    return None if columns is None else TeacherFile(path, tuple(rows), columns[1])


def _row_with_predictions(origin: Origin, row: Any, columns: tuple[str, str]) -> list[TeacherRow]:
    """The record of a row, in a list; empty if it has no such columns."""
    if not isinstance(row, Mapping) or not isinstance(row.get("input_ids"), list):
        return []
    tokens, values = (_lists(row.get(name)) for name in columns)
    ids = tuple(token for token in row["input_ids"] if isinstance(token, int))
    return [TeacherRow(origin, ids, tokens, values)]


def _lists(value: Any) -> tuple[tuple[Any, ...], ...]:
    """The lists of numbers in a list; an empty one for each entry that is none."""
    entries = value if isinstance(value, list) else []
    return tuple(
        tuple(one for one in entry if isinstance(one, int | float))
        if isinstance(entry, list)
        else ()
        for entry in entries
    )


def _is_list_of_lists(value: Any) -> bool:
    """Is it a list with lists in it?"""
    return isinstance(value, list) and any(isinstance(one, list) for one in value)
