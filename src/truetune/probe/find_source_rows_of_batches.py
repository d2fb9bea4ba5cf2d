"""Finds the rows of the user's data set from which the trainer's batches come.

A batch holds ids. The rows that they were made from stand in the data set that the user gave the trainer, before any
preparation, but at which numbers is not known: preparation may filter, shuffle, split and pack. A row is recognised
where a few characters from the middle of one of its texts stand in what a batch decodes to (`TextWindows`).

Trade-off: a substring instead of an exact inverse of the preparation, which is the user's code. It may take a row too
many where texts repeat; rules that need one certain row ask for more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch

from truetune.probe.peek_batches import PeekedBatch
from truetune.probe.run_values_to_json import to_json
from truetune.probe.texts_of_row import texts_in

# Characters by which a row is recognised in the text of a batch. Chosen, not measured: three words or so. With half,
# ordinary phrases recognise rows; with twice as many, short questions are too short to be recognised.
WINDOW_CHARS = 16
# A data set of up to so many rows is taken whole: to read them costs less than to search them.
WHOLE_DATASET_ROWS = 200
# For the search through all rows, in a run that waits for it. What was not searched is told among the notes.
SEARCH_SECONDS = 10.0
# Rows that one and the same stretch of text may recognise. Of a question that is asked again each row counts; a system
# prompt, which thousands share, says nothing of the single row.
MAX_ROWS_PER_WINDOW = 20
# Rows of a data set by which it is recognised among others: shuffled batches of 32 rows hold one of them nearly always.
COMPARED_ROWS = 2000
# Rows that are looked at to learn whether a data set holds texts at all.
_SAMPLED_ROWS = 8

Rows = tuple[list[dict[str, Any]], list[int], bool]
"""Rows as JSON, their numbers in the data set, and whether all rows were looked at"""


def find_source_rows(source_data: Any, peeked: list[PeekedBatch], tokenizer: Any) -> Rows:
    """Find the rows of a data set that the batches seem to come from.

    A row is taken where 16 characters from the middle of one of its texts stand in what the batches decode to. Rows
    without text, encoded before they were given, are taken where the batches name them.

    Args:
        source_data: the data set as the user gave it; None where it is not known.
        peeked: the batches.
        tokenizer: of transformers, or a processor that holds one; None where there is none.

    Returns:
        Rows as JSON, their numbers, and whether all rows were looked at that the batches may come from.
    """
    if (
        source_data is None
        or not hasattr(source_data, "__len__")
        or not hasattr(source_data, "__getitem__")
    ):
        return [], [], source_data is None
    named = _row_numbers_named_by_batches(peeked, len(source_data))
    if len(source_data) <= WHOLE_DATASET_ROWS:
        numbers = list(range(len(source_data)))
    elif not any(any(texts_in(source_data[i])) for i in range(_SAMPLED_ROWS)):
        numbers = named
    else:
        return _search_rows(source_data, named, peeked, tokenizer)
    rows = []
    for number in numbers:
        row = source_data[number]
        rows.append(to_json(row) if isinstance(row, Mapping) else {})
    return rows, numbers, True


def _row_numbers_named_by_batches(peeked: list[PeekedBatch], row_count: int) -> list[int]:
    """The row numbers that the batches name, those that the data set has, ascending."""
    indices = chain.from_iterable(batch.indices or () for batch in peeked)
    return sorted({index for index in indices if 0 <= index < row_count})


def share_of_first_rows_in_batches(rows: Any, peeked: list[PeekedBatch], tokenizer: Any) -> float:
    """The share of the first rows of a data set whose text stands in the batches; 0 where it has no rows with text.

    Which data set of a process the batches come from is told by this, so a few thousand rows are enough.
    """
    if not hasattr(rows, "__len__") or not hasattr(rows, "__getitem__"):
        return 0.0
    windows = TextWindows(peeked, getattr(tokenizer, "tokenizer", tokenizer))
    count = min(len(rows), COMPARED_ROWS)
    return sum(windows.do_batches_hold_row(rows[number]) for number in range(count)) / max(count, 1)


class TextWindows:
    """All stretches of WINDOW_CHARS characters of the batches' texts, and which of them rows were recognised by."""

    def __init__(self, peeked: list[PeekedBatch], tokenizer: Any) -> None:
        """Decode the batches with this tokenizer."""
        texts = list(_decoded_lines(peeked, tokenizer))
        # A set, so that each row costs one look-up, whatever the batches hold.
        self._windows = {
            text[i : i + WINDOW_CHARS]
            for text in texts
            for i in range(len(text) - WINDOW_CHARS + 1)
        }
        self._rows_by: Counter[str] = Counter()

    def do_batches_hold_row(self, row: Any) -> bool:
        """Do the batches hold the row: does the middle of one of its texts stand in them?

        Any of them: the longest may be of the column that reaches no batch. The middle, since rows of one data set
        often begin and end alike. A text that many rows share, such as a system prompt, says nothing of one row.
        """
        for text in texts_in(row):
            line = " ".join(text.split())
            start = (len(line) - WINDOW_CHARS) // 2
            middle = line[start : start + WINDOW_CHARS] if start >= 0 else ""
            if middle in self._windows:
                self._rows_by[middle] += 1
                if self._rows_by[middle] <= MAX_ROWS_PER_WINDOW:
                    return True
        return False

    def may_batches_hold_row(self, row: Any) -> bool:
        """May the batches hold the row: do they hold it, or are its texts too short to say?"""
        longest = max((len(" ".join(text.split())) for text in texts_in(row)), default=0)
        return self.do_batches_hold_row(row) or 0 < longest < WINDOW_CHARS


def _search_rows(
    source_data: Any, named: list[int], peeked: list[PeekedBatch], tokenizer: Any
) -> Rows:
    """The rows whose texts stand in the batches, within SEARCH_SECONDS.

    Where the trainer kept the order of the rows, those whose numbers the batches name are the right ones, and the
    search of all others is spared (`test_rows_in_order_are_found_at_once`: fewer than 20 of 100,000 are read).
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if tokenizer is None or not peeked:
        return [], [], False
    windows = TextWindows(peeked, tokenizer)
    rows: dict[int, dict[str, Any]] = {}
    until = time.perf_counter() + SEARCH_SECONDS

    def search(numbers: Iterable[int]) -> bool:
        """Add the fitting ones of these rows; was there time for all of them?"""
        for number in numbers:
            row = source_data[number]
            if number not in rows and windows.may_batches_hold_row(row):
                rows[number] = to_json(row) if isinstance(row, Mapping) else {}
            if time.perf_counter() > until:
                return False
        return True

    complete = search(named)
    if not named or len(rows) < len(named):
        complete = search(range(len(source_data)))
    return [rows[number] for number in sorted(rows)], sorted(rows), complete


def _decoded_lines(peeked: list[PeekedBatch], tokenizer: Any) -> Iterator[str]:
    """Yield the text of each line of ids, with single spaces: tokenizers differ in white space."""
    for value in chain.from_iterable(batch.inputs.values() for batch in peeked):
        # Masks and positions are decoded, too: what they spell is no text of a row.
        if isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point():
            for row in value.tolist():
                # Labels hold -100, which no tokenizer decodes.
                yield " ".join(tokenizer.decode([id for id in row if id >= 0]).split())
