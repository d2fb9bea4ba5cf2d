"""The rows that the user gave: those from which the batches seem to come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch

from truetune.probe.peek_batches import Peeked

WINDOW_CHARS = 16
"""Characters by which a row is recognised in the text of a batch"""
COMPARED = 64
"""Rows whose texts are compared: what two of them share (a system prompt, a source) recognises none"""
WHOLE_DATASET_ROWS = 200
"""A data set of up to so many rows is taken whole"""
SEARCH_SECONDS = 10.0
MAX_ROWS_PER_WINDOW = 20
"""Rows that one and the same stretch of text may recognise: a question that is asked again, and no system prompt"""
COMPARED_ROWS = 2000
"""Rows of a data set by which it is recognised: shuffled batches of 32 rows hold one of them nearly always"""


def find_source_rows(
    given: Any, peeked: list[Peeked], tokenizer: Any
) -> tuple[list[dict[str, Any]], list[int], bool]:
    """Rows as JSON, their numbers, and whether all rows were looked at that the batches may come from.

    A row is taken where 16 characters from the middle of one of its texts stand in what the batches decode to. Rows
    without text, encoded before they were given, are taken where the batches name them.
    """
    from truetune.probe.observe_run import to_json

    if given is None or not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        return [], [], given is None
    named = sorted(
        {index for batch in peeked for index in batch.indices or () if 0 <= index < len(given)}
    )
    if len(given) <= WHOLE_DATASET_ROWS:
        numbers = list(range(len(given)))
    elif not any(any(texts_in(given[i])) for i in range(8)):
        numbers = named
    else:
        return _search_rows(given, named, peeked, tokenizer)
    return (
        [to_json(row) if isinstance(row := given[number], Mapping) else {} for number in numbers],
        numbers,
        True,
    )


def share_in_batches(rows: Any, peeked: list[Peeked], tokenizer: Any) -> float:
    """The share of the first rows of a data set whose text stands in the batches; 0 where it has no rows with text.

    Which data set of a process the batches come from is told by this, so a few thousand rows are enough.
    """
    if not hasattr(rows, "__len__") or not hasattr(rows, "__getitem__"):
        return 0.0
    known = TextWindows(peeked, getattr(tokenizer, "tokenizer", tokenizer))
    count = min(len(rows), COMPARED_ROWS)
    return sum(known.hold(rows[number]) for number in range(count)) / max(count, 1)


class TextWindows:
    """All stretches of WINDOW characters of the batches' texts, and which of them rows were recognised by."""

    def __init__(self, peeked: list[Peeked], tokenizer: Any) -> None:
        texts = list(_decoded_lines(peeked, tokenizer))
        self._windows = {
            text[i : i + WINDOW_CHARS]
            for text in texts
            for i in range(len(text) - WINDOW_CHARS + 1)
        }
        self._rows_by: Counter[str] = Counter()

    def hold(self, row: Any) -> bool:
        """Does the middle of one of the row's texts stand in the batches?

        Any of them: the longest may be of the column that reaches no batch. A text that many rows share, such as a
        system prompt, says nothing of the single row.
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

    def may_hold(self, row: Any) -> bool:
        """The same, or are its texts too short to say?"""
        longest = max((len(" ".join(text.split())) for text in texts_in(row)), default=0)
        return self.hold(row) or 0 < longest < WINDOW_CHARS


def _search_rows(
    given: Any, named: list[int], peeked: list[Peeked], tokenizer: Any
) -> tuple[list[dict[str, Any]], list[int], bool]:
    """Where the trainer kept the order of the rows, those that the batches name are found at once."""
    from truetune.probe.observe_run import to_json

    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if tokenizer is None or not peeked:
        return [], [], False
    windows = TextWindows(peeked, tokenizer)
    found: dict[int, dict[str, Any]] = {}
    until = time.perf_counter() + SEARCH_SECONDS

    def look(numbers: Iterable[int]) -> bool:
        for number in numbers:
            row = given[number]
            if number not in found and windows.may_hold(row):
                found[number] = to_json(row) if isinstance(row, Mapping) else {}
            if time.perf_counter() > until:
                return False
        return True

    complete = look(named)
    if not named or len(found) < len(named):
        complete = look(range(len(given)))
    return [found[number] for number in sorted(found)], sorted(found), complete


def _decoded_lines(peeked: list[Peeked], tokenizer: Any) -> Iterator[str]:
    for value in chain.from_iterable(batch.inputs.values() for batch in peeked):
        if isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point():
            for row in value.tolist():
                yield " ".join(tokenizer.decode([id for id in row if id >= 0]).split())


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a row."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
