"""Names of the columns of tokenized rows, and the test whether a file holds such rows.

A file is tokenized where its rows have `input_ids`: that is the column that trainers go by. Every other column only
says what of these ids is learned, seen, or part of which document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from truetune.data.find_data_files import DataFile, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError, TruetuneError

IDS = "input_ids"
LABELS = "labels"
ATTENTION = "attention_mask"
POSITIONS = "position_ids"
# A row has one of them as a rule; where it has several, a token must be in all of them.
MASK_COLUMNS = ("loss_mask", "completion_mask", "assistant_masks", "assistant_mask")
"""Columns that are 1 where a token is in the loss"""
LENGTH_COLUMNS = ("seq_lengths", "seq_lens")
"""Columns with the lengths of the documents of a pack"""
DOCUMENT_COLUMNS = ("seq_idx", "sequence_ids", "document_ids", "segment_ids")
"""Columns with the number of each token's document"""
SOURCES = "sources"
"""Column of `truetune encode` with the source of each token"""
PAIR_COLUMNS = (
    "chosen_input_ids",
    "rejected_input_ids",
    "prompt_input_ids",
    "chosen_ids",
    "rejected_ids",
)
"""Columns of tokenized preference pairs, which are not read here"""
READ_COLUMNS = frozenset(
    (IDS, LABELS, ATTENTION, POSITIONS, SOURCES, *MASK_COLUMNS, *LENGTH_COLUMNS, *DOCUMENT_COLUMNS)
)
# Chosen, not measured: to look at more costs nothing for most files, and a file of which 20 rows
# are empty has no use.
MAX_SAMPLED_ROWS = 20
"""Rows at the beginning of a file in which a row with ids is looked for: the first ones may be empty or broken"""


def is_tokenized_row(row: object) -> bool:
    """Is this row tokenized already? A column of ids is what trainers go by, whatever else stands beside it."""
    if not isinstance(row, Mapping):
        return False
    ids = row.get(IDS)
    return isinstance(ids, list) and all(type(id) is int for id in ids)


def does_first_file_hold_token_ids(sources: Iterable[DataFile]) -> bool:
    """Do these files hold token ids? Told by the first rows of the first file; False where they can't be read.

    Args:
        sources: files of one data set.
    """
    first = next(iter(sources), None)
    # A cell of CSV is text: it can't hold a list of numbers.
    if first is None or first.kind == "csv":
        return False
    try:
        with open_raw(first.path) as raw:
            rows = [record.row for record in islice(read_records(first, raw), MAX_SAMPLED_ROWS)]
    except (TruetuneError, OSError):
        return False
    rows = [row for row in rows if isinstance(row, dict)]
    # A column called input_ids that holds text somewhere is no tokenized data.
    return any(row.get(IDS) for row in rows) and all(
        is_tokenized_row(row) for row in rows if row.get(IDS) is not None
    )


def refuse_preference_pairs_of_ids(columns: Iterable[str], where: str) -> None:
    """Raise DataError for rows that are both sides of a pair as ids."""
    pairs = sorted(set(columns) & set(PAIR_COLUMNS))
    if pairs:
        raise DataError(
            f"{where}: the rows are tokenized preference pairs ({', '.join(pairs)}), which are not"
            " read; name the rows before they were tokenized"
        )


def read_first_row(source: DataFile) -> Mapping[str, Any]:
    """The first row of a file; an empty mapping where there is none. Raises DataError."""
    with open_raw(source.path) as raw:
        for record in read_records(source, raw):
            return record.row if isinstance(record.row, dict) else {}
    return {}
