"""Sequences have labels, but none of them is on an answer.

## What it does
Counts the sequences of the first batches that contain an answer and labels, but no label on any token of an answer. It
is an error if that is so in all of them, and a warning in some.

## Why it is bad
The model learns the questions, or the template, and nothing of what it should say. The loss still falls.

## Example

```python
made = encoded(rows)
for row in made:
    row["labels"] = [-100 if label >= 0 else id for id, label in zip(row["input_ids"], row["labels"])]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), made,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: your code makes the labels. Put them on the assistant's turns and -100 on everything else;
the loss is then on another text.

## References

- NVIDIA-NeMo/Speech#16284, huggingface/trl#1282
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.evidence.answer_spans import (
    answers_in_line,
    lines_of_known_rows,
    text_around,
)
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import explain_missing_answer
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, BatchRule
from truetune.render.rendering import Source


class ResponseNotSupervised(BatchRule):
    code = "BAT007"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def __init__(self, subject: Audit) -> None:
        super().__init__(subject)
        self.lines = 0

    def findings(self) -> Iterator[Finding]:
        wrong = []
        for sample in lines_of_known_rows(self.subject):
            answers = answers_in_line(sample, self.subject.stops)
            if answers and sample.supervised.any():
                self.lines += 1
                if not any(
                    (answer.supervised_token_mask & answer.content_token_mask).any()
                    for answer in answers
                ):
                    wrong.append(sample)
        if not wrong:
            return
        every = len(wrong) == self.lines
        yield self.finding(
            f"{len(wrong)} of {self.lines} sequences have labels, but none on an answer",
            "put the labels on the assistant's turns, and -100 on everything else (is the mask inverted?)",
            severity="error" if every else "warning",
            evidence=[f"tokens with a label: {_describe_labelled_tokens_by_source(wrong)}"],
            cases=[
                Case(
                    f"{sample.place}: a label on"
                    f" {text_around(sample, int(np.flatnonzero(sample.supervised)[0]))}"
                )
                for sample in wrong[:MAX_CASES]
            ],
            count=len(wrong),
            total=self.lines,
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None or self.lines:
            return lacking
        return explain_missing_answer(self.subject, lines_of_known_rows(self.subject))

    def measurement_if_clean(self) -> Measurement:
        """How many lines with labels have one on an answer."""
        return make_count_measurement(
            "sequences with labels that have one on an answer", self.lines, self.lines
        )


def _describe_labelled_tokens_by_source(samples: list[Sample]) -> str:
    """What the tokens with labels are: `120 user, 40 template`."""
    source = np.concatenate([sample.source[sample.supervised] for sample in samples])
    counts = np.bincount(source, minlength=len(Source))
    return ", ".join(f"{counts[kind]:,} {kind.label}" for kind in Source if counts[kind])
