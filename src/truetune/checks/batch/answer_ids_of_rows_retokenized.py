"""The rows contain token ids, but the trainer tokenized their text again.

## What it does
For DPO, ORPO, KTO and reward models, checks whether the ids that the given rows contain for their answers
(`chosen_ids`, `rejected_ids`, `completion_ids`, `chosen_input_ids`, ...) are in any sequence of the batches. It warns
if none of them is: the trainer tokenized the text beside them.

## Why it is bad
TRL's preference trainers always tokenize `prompt`, `chosen`, `rejected` and `completion`, and write their own ids into
columns of that name. If the rows' ids differ from the text, that is lost without a message: another template, answers
that were cut off, control tokens.

## Example

```python
given = [{**row, "prompt_ids": [5, 6, 7], "chosen_ids": [8, 9, 10, 11], "rejected_ids": [12, 13, 14, 15]}
         for row in pairs()]
run = dpo(given)
given = datasets.Dataset.from_list(given)
```

## Use instead

```python
run = dpo(pairs())
given = datasets.Dataset.from_list([
    {**row, **{name: run.train_dataset[i][name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")}}
    for i, row in enumerate(pairs())
])
```

## Fix safety
There is no automatic fix: remove the id columns, and give the trainer text that becomes the ids you want. `truetune
train` makes ids and labels of pairs by itself.

## References

- huggingface/trl#2368
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from truetune.auditing.audit import Audit, Sample
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.data.column_name_aliases import token_id_columns
from truetune.errors import format_name_list

PREFERENCE_METHODS = ("dpo", "orpo", "kto", "reward")
# Enough to tell any two answers apart; the last ids of a long one may be beyond the limit.
MAX_COMPARED_IDS = 64
"""Ids of an answer that are compared: where a line was cut, its end is missing"""
# Two ids ("Yes" and a stop token) stand in many lines that were made of text.
MIN_COMPARED_IDS = 3
"""Ids by which an answer can be told from others"""


class AnswerIdsOfRowsRetokenized(BatchRule):
    code = "BAT044"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "warning"

    def __init__(self, subject: Audit) -> None:
        super().__init__(subject)
        rows = [row for record in subject.records for row in record.rows]
        self.columns = sorted({name for row in rows for name in token_id_columns(row)})
        self.ids = [ids for row in rows for ids in _first_answer_ids_of_columns(row)]
        self.lines = [sample for sample in subject.samples if sample.side != "kl"]
        self.used = sum(self._holds_answer_ids(sample) for sample in self.lines)

    def _holds_answer_ids(self, sample: Sample) -> bool:
        """Does a line hold the ids of an answer of any row?"""
        text = sample.ids.astype(np.int64).tobytes()
        wanted = (
            np.array(ids, np.int64).tobytes() for ids in self.ids if len(ids) >= MIN_COMPARED_IDS
        )
        return any(_holds_id_sequence(ids, text) for ids in wanted)

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None or self.used:
            return
        yield self.finding(
            f"the ids in {format_name_list(self.columns)} are not used: none of {len(self.lines)} sequences"
            " contains those of a row",
            "remove these columns, and give the trainer text that becomes these ids: it tokenizes the text of the rows",
            cases=[
                Case(f"{sample.place}: begins with {sample.text(0, 16)!r}")
                for sample in self.lines[:MAX_CASES]
            ],
            count=len(self.lines),
            total=len(self.lines),
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if self.subject.kind not in PREFERENCE_METHODS or not any(
            len(ids) >= MIN_COMPARED_IDS for ids in self.ids
        ):
            return Unmet(
                "it is about preference data that holds ids of its answers, beside their text"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many lines hold the ids of a given row."""
        return make_count_measurement(
            "sequences that contain the ids of a given row", self.used, len(self.lines)
        )


def _holds_id_sequence(ids: bytes, line: bytes) -> bool:
    """Do the bytes of a line hold those of some ids, at whole numbers of eight bytes?

    A match between two numbers is none.
    """
    at = line.find(ids)
    while at >= 0 and at % 8:
        at = line.find(ids, at + 1)
    return at >= 0


def _first_answer_ids_of_columns(row: dict[str, Any]) -> Iterator[list[int]]:
    """The first ids of each column of a row that holds those of an answer."""
    for name in token_id_columns(row):
        if not name.startswith("prompt"):
            yield row[name][:MAX_COMPARED_IDS]
