"""The loss is very low, but the miniature does not give the answers.

## What it does
Trains a miniature of the model (same architecture, few weights) until it has memorised a few rows, and generates their
answers, from the prompts as in serving and from those of the rows. It fires if the loss fell but no answer is
reproduced from either (error), or most are not (warning), and no other rule on the miniature's answers explains it.

## Why it is bad
The loss rewards something else than what the model must produce. Labels that are shifted twice, labels only on the
prompt or on other tokens than the answer's, all give a perfect loss curve and a model that answers nonsense.

## Example

```python
ids = [{**row, "labels": row["labels"][1:] + [-100]} for row in encoded(rows)]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), ids,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: the labels have to be corrected, and the loss is then on other tokens.

## References

- huggingface/transformers#34575, huggingface/trl#3728
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recitation.recitation_record import (
    RecitedAnswer,
    cases_of_recited_answers,
    explain_why_no_answers_are_judged,
    is_recited_from_any_prompt,
    read_recitation,
    rows_with_separable_answer_if_learned,
)
from truetune.checks.rule import RecitationRule


class MemorisedButNotRecited(RecitationRule):
    code = "REC006"
    fault = Fault.TRAINING_DOES_NOT_IMPROVE_ANSWERS
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        rows = rows_with_separable_answer_if_learned(self.subject)
        lost = _unrecited_answers_without_known_reason(rows)
        # One or two of six may fail for their length or a near tie; half is no accident.
        if not lost or 2 * len(lost) < len(rows):
            return
        losses = read_recitation(self.subject)["loss"]
        # Where nearly all tokens are the likeliest ones, the answer is known and only the way to it is lost.
        right = sum(row["right"] for row in lost) / len(lost)
        evidence = [
            f"if the answer is given token by token, the model predicts {right:.0%} of its tokens right"
        ]
        counts = [
            (row["supervised"], row["answer"]) for row in lost if row["supervised"] is not None
        ]
        if counts:
            evidence.append(
                f"{sum(supervised for supervised, _ in counts)} of"
                f" {sum(answer for _, answer in counts)} answer tokens are in the loss"
            )
        yield self.finding(
            f"{len(lost)} of {len(rows)} answers are not reproduced, although the loss is {losses[-1]:.2g}",
            "check which tokens have labels (the assistant's, not the prompt's), and that labels are shifted exactly"
            " once: models of transformers shift them",
            severity="error" if len(lost) == len(rows) else "warning",
            evidence=evidence,
            cases=cases_of_recited_answers(lost),
            count=len(lost),
            total=len(rows),
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where no answer of a learned row was recited."""
        return super().unmet() or explain_why_no_answers_are_judged(self.subject)

    def measurement_if_clean(self) -> Measurement:
        """How many learned answers are not recited."""
        rows = rows_with_separable_answer_if_learned(self.subject)
        return make_count_measurement(
            "memorised answers that are not reproduced",
            len(_unrecited_answers_without_known_reason(rows)),
            len(rows),
        )


def _unrecited_answers_without_known_reason(rows: list[RecitedAnswer]) -> list[RecitedAnswer]:
    """The answers that are not recited from any prompt, and of which no other rule says why."""
    return [
        row
        for row in rows
        if not (is_recited_from_any_prompt(row) or row["field"] or row["echo"] or row["early"])
    ]
