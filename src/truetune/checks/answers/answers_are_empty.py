"""Answers are empty, but their references are not.

## What it does
Counts the answers that stop at once. It fires if there are significantly more than in the best earlier sampling pass,
or, in the second half of a run, if significantly more than 5 % are empty. It is an error if all answers (8 or more) are
empty at the end of a run, otherwise a warning.

## Why it is bad
The model has learned that the stop token comes first. The causes are an empty answer column, answers that truncation
cut off, or labels that are shifted by one position.

## Example

```yaml
looks:
  - {step: 0, empty: 0}
  - {step: 100, empty: 5}
```

## Use instead

```yaml
looks:
  - {step: 0, empty: 1}
  - {step: 100, empty: 0}
```

## Fix safety
There is no automatic fix: find rows with empty answers (`truetune check DATA`), and check the labels of the first
batches (`truetune run -- COMMAND`).

## References

- huggingface/transformers#28679
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import (
    are_enough_and_all_bad,
    bad_answers_if_risen_or_too_many,
    cases_of_samples,
)
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.generation.answer_samples import Sample

# Chosen, not measured: an empty answer is never wanted, but one of 20 may come of a prompt that invites none. At half,
# one of 40 would count; at double, a tenth of all users would get nothing before it fires.
TOLERATED = 0.05


class AnswersAreEmpty(BadAnswerShareRule):
    code = "ANS006"
    fault = Fault.MODEL_ENDS_ANSWERS_TOO_EARLY
    symptoms = ("garbage-output", "odd-metrics")
    severity = "error"
    since = "0.1.0"
    tolerated = TOLERATED
    called = "are empty"

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Is the answer empty? None if the reference is empty too."""
        expected = bool(sample.prompt.reference_ids) and not sample.prompt.reference.strip()
        return None if expected else sample.scores.empty and sample.scores.stopped

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is not None:
            yield self.finding(
                f"{bad_answers.count_in_last_pass} answers are empty{bad_answers.best_earlier_count_in_words}",
                "find rows with empty or truncated answers (truetune check DATA), and check that the labels are not"
                " shifted (truetune run -- COMMAND shows them)",
                severity="error"
                if self.subject.finished and are_enough_and_all_bad(bad_answers)
                else "warning",
                evidence=bad_answers.evidence,
                cases=cases_of_samples(bad_answers.samples),
                count=bad_answers.count_in_last_pass.bad,
                total=bad_answers.count_in_last_pass.of,
                figure=bad_answers.figure("empty answers"),
            )
