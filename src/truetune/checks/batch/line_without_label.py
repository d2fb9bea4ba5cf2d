"""Sequences of the batches have no label at all.

## What it does
Counts the sequences, and the micro-batches, of the first batches in which no token has a label. It is an error if a
whole micro-batch has none, and a warning if only some of its sequences do. It also says how many of them are as long as
the length limit.

## Why it is bad
Such a sequence teaches nothing. The loss of a micro-batch without labels is 0/0: NaN in the forward pass, and 0.0 in
the log of transformers, which filters it. The usual cause is a prompt that fills the limit, or a response marker that
is not found in the text.

## Example

```python
made = [{key: values[:12] for key, values in row.items()} for row in encoded(rows)]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: a higher limit (more memory), shorter prompts, or fewer rows are your choice.

## References

- huggingface/trl#6025, huggingface/trl#1053, unslothai/unsloth#3019, huggingface/trl#588
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.evidence.answer_spans import (
    count_tokens_without_padding,
    length_limit_and_is_explicit,
    lines_with_unshifted_labels,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import explain_missing_labels
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule


class LineWithoutLabel(BatchRule):
    code = "BAT009"
    fault = Fault.ROWS_WITHOUT_ANY_LABEL
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        lines = list(lines_with_unshifted_labels(self.subject))
        empty = [sample for sample in lines if not sample.supervised.any()]
        if not empty:
            return
        batches = {(sample.rank, sample.batch) for sample in lines}
        dead = batches - {
            (sample.rank, sample.batch) for sample in lines if sample.supervised.any()
        }
        limit, _ = length_limit_and_is_explicit(self.subject)
        full = (
            sum(count_tokens_without_padding(sample) >= limit for sample in empty) if limit else 0
        )
        remedy = (
            "compare the first of them with the response marker or mask: it finds no answer there (truetune show DATA"
            " prints a row with its labels)"
        )
        if full == len(empty):
            remedy = f"set max_length above {limit}, or shorten the prompts"
        yield self.finding(
            f"{len(empty)} of {len(lines)} sequences have no label, and {len(dead)} of {len(batches)}"
            " micro-batches have none at all",
            remedy,
            # A line without labels teaches nothing; a micro-batch without any has no loss at all.
            severity="error" if dead else "warning",
            evidence=_reasons_for_missing_labels(full, limit, bool(dead)),
            cases=[
                Case(f"{sample.place}: {sample.text(0, len(sample.ids))[-60:]!r}")
                for sample in empty[:MAX_CASES]
            ],
            count=len(empty),
            total=len(lines),
        )

    def unmet(self) -> Unmet | None:
        return super().unmet() or explain_missing_labels(
            self.subject, list(lines_with_unshifted_labels(self.subject))
        )

    def measurement_if_clean(self) -> Measurement:
        """How many lines have no label."""
        return make_count_measurement(
            "sequences without a label", 0, len(list(lines_with_unshifted_labels(self.subject)))
        )


def _reasons_for_missing_labels(full: int, limit: int | None, is_dead: bool) -> Iterator[str]:
    """Why there are no labels, as far as it is known, and what a log shows of it.

    Args:
        full: lines without a label that are as long as the limit.
        limit: the length at which rows are cut.
        is_dead: has a whole micro-batch no label?
    """
    if full:
        yield (
            f"{full} of these sequences are as long as the limit of {limit} tokens: the answer was cut"
            " off"
        )
    if is_dead:
        yield "the loss of a micro-batch without labels is 0/0, and the log shows 0.0"
