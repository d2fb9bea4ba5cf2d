"""The trainer counts far fewer rows than the data files contain.

## What it does
If a log is checked together with the settings of its run, compares the rows that the trainer counts when it starts
(`Num examples`) with those of the files, minus what is held out and what `max_samples` leaves out. It warns if 10 % or
more are missing, and looks for rows that may have been dropped: empty answers, duplicates, rows longer than the limit.
Packed runs, and rows that a script builds, are not judged. In the output alone it finds the trainer's own line that
rows were dropped because they are too long (`Dropped 8127 long samples from dataset`), if they are 30 % or more.

## Why it is bad
Trainers drop rows without a message: those that are too long, in another format, or fully masked. Or they read an old
cache. The run ends normally, but the model has never seen the missing rows.

## Example
```yaml
output: |
  ***** Running training *****
    Num examples = 410
    Num Epochs = 1
    Total optimization steps = 52
  {'loss': 1.31, 'epoch': 0.5}
rows: [{settings: sft.yaml, rows: 600, why: rows.jsonl holds 600 rows, files: [], limit: 1024, is_packed: false}]
```

## Use instead
```yaml
output: |
  ***** Running training *****
    Num examples = 600
    Num Epochs = 1
    Total optimization steps = 75
  {'loss': 1.31, 'epoch': 0.5}
rows: [{settings: sft.yaml, rows: 600, why: rows.jsonl holds 600 rows, files: [], limit: 1024, is_packed: false}]
```

## Fix safety
Counting changes nothing. A deleted cache is built again from the files, which takes time. A higher length limit takes
more memory.

## References
- Axolotl documentation, `sequence_len` (longer rows are dropped); huggingface/datasets#5360 (old caches)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.columns_and_age_of_training_files import local_data_files
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import OutputRule
from truetune.data.find_data_files import open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError
from truetune.logs.facts_in_files_beside_log import RowsBeside
from truetune.parsing.decompress_within_limits import UNREADABLE

MIN_SHARE = 0.1
"""Of the rows, from which it is worth a word: single rows that are too long or empty are in every set"""
MIN_LOST = 5
"""Rows; below, the last batch that is dropped explains it"""
MIN_SHARE_TOO_LONG = 0.3
"""Of the rows, from which the limit is wrong for them. Chosen, not measured: RL recipes filter a tenth on purpose, and
whoever set a limit that loses a third of the rows would rather have cut their number"""
MAX_ROWS = 20_000
"""Rows that are looked at for what may have gone"""
MAX_DEPTH = 4
"""Lists and mappings in a row: messages, their parts, and what those hold"""
# Measured with 30 published tokenizers (`rows_surely_cut`): 4.3 to 4.8 for English prose, about 3 for code.
CHARACTERS_PER_TOKEN = 4.0
AS_MANY = 0.1
"""Of the missing rows: a number within it is as many"""
ANSWERS = ("output", "completion", "response", "answer", "chosen")
CHATS = ("messages", "conversations", "conversation")


class _DroppableRows(NamedTuple):
    """Counts of rows that trainers drop."""

    empty: int
    copies: int
    long: int


class _RowsTooLong(NamedTuple):
    """Rows that the output itself says were left out for their length."""

    dropped: int
    before: int
    """All rows, with those"""


class RowsLostBeforeTraining(OutputRule):
    code = "LOG082"
    fault = Fault.ROWS_MISSING_FROM_TRAINING
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Also unmet where the trainer's count, or the settings with their rows, are missing."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._rows_said_to_be_too_long() is not None:
            return None
        if not self._rows_counted_by_trainer():
            return Unmet("the output does not say how many rows the trainer counted")
        if self._rows_of_settings() is None:
            return Unmet(
                "no settings with rows that are here were checked together with the log",
                "check the folder that holds both",
            )
        return None

    def measurement_if_clean(self) -> str:
        """The rows that the trainer counts, beside those of the files."""
        rows = self._rows_of_settings()
        rows_too_long = self._rows_said_to_be_too_long()
        if rows_too_long is not None and (rows is None or not self._rows_counted_by_trainer()):
            return f"{rows_too_long.dropped:,} of {rows_too_long.before:,} rows are dropped because they are too long"
        assert rows is not None, "else the rule is not judged"
        return f"the trainer counts {self._rows_counted_by_trainer():,} rows, the files hold {rows.rows:,}"

    def findings(self) -> Iterator[Finding]:
        rows_too_long = self._rows_said_to_be_too_long()
        if rows_too_long is not None and rows_too_long.dropped >= max(
            MIN_LOST, MIN_SHARE_TOO_LONG * rows_too_long.before
        ):
            yield self._finding_on_rows_too_long(rows_too_long)
            return
        rows, examples = self._rows_of_settings(), self._rows_counted_by_trainer()
        if rows is None or not examples:
            return
        lost = rows.rows - examples
        if lost < max(MIN_LOST, MIN_SHARE * rows.rows):
            return
        reasons = list(_reasons_rows_were_lost(rows, lost))
        yield self.finding(
            f"{lost:,} of {rows.rows:,} rows are lost before the training: the trainer counts only {examples:,}",
            "raise the length limit (max_length, cutoff_len, sequence_len) to the longest row, fix empty and malformed"
            " rows, and delete the cache of prepared rows (overwrite_cache, dataset_prepared_path,"
            " HF_DATASETS_CACHE); then compare the count again",
            evidence=[f"{Path(rows.settings).name}: {rows.why}", *reasons],
        )

    def _finding_on_rows_too_long(self, said: _RowsTooLong) -> Finding:
        """The finding on rows that the output says were dropped for their length."""
        left = said.before - said.dropped
        return self.finding(
            f"{said.dropped:,} of {said.before:,} rows ({said.dropped / said.before:.0%}) are dropped because they are"
            f" longer than the length limit: the run trains on the {left:,} shortest rows alone",
            "raise the limit (sequence_len in Axolotl, max_length in TRL, cutoff_len in LLaMA-Factory) to the length"
            " of the rows, or split long rows into parts, and compare the count again",
            evidence=[
                "the loss looks normal: it is that of the short rows, and long ones are never seen"
            ],
        )

    def _rows_said_to_be_too_long(self) -> _RowsTooLong | None:
        """The rows that a line of the output says were dropped for their length, and all rows; None without such a
        line, or where all rows are not known.
        """
        output = self.subject.output
        if output is None or not output.settings.rows_too_long:
            return None
        settings, dropped = output.settings, output.settings.rows_too_long
        # A script may have left out rows of the file before: what was tokenized counts first.
        before = settings.rows_before_drop or settings.rows_mapped or settings.rows_of_file or 0
        return _RowsTooLong(dropped, before) if dropped <= before else None

    def _rows_counted_by_trainer(self) -> int:
        """The number of rows that the trainer counted; 0 where it says nothing."""
        output = self.subject.output
        return (output.settings.examples or 0) if output is not None else 0

    def _rows_of_settings(self) -> RowsBeside | None:
        """The rows of the one run whose settings were given; None where there are several, or it
        packs them.
        """
        given = self.subject.files_beside.rows
        counts = {one.rows for one in given}
        if len(counts) != 1 or any(one.is_packed for one in given):
            return None
        return None if self.subject.facts.get("packing") else given[0]


def _reasons_rows_were_lost(rows: RowsBeside, lost: int) -> Iterator[str]:
    """What rows may have been lost, by the rows themselves; a reason that explains as many as are
    missing says so.
    """
    suspects = _count_droppable_rows(rows)
    named = (
        (suspects.empty, "have an empty answer"),
        (suspects.copies, "are duplicates of earlier rows"),
        (suspects.long, f"are longer than about {rows.limit or 0:,} tokens (4 characters each)"),
    )
    for count, what in named:
        if count:
            is_it = abs(count - lost) <= AS_MANY * lost
            yield f"{count:,} rows {what}" + (", as many as are missing" if is_it else "")
    if not any(count for count, _ in named):
        yield "no row is empty, a duplicate or too long: look for another format, a filter or an old cache"


def _count_droppable_rows(rows: RowsBeside) -> _DroppableRows:
    """Count the rows of the files that trainers drop."""
    seen: set[int] = set()
    empty = copies = long = 0
    for row in islice(_read_rows(rows), MAX_ROWS):
        key = hash(json.dumps(row, sort_keys=True, default=str))
        copies += key in seen
        seen.add(key)
        empty += _has_empty_answer(row)
        characters = sum(len(text) for text in _texts_within_value(row))
        long += rows.limit is not None and characters > CHARACTERS_PER_TOKEN * rows.limit
    return _DroppableRows(empty, copies, long)


def _read_rows(rows: RowsBeside) -> Iterator[Mapping[str, Any]]:
    """Read the rows of the files that the settings name."""
    beside = Path(rows.settings).parent
    for name in rows.files:
        for source in local_data_files(name) or local_data_files(str(beside / name)):
            try:
                with open_raw(source.path) as raw:
                    for record in read_records(source, raw):
                        if isinstance(record.row, Mapping):
                            yield record.row
            except (DataError, *UNREADABLE):
                continue


def _has_empty_answer(row: Mapping[str, Any]) -> bool:
    """Is the answer of a row empty: its column, or the last turn of its chat?"""
    for name in CHATS:
        turns = row.get(name)
        if isinstance(turns, list) and turns and isinstance(turns[-1], Mapping):
            return not str(turns[-1].get("content") or turns[-1].get("value") or "").strip()
    return any(name in row and not str(row[name] or "").strip() for name in ANSWERS)


def _texts_within_value(value: Any, depth: int = 0) -> Iterator[str]:
    """All texts within a value of a row, also in nested lists and objects."""
    if isinstance(value, str):
        yield value
    elif depth < MAX_DEPTH and isinstance(value, Mapping):
        for part in value.values():
            yield from _texts_within_value(part, depth + 1)
    elif depth < MAX_DEPTH and isinstance(value, list):
        for part in value:
            yield from _texts_within_value(part, depth + 1)
