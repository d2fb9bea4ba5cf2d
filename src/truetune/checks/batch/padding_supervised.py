"""Padding is in the loss.

## What it does
Counts padding, by position and not by id, with a label other than -100.

## Why it is bad
The model learns to write pad tokens after its answers, and the loss falls with every pad in the batch, whatever the
model has learned. The shorter a row, the less its answer counts.

## Example

```python
def collate(rows):
    made = tokenizer.pad([{"input_ids": row["input_ids"]} for row in rows], return_tensors="pt")
    return {**made, "labels": made["input_ids"].clone()}

run = transformers.Trainer(model, arguments(), collate, encoded(rows), processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: the collator is your code. With the label -100 on padding, the loss is only on text, and
becomes higher.

## References

- wangshy31/OneRec-Think#8, JulesBelveze/bert-squeeze#80
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.batch.evidence.answer_spans import lines_with_unshifted_labels, text_around
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import explain_missing_labels
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

NOT_PADDED = Unmet("it is about padding, and no line is padded")


class PaddingSupervised(BatchRule):
    code = "BAT005"
    fault = Fault.PADDING_IN_LOSS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True
    # Text that the mask hides would be taken for padding.
    moot_where = ("attention-mask-hides-text",)

    def findings(self) -> Iterator[Finding]:
        samples = list(lines_with_unshifted_labels(self.subject))
        wrong = [(sample, np.flatnonzero(sample.padding & sample.supervised)) for sample in samples]
        count = sum(len(places) for _, places in wrong)
        if not count:
            return
        yield self.finding(
            f"{count:,} of {sum(int(sample.padding.sum()) for sample in samples):,} pad tokens are in the"
            " loss",
            "set the labels of padding to -100, by position: use DataCollatorForSeq2Seq(tokenizer) or TRL's"
            " collator, or labels[attention_mask == 0] = -100",
            cases=[
                Case(
                    f"{sample.place}: {len(places)} pad tokens with a label, from"
                    f" {text_around(sample, int(places[0]))}"
                )
                for sample, places in wrong
                if len(places)
            ],
            count=count,
            total=sum(int(sample.supervised.sum()) for sample in samples),
        )

    def unmet(self) -> Unmet | None:
        lines = list(lines_with_unshifted_labels(self.subject))
        lacking = super().unmet() or explain_missing_labels(self.subject, lines)
        if lacking is not None:
            return lacking
        return None if any(sample.padding.any() for sample in lines) else NOT_PADDED

    def measurement_if_clean(self) -> Measurement:
        """How many pads are in the loss."""
        return make_count_measurement(
            "pad tokens that are in the loss",
            0,
            sum(int(line.padding.sum()) for line in lines_with_unshifted_labels(self.subject)),
        )
