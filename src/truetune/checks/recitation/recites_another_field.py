"""The miniature answers with the text of another column.

## What it does
Trains a miniature of the model (same architecture, few weights) until it has memorised a few rows, and generates their
answers from the prompts as in serving. It fires if an answer is word for word the text of another column of the same
row, and not the row's answer.

## Why it is bad
The model learns something that nobody wants: a hint, a source, a rejected answer. The loss falls as with the right
column, often lower.

## Example

```python
rows = [{"question": f"How many {fruit} are there?", "answer": f"There are {i} {fruit}.", "hint": f"Box {i} of {fruit}"}
        for i, fruit in enumerate(["apples", "pears", "plums", "figs"])]
given = datasets.Dataset.from_list(rows)
run = sft([{"prompt": [{"role": "user", "content": row["question"]}],
            "completion": [{"role": "assistant", "content": row["hint"]}]} for row in rows])
```

## Use instead

```python
rows = [{"question": f"How many {fruit} are there?", "answer": f"There are {i} {fruit}.", "hint": f"Box {i} of {fruit}"}
        for i, fruit in enumerate(["apples", "pears", "plums", "figs"])]
given = datasets.Dataset.from_list(rows)
run = sft([{"prompt": [{"role": "user", "content": row["question"]}],
            "completion": [{"role": "assistant", "content": row["answer"]}]} for row in rows])
```

## Fix safety
There is no automatic fix: only you know which column has the answers. Map that one; the loss is then higher at first.

## References

- hiyouga/LlamaFactory#7592, huggingface/open-r1#585
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recitation.recitation_record import (
    case_of_recited_answer,
    explain_why_no_answers_are_judged,
    rows_with_separable_answer_if_learned,
)
from truetune.checks.rule import RecitationRule


class RecitesAnotherField(RecitationRule):
    code = "REC003"
    fault = Fault.ANOTHER_COLUMN_TRAINED_AS_ANSWER
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        rows = rows_with_separable_answer_if_learned(self.subject)
        # Where a column has the answer's own text, reciting it is right.
        misdirected = [row for row in rows if row["field"] and not row["recited"]]
        if misdirected:
            column = Counter(row["field"] for row in misdirected).most_common(1)[0][0]
            yield self.finding(
                f"{len(misdirected)} of {len(rows)} answers are the text of the column {column!r} and"
                " not the row's answer",
                f"map the column with the answers to the answer, instead of {column!r} (formatting function or data"
                " settings)",
                cases=[
                    case_of_recited_answer(row, f", which is its {row['field']!r}")
                    for row in misdirected
                ],
                count=len(misdirected),
                total=len(rows),
            )

    def unmet(self) -> Unmet | None:
        """Also unmet where no answer of a learned row was recited."""
        return super().unmet() or explain_why_no_answers_are_judged(self.subject)

    def measurement_if_clean(self) -> Measurement:
        """That no learned answer is the text of another column."""
        return make_count_measurement(
            "answers that are the text of another column",
            0,
            len(rows_with_separable_answer_if_learned(self.subject)),
        )
