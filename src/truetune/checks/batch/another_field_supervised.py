"""The loss is on a column that is not the answer.

## What it does
Compares the texts that have labels in the first batches with the columns of the rows that they come from. It fires if
the answer of these rows is in no sequence of the batches, and another column is in the loss instead.

## Why it is bad
The model memorises something that is not an answer: a hint, a category, an older draft. The loss may fall faster than
with the right column, and the log does not show it.

## Example

```python
given = datasets.Dataset.from_list([
    {"instruction": f"How many {fruit} are in the box?", "output": f"There are {i + 3} {fruit} in it.",
     "category": f"counting of {fruit} and others"} for i, fruit in enumerate(FRUITS)])
asked = [{"messages": [{"role": "user", "content": row["instruction"]},
                       {"role": "assistant", "content": row["category"]}]} for row in given]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(asked),
                           processing_class=tokenizer)
```

## Use instead

```python
given = datasets.Dataset.from_list([
    {"instruction": f"How many {fruit} are in the box?", "output": f"There are {i + 3} {fruit} in it.",
     "category": f"counting of {fruit} and others"} for i, fruit in enumerate(FRUITS)])
asked = [{"messages": [{"role": "user", "content": row["instruction"]},
                       {"role": "assistant", "content": row["output"]}]} for row in given]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(asked),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: only you know which column is the answer. Map that column to the answer in the formatting
function or the data settings; the loss is then higher at first, and on the right text.

## References

- hiyouga/LlamaFactory#7592, huggingface/open-r1#585
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.auditing.audit import Field, Sample
from truetune.auditing.list_row_texts_with_sources import list_row_fields
from truetune.checks.batch.evidence.answer_spans import lines_with_unshifted_labels, text_around
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import (
    NO_ROWS,
    explain_missing_labels,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.errors import format_name_list
from truetune.render.rendering import Source

ANSWER_SOURCES = (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL, Source.TEXT)


class AnotherFieldSupervised(BatchRule):
    code = "BAT016"
    fault = Fault.ANOTHER_COLUMN_TRAINED_AS_ANSWER
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        samples, answers = self._lines_with_recognised_texts, self._row_texts_known_as_answers
        read = [field for sample in samples for field in _fields_in_line(sample, supervised=False)]
        learned = self._labelled_columns_unknown_as_answers(answers)
        # Where even one line holds an answer, it is the mask that is wrong and not the column.
        if not learned or not answers or any(field.source in ANSWER_SOURCES for field in read):
            return
        (column, count), answer = learned.most_common(1)[0], _column_of(answers[-1])
        yield self.finding(
            f"the column {column} is in the loss, but the answer of these rows, {answer}, is in no"
            " sequence of the batches",
            f"map {answer} to the answer in the formatting function or the data settings; if you train on {column} on"
            " purpose, run with --ignore another-field-supervised",
            evidence=[
                f"columns in the batches: {format_name_list(sorted({_column_of(field) for field in read}))}"
            ],
            cases=[Case(self._show_labelled_tokens(sample)) for sample in samples[:MAX_CASES]],
            count=count,
            total=len(samples),
        )

    @cached_property
    def _row_texts_known_as_answers(self) -> list[Field]:
        """The texts of the given rows that are answers by their format."""
        return [
            field
            for record in self.subject.records
            for row in record.rows
            for field in list_row_fields(row, 0)
            if field.source in ANSWER_SOURCES
        ]

    def _labelled_columns_unknown_as_answers(self, answers: list[Field]) -> Counter[str]:
        """Columns that no format knows as an answer, and that have labels; by how often."""
        # A column may be a copy of the answer under another name: then the right text is learned.
        texts = {field.text.strip() for field in answers}
        return Counter(
            _column_of(field)
            for sample in self._lines_with_recognised_texts
            for field in _fields_in_line(sample, supervised=True)
            if field.source == Source.OTHER and field.text.strip() not in texts
        )

    @staticmethod
    def _show_labelled_tokens(sample: Sample) -> str:
        """The first tokens of a line that have labels."""
        first = int(np.flatnonzero(sample.supervised)[0])
        return f"{sample.place}: a label on {text_around(sample, first + 5)}"

    def unmet(self) -> Unmet | None:
        lacking = super().unmet() or explain_missing_labels(
            self.subject, list(lines_with_unshifted_labels(self.subject))
        )
        if lacking is not None:
            return lacking
        if not any(record.rows for record in self.subject.records):
            return NO_ROWS
        return (
            None
            if self._lines_with_recognised_texts
            else Unmet("no text of the given rows was recognised in the sequences")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many lines hold an answer of the given rows."""
        held = sum(
            any(one.source in ANSWER_SOURCES for one in _fields_in_line(line, supervised=False))
            for line in self._lines_with_recognised_texts
        )
        return make_count_measurement(
            "sequences that contain an answer of the given rows",
            held,
            len(self._lines_with_recognised_texts),
        )

    @cached_property
    def _lines_with_recognised_texts(self) -> list[Sample]:
        """Lines in which texts of the given rows are recognised."""
        return [
            sample
            for sample in lines_with_unshifted_labels(self.subject)
            if (sample.field >= 0).any()
        ]


def _fields_in_line(sample: Sample, *, supervised: bool) -> list[Field]:
    """The texts in a line, or those of them that have labels."""
    owners = sample.field[sample.supervised] if supervised else sample.field
    return [sample.fields[i] for i in np.unique(owners[owners >= 0]).tolist()]


def _column_of(field: Field) -> str:
    """The column that a text stands in: `messages` of `messages[1].content`."""
    return re.split(r"[.\[]", field.path, maxsplit=1)[0]
