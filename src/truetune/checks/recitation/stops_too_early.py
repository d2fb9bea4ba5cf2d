"""The miniature stops in the middle of answers.

## What it does
Trains a miniature of the model (same architecture, few weights) until it has memorised a few rows, and generates their
answers from the prompts as in serving. It fires if an answer ends before its reference does and is word for word the
same until there: in half of the rows or more (error), or in fewer (warning).

## Why it is bad
The tuned model breaks off its answers. A stop token is inside the texts (as written text, or between the parts of a
turn), or a stop id in generation_config is an ordinary token of the answers.

## Example

```python
for row in rows:
    row["messages"][1]["content"] = row["messages"][1]["content"].replace(" are", " are<|im_end|>")
given = datasets.Dataset.from_list(rows)
run = sft(rows)
```

## Use instead

```python
run = sft(rows)
```

## Fix safety
There is no automatic fix: the text of the rows is yours. Without the stop tokens inside, answers are learned to their
end.

## References

- huggingface/transformers#23530, unslothai/unsloth#416
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
    read_recitation,
    rows_with_separable_answer_if_learned,
)
from truetune.checks.rule import RecitationRule


class StopsTooEarly(RecitationRule):
    code = "REC002"
    fault = Fault.MODEL_ENDS_ANSWERS_TOO_EARLY
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        rows = rows_with_separable_answer_if_learned(self.subject)
        early = [row for row in rows if row["early"] and row["said"]]
        if early:
            stop_ids = ", ".join(map(str, read_recitation(self.subject)["stops"]))
            yield self.finding(
                f"{len(early)} of {len(rows)} answers stop before their end",
                "remove stop tokens from the answers' texts, and remove ids that answers use from eos_token_id in"
                " generation_config.json",
                severity="error" if 2 * len(early) >= len(rows) else "warning",
                evidence=[
                    f"stop ids at generation: {stop_ids}",
                    # Near 1: a label inside of the answer asks for it. Small: an ordinary token is a stop id.
                    "highest probability of a stop inside an answer:"
                    f" {max(row['stop_inside'] for row in early):.2g}",
                ],
                cases=cases_of_recited_answers(early),
                count=len(early),
                total=len(rows),
            )

    def unmet(self) -> Unmet | None:
        """Also unmet where no answer of a learned row was recited."""
        return super().unmet() or explain_why_no_answers_are_judged(self.subject)

    def measurement_if_clean(self) -> Measurement:
        """That no learned answer stops before its end."""
        return make_count_measurement(
            "answers that stop before their end",
            0,
            len(rows_with_separable_answer_if_learned(self.subject)),
        )
