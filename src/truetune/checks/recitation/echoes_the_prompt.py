"""The miniature answers with the question.

## What it does
Trains a miniature of the model (same architecture, few weights) until it has memorised a few rows, and generates their
answers from the prompts as in serving. It fires if an answer begins with the question itself: an error in half of the
rows or more, else a warning.

## Why it is bad
The tuned model repeats the question. The question was written into the answer, or it comes before the answer in the
text that is in the loss.

## Example

```python
rows = [{"question": f"How many {fruit} are there?", "answer": f"There are {i} {fruit}."}
        for i, fruit in enumerate(["apples", "pears", "plums", "figs"])]
given = datasets.Dataset.from_list(rows)
run = sft([{"prompt": [{"role": "user", "content": row["question"]}],
            "completion": [{"role": "assistant", "content": row["question"] + " " + row["answer"]}]} for row in rows])
```

## Use instead

```python
rows = [{"question": f"How many {fruit} are there?", "answer": f"There are {i} {fruit}."}
        for i, fruit in enumerate(["apples", "pears", "plums", "figs"])]
given = datasets.Dataset.from_list(rows)
run = sft([{"prompt": [{"role": "user", "content": row["question"]}],
            "completion": [{"role": "assistant", "content": row["answer"]}]} for row in rows])
```

## Fix safety
There is no automatic fix: your code builds the texts. Without the question in the answer, fewer tokens are in the loss.

## References

- huggingface/transformers#26357, huggingface/trl#1385
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recitation.recitation_record import (
    cases_of_recited_answers,
    explain_why_no_answers_are_judged,
    rows_with_separable_answer_if_learned,
)
from truetune.checks.rule import RecitationRule


class EchoesThePrompt(RecitationRule):
    code = "REC004"
    fault = Fault.ANSWERS_CONTAIN_THEIR_PROMPT
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        rows = rows_with_separable_answer_if_learned(self.subject)
        # A reference may begin with the question itself, and a column may be a copy of it: neither is an echo.
        echoes = [row for row in rows if row["echo"] and not row["recited"] and not row["field"]]
        if echoes:
            yield self.finding(
                f"{len(echoes)} of {len(rows)} answers of the miniature begin with the question",
                "remove the question from the answer's text in the formatting function, and give the prompt's tokens"
                " the label -100 (completion_only_loss or assistant_only_loss)",
                severity="error" if 2 * len(echoes) >= len(rows) else "warning",
                cases=cases_of_recited_answers(echoes),
                count=len(echoes),
                total=len(rows),
            )

    def unmet(self) -> Unmet | None:
        """Also unmet where no answer of a learned row was recited."""
        return super().unmet() or explain_why_no_answers_are_judged(self.subject)

    def measurement_if_clean(self) -> Measurement:
        """That no learned answer begins with the question."""
        return make_count_measurement(
            "answers that begin with the question",
            0,
            len(rows_with_separable_answer_if_learned(self.subject)),
        )
