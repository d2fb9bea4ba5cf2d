"""Answers can't be read by the parser.

## What it does
Reads each answer with the parser that the run names (`watch.parser`: json, number, choice, a pattern, a function). It
fires if significantly more are unreadable than in the best earlier sampling pass, or, in the second half of a run, if
significantly more than half are. It is an error if none of 8 or more can be read at the end of a run, otherwise a
warning.

## Why it is bad
Any program that calls the model gets an error instead of an answer.

## Example

```yaml
looks:
  - {step: 0, parsed: 7}
  - {step: 100, parsed: 1}
```

## Use instead

```yaml
looks:
  - {step: 0, parsed: 1}
  - {step: 100, parsed: 7}
```

## Fix safety
There is no automatic fix: check that the same parser can read the references, and that answers are not cut off at the
limit on new tokens (`max_new_tokens`).

## References

- Willard and Louf 2023, Efficient Guided Generation for Large Language Models, arXiv 2307.09702
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
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample

# Chosen, not measured: a model that learns a form slowly meets it in half of its answers. At half of that, runs that
# still improve would be warned; near 1 only a parser that reads nothing at all would.
TOLERATED = 0.5


class AnswersDoNotParse(BadAnswerShareRule):
    code = "ANS011"
    fault = Fault.MODEL_ANSWERS_NOT_IN_REQUIRED_FORM
    symptoms = ("garbage-output", "odd-metrics")
    severity = "error"
    since = "0.1.0"
    tolerated = TOLERATED
    called = "can't be read by the parser"
    moot_where = ("answers-are-cut-off", "answers-diverge-where-references-repeat")
    untold = Unmet("no parser is named", "name one with --parser")

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Can the run's parser not read the answer? None without a parser."""
        return None if sample.scores.parsed is None else not sample.scores.parsed

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is not None:
            cut = sum(not sample.scores.stopped for sample in bad_answers.samples)
            yield self.finding(
                f"{bad_answers.count_in_last_pass} answers can't be read by the"
                f" parser{bad_answers.best_earlier_count_in_words}",
                "check that the parser can read the references of the training rows (truetune evaluate --parser),"
                " and that max_new_tokens does not cut the answers",
                severity="error"
                if self.subject.finished and are_enough_and_all_bad(bad_answers)
                else "warning",
                evidence=[
                    *(
                        [(f"{cut} of them were cut off at {self.subject.limit} tokens")]
                        if cut
                        else []
                    ),
                    *bad_answers.evidence,
                ],
                cases=cases_of_samples(bad_answers.samples),
                count=bad_answers.count_in_last_pass.bad,
                total=bad_answers.count_in_last_pass.of,
                figure=bad_answers.figure("answers that can't be read"),
            )
