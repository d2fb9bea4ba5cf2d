"""Columns of the rows contain text, or weights, that are in no batch.

## What it does
Takes the given rows that are recognised in the real batches, and looks for the text of each of their columns there.
Weights are looked for among the columns that reach the collator. Ids, sources, scores and dates are not reported.
Columns with names of prompt parts are a warning, others with prose are info.

## Why it is bad
A `system`, `context` or `reasoning` column that nobody maps is lost without a message, and the model learns to answer
without the information that the answer needs. `remove_unused_columns` removes weights before the loss sees them.

## Example

```python
for i, row in enumerate(rows):
    row["system"] = f"You count the fruit of a shop in the harbour, which is shop {i}."
given = datasets.Dataset.from_list(rows)
run = sft(rows)
```

## Use instead

```python
for i, row in enumerate(rows):
    row["messages"].insert(0, {"role": "system", "content": f"You count the fruit of shop {i}."})
    row["source"] = f"https://example.org/the/shop/at/the/harbour/{i}.html"
given = datasets.Dataset.from_list(rows)
run = sft(rows)
```

## Fix safety
There is no automatic fix: whether a column belongs in the prompt is your decision. Longer prompts take more memory.

## References

- hiyouga/LLaMA-Factory#7592, huggingface/transformers#43598, huggingface/trl#1186
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.evidence.documents_in_batch_lines import keys_of_batches
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import NO_ROWS
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recognise_prose_and_media_columns import (
    PROMPT_COLUMNS,
    columns_and_texts_of_row,
    does_batch_hold_media,
    is_mostly_in_rendering,
    is_prose,
    single_spaced,
)
from truetune.checks.rule import BatchRule
from truetune.errors import format_name_list
from truetune.settings.run_spec import Severity

# Weights are numbers, which no batch shows as text: they are looked for by name.
WEIGHT_COLUMNS = frozenset(
    ("weight", "weights", "loss_weight", "loss_weights", "sample_weight", "sample_weights")
)
TECHNICAL_COLUMNS = frozenset(("chosen", "rejected", "input_ids", "labels", "prompt_id"))
# Chosen, not measured: about two words. "Yes" stands in many lines, and a row told by it alone may
# be any row.
MIN_ROW_CHARACTERS = 12
"""Characters of a text by which its row is recognised"""


class ColumnsNeverUsed(BatchRule):
    code = "BAT031"
    fault = Fault.COLUMNS_MISSING_FROM_TRAINING_TEXT
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        config = self.subject.facts["model"]["config"]
        unused = {} if config.get("is_encoder_decoder") else self._column_use.unused
        by_name = {name: text for name, text in unused.items() if name.lower() in PROMPT_COLUMNS}
        # Of columns with other names only prose is told, as a note: they may be meant for people.
        by_text = {
            name: text for name, text in unused.items() if name not in by_name and is_prose(text)
        }
        if by_name:
            yield self._finding_on_unused_columns(by_name, "warning")
        if by_text:
            yield self._finding_on_unused_columns(by_text, "info")
        lost = self._unused_weight_columns()
        if lost:
            yield self.finding(
                f"the rows have {format_name_list(lost)}, but it reaches neither the collator nor the loss",
                "set remove_unused_columns=False, and use the weights in your own collator and compute_loss",
                severity="warning",
            )

    def _finding_on_unused_columns(self, columns: Mapping[str, str], severity: Severity) -> Finding:
        """Columns, each with one of its texts, that reach no batch."""
        return self.finding(
            f"the text of these columns of the given rows is in no batch: {format_name_list(columns)}",
            "write them into the messages or the prompt, or remove them from the rows",
            severity=severity,
            cases=[Case(f"{name}: {text[:60]!r}") for name, text in columns.items()],
        )

    def _unused_weight_columns(self) -> list[str]:
        """Columns of weights that neither the collator is given nor the batches hold."""
        data = self.subject.facts["data"]
        weights = set((data["given"] or {}).get("columns") or ()) & WEIGHT_COLUMNS
        return sorted(weights - set(data["used"]) - keys_of_batches(self.subject))

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if self.subject.facts["model"]["config"].get("is_encoder_decoder"):
            return Unmet("it is about decoders, and the inputs of an encoder are in other lines")
        if not any(record.rows for record in self.subject.records):
            return NO_ROWS
        return (
            None
            if self._column_use.columns
            else Unmet("no sequence was recognised as one of the given rows")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many given columns have no text in any batch."""
        more = "; they contain no prose" if self._column_use.unused else ""
        return make_count_measurement(
            "given columns whose text is in no batch",
            len(self._column_use.unused),
            self._column_use.columns,
            more,
        )

    @cached_property
    def _column_use(self) -> ColumnUse:
        """What became of the columns; found once."""
        return _find_column_use(self.subject)


class ColumnUse(NamedTuple):
    """What became of the columns of the given rows."""

    columns: int
    """With a text, in the rows that were recognised in the batches"""
    unused: dict[str, str]
    """Of which no text is in the lines of its row: with one of their texts"""


def _find_column_use(audit: Audit) -> ColumnUse:
    """Which columns reach no line of the rows that are recognised."""
    used = _columns_with_placed_text(audit)
    first: dict[str, str] = {}
    for row, lines in _rows_with_lines(audit):
        for column, text in columns_and_texts_of_row(row):
            first.setdefault(column, text)
            if column not in used and any(is_mostly_in_rendering(text, line) for line in lines):
                used.add(column)
    keys = keys_of_batches(audit)
    unused = {name: text for name, text in first.items() if name not in used | TECHNICAL_COLUMNS}
    return ColumnUse(
        len(first),
        {name: text for name, text in unused.items() if not does_batch_hold_media(name, keys)},
    )


def _rows_with_lines(audit: Audit) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The given rows that are recognised in lines, with the texts of these.

    A row that is in no line says nothing about its columns: the audit has seen a few batches only.
    """
    lines: dict[tuple[int, int], list[str]] = {}
    for sample in audit.samples:
        number = _row_of_line(sample)
        if number is not None:
            text = single_spaced(sample.text(0, len(sample.ids)))
            lines.setdefault((sample.rank, number), []).append(text)
    for record in audit.records:
        rank = int(record.facts["rank"])
        for number, row in zip(record.facts["data"]["numbers"], record.rows, strict=True):
            if (rank, number) in lines:
                yield row, lines[rank, number]


def _columns_with_placed_text(audit: Audit) -> set[str]:
    """The columns of which a text was placed among the tokens of a line."""
    return {
        re.split(r"[.\[]", sample.fields[i].path, maxsplit=1)[0]
        for sample in audit.samples
        for i in set(sample.field[sample.field >= 0].tolist())
    }


def _row_of_line(sample: Sample) -> int | None:
    """The given row of which most stands in a line; rows share phrases."""
    characters: Counter[int] = Counter()
    for text in sample.fields:
        characters[text.row] += len(text.text.strip())
    (row, length), *_ = characters.most_common(1) or [(0, 0)]
    return row if length >= MIN_ROW_CHARACTERS else None
