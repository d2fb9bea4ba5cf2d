"""What is supervised comes from a column that is not the answer.

## What it does

Compares the texts that have labels in the first batches with the columns of the rows that they come from. It fires
where the answer of these rows is in no line, and another column is in the loss in its place.

## Why it is bad

The model recites what is no answer: a hint, a category, an older draft. The loss may fall faster than with the right
column, and nothing in the log tells.

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

There is no automatic fix: which column is the answer is the user's to say.

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
from truetune.auditing.row_fields import list_row_fields
from truetune.checks.batch.answers import around, judged
from truetune.checks.batch.needs import NO_ROWS, no_labels
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.errors import name_list
from truetune.render.rendering import Source

ANSWERS = (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL, Source.TEXT)


class AnotherFieldSupervised(BatchRule):
    code = "BAT016"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        samples = self._samples
        seen = [field for sample in samples for field in _fields(sample, supervised=False)]
        answers = [
            field
            for record in self.subject.records
            for row in record.rows
            for field in list_row_fields(row, 0)
            if field.source in ANSWERS
        ]
        texts = {field.text.strip() for field in answers}
        learned = Counter(
            _column(field)
            for sample in samples
            for field in _fields(sample, supervised=True)
            if field.source == Source.OTHER and field.text.strip() not in texts
        )
        if not learned or not answers or any(field.source in ANSWERS for field in seen):
            return
        (column, count), answer = learned.most_common(1)[0], _column(answers[-1])
        yield self.finding(
            f"the column {column} is in the loss, and the answer of these rows, {answer}, is in no"
            " line",
            f"map the answer to {answer}; if {column} is meant, leave this rule out",
            evidence=[
                f"columns in the batches: {name_list(sorted({_column(field) for field in seen}))}"
            ],
            cases=[
                Case(
                    f"{sample.place}: a label on"
                    f" {around(sample, int(np.flatnonzero(sample.supervised)[0]) + 5)}"
                )
                for sample in samples[:MAX_CASES]
            ],
            count=count,
            total=len(samples),
        )

    def unmet(self) -> Unmet | None:
        if (
            lacking := super().unmet() or no_labels(self.subject, list(judged(self.subject)))
        ) is not None:
            return lacking
        if not any(record.rows for record in self.subject.records):
            return NO_ROWS
        return (
            None
            if self._samples
            else Unmet("no text of the given rows was recognised in the lines")
        )

    def figure(self) -> Measurement:
        held = sum(
            any(one.source in ANSWERS for one in _fields(line, supervised=False))
            for line in self._samples
        )
        return counted("lines that hold an answer of the given rows", held, len(self._samples))

    @cached_property
    def _samples(self) -> list[Sample]:
        """Lines in which texts of the given rows are recognised."""
        return [sample for sample in judged(self.subject) if (sample.field >= 0).any()]


def _fields(sample: Sample, *, supervised: bool) -> list[Field]:
    """The texts in a line, or those of them that have labels."""
    owners = sample.field[sample.supervised] if supervised else sample.field
    return [sample.fields[i] for i in np.unique(owners[owners >= 0]).tolist()]


def _column(field: Field) -> str:
    return re.split(r"[.\[]", field.path, maxsplit=1)[0]
