"""The collator gives labels to tokens that the rows keep out of the loss.

## What it does
Compares the labels that the rows had before the collator with those that it returned. It fires if tokens with the label
-100 get another one.

## Why it is bad
The mask has no effect: the model learns prompts as well as answers, and nothing reports it. The language modelling
collator of transformers always makes its labels from the ids.

## Example

```python
collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
run = transformers.Trainer(model, arguments(per_device_train_batch_size=1), collator, encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
collator = transformers.DataCollatorForSeq2Seq(tokenizer)
run = transformers.Trainer(model, arguments(per_device_train_batch_size=1), collator, encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: your code chooses the collator. `DataCollatorForSeq2Seq(tokenizer)` pads the labels of the
rows; prompts are then no longer in the loss.

## References

- huggingface/transformers#26357, oobabooga/textgen#4031
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.evidence.answer_spans import text_around
from truetune.checks.batch.evidence.loss_masks_lost_in_batches import (
    count_minus_100_labels_and_learned,
    labels_learned_despite_minus_100,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule


class LabelsOverwrittenByCollator(BatchRule):
    code = "BAT010"
    fault = Fault.LOSS_MASK_IGNORED_OR_OVERWRITTEN
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        lost = labels_learned_despite_minus_100(self.subject)
        if lost is None:
            return
        yield self.finding(
            f"{lost.tokens:,} of {lost.masked:,} tokens to which the rows give the label -100 are in the loss",
            "use a collator that keeps the labels of the rows: DataCollatorForSeq2Seq(tokenizer)",
            evidence=[f"the collator is {self.subject.facts['trainer']['collator']}"],
            cases=[
                Case(f"{sample.place}: a label on {text_around(sample, i)}")
                for sample, i in lost.places[:MAX_CASES]
            ],
            count=lost.tokens,
            total=lost.masked,
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None or count_minus_100_labels_and_learned(self.subject).masked:
            return lacking
        return Unmet("it is about rows that come with labels of -100, and none is known to")

    def measurement_if_clean(self) -> Measurement:
        """How many tokens that the rows label -100 are in the loss."""
        return make_count_measurement(
            "tokens with the label -100 in the rows that are in the loss",
            0,
            count_minus_100_labels_and_learned(self.subject).masked,
        )
