"""In a packed sequence, the first token of a document has a label.

## What it does
Checks packed sequences whose positions restart with each document, and the label of each document's first token. A
model predicts it from the last token of the document before. If these first tokens are all the same (BOS), it is info,
else a warning.

## Why it is bad
The model learns that one row follows another. The documents are separated in the attention, but here they are joined
again.

## Example

```python
made = encoded(rows)
for row in made:
    row["labels"] = list(row["input_ids"])

def collate(rows):
    made = transformers.DataCollatorWithFlattening()(rows)
    return {**made, "labels": made["input_ids"].clone()}

run = transformers.Trainer(model, arguments(remove_unused_columns=False), collate, made, processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorWithFlattening(), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: set the label of each document's first token to -100. One token per document is then no
longer in the loss.

## References

- huggingface/trl#5076, huggingface/trl#3526
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Sample
from truetune.checks.batch.evidence.answer_spans import lines_with_unshifted_labels, text_around
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import explain_missing_labels
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule


class FirstTokenOfPackedDocumentSupervised(BatchRule):
    code = "BAT006"
    fault = Fault.PACKED_ROWS_NOT_SEPARATED
    symptoms = ("garbage-output",)
    severity = "warning"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        first = self._starts_of_later_documents
        wrong = [(sample, i) for sample, i in first if sample.supervised[i]]
        if not wrong:
            return
        one = len({int(sample.ids[i]) for sample, i in wrong}) == 1
        yield self.finding(
            f"{len(wrong)} of {len(first)} documents in packed sequences begin with a label, which is predicted from"
            " the document before",
            "set the label of the first token of each document to -100 in the collator (DataCollatorWithFlattening does"
            " so)",
            severity="info" if one else "warning",
            evidence=["it is the same token in all of them"] if one else (),
            cases=[
                Case(f"{sample.place}: {text_around(sample, i)} begins at token {i}")
                for sample, i in wrong[:MAX_CASES]
            ],
            count=len(wrong),
            total=len(first),
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet() or explain_missing_labels(
            self.subject, list(lines_with_unshifted_labels(self.subject))
        )
        if lacking is not None:
            return lacking
        return (
            None
            if self._starts_of_later_documents
            else Unmet("it is about sequences of several documents that positions separate")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many documents in packs begin with a label."""
        return make_count_measurement(
            "documents in packed sequences that begin with a label",
            0,
            len(self._starts_of_later_documents),
        )

    @cached_property
    def _starts_of_later_documents(self) -> list[tuple[Sample, int]]:
        """Lines, and where in them documents after the first begin."""
        return [
            (sample, int(i))
            for sample in lines_with_unshifted_labels(self.subject)
            for i in _later_document_starts_in_line(sample)
        ]


def _later_document_starts_in_line(sample: Sample) -> NDArray[np.int64]:
    """Where documents after the first begin, in a line whose positions tell them apart."""
    if sample.positions is None:
        return np.empty(0, np.int64)
    places = np.flatnonzero((sample.positions == 0) & ~sample.padding)
    return places[(places > 0) & (sample.documents[places] > 0)]
